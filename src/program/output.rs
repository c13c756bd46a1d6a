//! What a program writes: its end is kept, however much there is.

use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Past so much of one stream the program is ended: nobody reads that.
pub const MOST: usize = 16 << 20;
/// Of which the last so much is kept to find the last line in.
const KEPT: usize = 8 << 10;
/// Characters of a result.
const LONGEST: usize = 1_000;

/// The end of one stream.
#[derive(Debug, Default)]
pub(super) struct Tail {
    kept: Vec<u8>,
    seen: usize,
}

impl Tail {
    /// Reads to the end, or to the bound; `false`: there was more than that.
    pub(super) async fn read(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> bool {
        let mut buffer = vec![0; 4096];
        while let Ok(count @ 1..) = stream.read(&mut buffer).await {
            self.seen = self.seen.saturating_add(count);
            self.kept.extend_from_slice(&buffer[..count]);
            if self.kept.len() > 2 * KEPT {
                self.kept.drain(..self.kept.len() - KEPT);
            }
            if self.seen > MOST {
                return false;
            }
        }
        true
    }

    /// The last line that says anything, fit to be shown anywhere.
    pub(super) fn last_line(&self) -> String {
        let text = String::from_utf8_lossy(&self.kept);
        let line = text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
        line.chars().map(|one| if one.is_control() { ' ' } else { one }).take(LONGEST).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn tail(text: &[u8]) -> (Tail, bool) {
        let mut tail = Tail::default();
        let whole = tail.read(&mut &*text).await;
        (tail, whole)
    }

    #[tokio::test]
    async fn the_last_line_that_says_anything_is_the_result() {
        for (text, line) in [
            ("", ""),
            ("one", "one"),
            ("one\ntwo\n", "two"),
            ("one\n \n\n", "one"),
            ("a\u{1b}[31mred", "a [31mred"),
        ] {
            assert_eq!(tail(text.as_bytes()).await.0.last_line(), line);
        }
    }

    #[tokio::test]
    async fn much_is_read_and_little_is_kept() {
        let mut text = vec![b'x'; 1 << 20];
        text.extend_from_slice(b"\nthe end\n");
        let (tail, whole) = tail(&text).await;
        assert!(whole && tail.kept.capacity() < 64 << 10);
        assert_eq!(tail.last_line(), "the end");
    }

    #[tokio::test]
    async fn what_never_ends_is_cut_off() {
        let mut endless = tokio::io::repeat(b'y');
        assert!(!Tail::default().read(&mut endless).await);
    }
}
