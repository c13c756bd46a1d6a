//! Points at which a test ends this very process as kill -9 does, to see what is left.
//!
//! A program built for release knows none of them. One built for tests looks into the file that
//! `TRUED_TEST_POINTS` names: if it holds the point's name, the file is taken away, so that it
//! happens once, and the process is gone before it could tidy anything.

/// The process has come to a point, such as `removal.marked`.
#[inline]
pub fn reached(point: &str) {
    #[cfg(debug_assertions)]
    end_at(point);
    #[cfg(not(debug_assertions))]
    let _ = point;
}

#[cfg(debug_assertions)]
fn end_at(point: &str) {
    let Some(file) = std::env::var_os("TRUED_TEST_POINTS") else { return };
    let meant = std::fs::read_to_string(&file).is_ok_and(|text| text.trim() == point);
    // Of several processes that come to it, the one that takes the file away ends.
    if meant && std::fs::remove_file(&file).is_ok() {
        let own = rustix::process::getpid();
        let _ = rustix::process::kill_process(own, rustix::process::Signal::KILL);
    }
}
