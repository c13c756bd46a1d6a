//! The rules, by cases that have happened and by laws that hold for all.

mod deciding;
mod voting;

use super::*;
use crate::model::checksum::Target;
use crate::model::fleet::ObjectFormat;

pub(super) fn key() -> ChecksumKey {
    ChecksumKey { id: 1, secret: [7; 32] }
}

pub(super) fn name(text: &str) -> RefName {
    RefName(text.as_bytes().to_vec())
}

/// An object that is named by one hexadecimal digit.
pub(super) fn object(digit: char) -> Target {
    Target::Object(digit.to_string().repeat(40))
}

/// `refs/heads/<name> <old> <new>`, a digit each; `-`: none.
pub(super) fn command(text: &str) -> Command {
    let mut words = text.split(' ');
    let mut next = || words.next().unwrap();
    let value = |word: &str| match word.split_once(':') {
        Some((_, to)) => Some(Target::Symbolic(format!("refs/heads/{to}"))),
        None => word.chars().next().filter(|digit| *digit != '-').map(object),
    };
    let short = next();
    let long = if short.starts_with("refs/") || short == "HEAD" {
        short.into()
    } else {
        format!("refs/heads/{short}")
    };
    let (old, new) = (value(next()), value(next()));
    Command { name: name(&long), old, new }
}

/// HEAD at main, and these: `name digit`, or `name ref:other`.
pub(super) fn listing(lines: &[&str]) -> Listing {
    let text = lines.iter().fold("HEAD ref:refs/heads/main\n".to_owned(), |text, line| {
        let (name, to) = line.split_once(' ').unwrap();
        let to = match to.strip_prefix("ref:") {
            Some(to) => format!("ref:refs/heads/{to}"),
            None => to.repeat(40),
        };
        format!("{text}{to} refs/heads/{name}\n")
    });
    Listing::parse(text.as_bytes(), ObjectFormat::Sha1).unwrap()
}

#[test]
fn deletions_come_before_what_takes_their_place() {
    let commands = ["a 1 -", "a/b - 2", "c/d 1 -", "c - 3", "e - 1", "a-b - 4"].map(command);
    let order = transactions(&commands);
    let names = |list: &[Command]| list.iter().map(|one| one.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(&order.first), ["refs/heads/a", "refs/heads/c/d", "refs/heads/e", "refs/heads/a-b"]);
    assert_eq!(names(&order.second), ["refs/heads/a/b", "refs/heads/c"]);
    assert!(transactions(&commands[1..2]).second.is_empty());
}

#[test]
fn a_checksum_of_another_key_cannot_be_gone_on_from() {
    let before = listing(&[]).checksum(&key(), ObjectFormat::Sha1);
    assert!(after(&ChecksumKey { id: 2, secret: [7; 32] }, &before, &[]).is_none());
}

#[test]
fn a_new_head_changes_the_checksum_as_taking_it_again_does() {
    let mut there = listing(&["main 1", "other 2"]);
    let before = there.checksum(&key(), ObjectFormat::Sha1);
    let commands = [command("HEAD ref:main ref:other")];
    there.apply(&commands);
    assert_eq!(there.head, Target::Symbolic("refs/heads/other".into()));
    assert_eq!(after(&key(), &before, &commands), Some(there.checksum(&key(), ObjectFormat::Sha1)));
}

#[test]
fn a_list_that_is_cut_off_or_names_what_is_no_reference_is_not_read() {
    let one = "1".repeat(40);
    for bad in [
        "HEAD ref:refs/heads/main".to_owned(),
        format!("{one} refs/heads/main\n"),
        format!("HEAD {one}\n{one} refs/heads/../x\n"),
        format!("HEAD {one}\n{one} refs/heads/a\n{one} refs/heads/a\n"),
        format!("HEAD {one}\n{} refs/heads/a\n", "0".repeat(40)),
        format!("HEAD {one}\n1111 refs/heads/a\n"),
        "\n".to_owned(),
    ] {
        assert!(Listing::parse(bad.as_bytes(), ObjectFormat::Sha1).is_err(), "{bad:?}");
    }
}
