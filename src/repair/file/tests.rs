use super::*;
use proptest::prelude::*;

const GOOD: &str = include_str!("../../../repairs/re-replicate.toml");

fn refusal(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "the shipped file has changed: {from:?} is gone");
    let text = GOOD.replacen(from, to, 1);
    Repair::parse("re-replicate", "repairs/re-replicate.toml", &text).unwrap_err().to_string()
}

#[test]
fn the_shipped_file_says_what_it_says() {
    let repair = Repair::parse("re-replicate", "f", GOOD).unwrap();
    assert_eq!(repair.step, Step::Replicate);
    assert_eq!(repair.throttle.in_flight, 400);
    assert_eq!(repair.throttle.bytes_per_second, 100 << 20);
    assert_eq!(repair.deadline, Deadline { base_ms: 120_000, per_gib_ms: 120_000 });
    assert_eq!(repair.retry.max_ms, 3_600_000);
}

#[test]
fn every_refusal_names_line_key_and_what_is_allowed() {
    let refusals = [
        refusal("in_flight         = 400", "in_flight = 0"),
        refusal("in_flight         = 400", "in_flight = 100001"),
        refusal("in_flight         = 400", "in_flight = \"400\""),
        refusal("in_flight         = 400", "in_fligth = 400"),
        refusal("per_rack          = 40", ""),
        refusal("\"replicate\"", "\"replicat\""),
        refusal("\"repository\"", "\"replica\""),
        refusal("\"100MiB\"", "\"100MB\""),
        refusal("\"100MiB\"", "\"1B\""),
        refusal("first       = \"30s\"", "first = \"2d\""),
        refusal("first       = \"30s\"", "first = \"30\""),
        refusal("max         = \"1h\"", "max = \"10s\""),
        refusal("[retry]", "[retry"),
    ];
    insta::assert_snapshot!(refusals.join("\n"), @r#"
    repairs/re-replicate.toml:8: in_flight: 0 is not within 1 to 100000
    repairs/re-replicate.toml:8: in_flight: 100001 is not within 1 to 100000
    repairs/re-replicate.toml:8: in_flight: invalid type: string "400", expected i64
    repairs/re-replicate.toml:8: unknown field `in_fligth`, expected one of `in_flight`, `per_fileserver`, `per_rack`, `starts_per_minute`, `bytes_per_second`; did you mean in_flight?
    repairs/re-replicate.toml:7: missing field `per_rack`
    repairs/re-replicate.toml:5: step: step "replicat" is not one of: resync, replicate, move, verify, scrub, repack, resume, remove, purge, settle, exec; did you mean replicate?
    repairs/re-replicate.toml:4: subject: step replicate is done to a repository, not to a replica
    repairs/re-replicate.toml:12: bytes_per_second: "100MB" is not a size like "512KiB", "100MiB" or "0" (units: B, KiB, MiB, GiB, TiB)
    repairs/re-replicate.toml:12: bytes_per_second: "1B" is neither "0" (no bound) nor within 64KiB to 1TiB
    repairs/re-replicate.toml:19: first: "2d" is not within 1s to 1d
    repairs/re-replicate.toml:19: first: "30" is not a duration like "30s", "2m" or "1h" (units: ms, s, m, h, d)
    repairs/re-replicate.toml:20: max: "10s" is less than first, "30s"
    repairs/re-replicate.toml:18: unclosed table, expected `]`
    "#);
}

#[test]
fn a_program_may_be_done_to_anything_and_stands_instead_of_a_step() {
    for subject in ["repository", "replica", "fileserver", "key"] {
        let text = GOOD.replacen("\"repository\"", &format!("{subject:?}"), 1).replacen(
            "step    = \"replicate\"",
            "exec = [\"/usr/local/bin/tell\", \"--team\", \"storage\"]",
            1,
        );
        let repair = Repair::parse("tell", "f", &text).unwrap();
        assert_eq!((repair.step, repair.exec[1].as_str()), (Step::Exec, "--team"));
        assert_eq!(repair.subject.as_str(), subject);
    }
    let step = "step    = \"replicate\"";
    let refusals = [
        refusal(step, "exec = []"),
        refusal(step, "exec = [\"tell\"]"),
        refusal(step, "exec = [\"/usr/../bin/tell\"]"),
        refusal(step, "exec = \"/bin/sh -c true\""),
        refusal(step, "exec = [\"/bin/sh\"]\nstep = \"verify\""),
        refusal(step, "step = \"exec\""),
        refusal(step, ""),
    ];
    insta::assert_snapshot!(refusals.join("\n"), @r#"
    repairs/re-replicate.toml:5: exec: the list is empty; the program's path comes first
    repairs/re-replicate.toml:5: exec: "tell" is not the absolute path of a program
    repairs/re-replicate.toml:5: exec: "/usr/../bin/tell" is not the absolute path of a program
    repairs/re-replicate.toml:5: exec: invalid type: string "/bin/sh -c true", expected a sequence
    repairs/re-replicate.toml:5: exec: a repair has a step or a program, not both
    repairs/re-replicate.toml:5: step: a program of your own is named by exec = ["/path/to/it", …], not by step
    repairs/re-replicate.toml:1: say what it does: step = "…", or exec = ["/path/to/program"]
    "#);
}

#[test]
fn a_name_that_could_not_stand_in_sql_or_a_metric_is_refused() {
    for name in ["fleet", "", "Re", "1st", "a_b", "a b", "../x", "-a"] {
        assert!(Repair::parse(name, "f", GOOD).is_err(), "{name:?} must be refused");
    }
}

#[test]
fn the_longest_silence_grows_with_the_size() {
    let deadline = Deadline { base_ms: 1_000, per_gib_ms: 60_000 };
    assert_eq!(deadline.for_bytes(0), 1_000);
    assert_eq!(deadline.for_bytes(1 << 30), 61_000);
    assert_eq!(deadline.for_bytes(-5), 1_000);
    assert!(deadline.for_bytes(i64::MAX) > 0);
}

proptest! {
    #[test]
    fn backoff_stays_below_its_ceiling_and_the_ceiling_below_the_maximum(n in -3..80_i32, chance: u64) {
        let retry = Retry { first_ms: 30_000, max_ms: 3_600_000, lock_after: 5, stuck_after: 12 };
        prop_assert!((0..=retry.ceiling(n)).contains(&retry.backoff(n, chance)));
        prop_assert!(retry.ceiling(n) <= retry.max_ms);
        prop_assert!(retry.ceiling(n) >= retry.first_ms);
    }

    #[test]
    fn no_text_makes_the_reader_fail_without_a_place(text in "\\PC{0,200}|(summary|step|\\[retry\\]|=|\"|\n| ){0,40}") {
        if let Err(error) = Repair::parse("a", "f", &text) {
            prop_assert!(error.line >= 1 && !error.message.is_empty());
        }
    }
}
