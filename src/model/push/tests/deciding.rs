//! Which commands stand.

use super::*;
use crate::model::push::Decision::{Refuse, Stand};
use proptest::prelude::*;

const CLIENT: Rules = Rules { atomic: false, by_server: false, format: ObjectFormat::Sha1 };
const ATOMIC: Rules = Rules { atomic: true, ..CLIENT };
const SERVER: Rules = Rules { by_server: true, ..CLIENT };

fn decided(there: &[&str], commands: &[&str], rules: Rules) -> Decided {
    let commands: Vec<Command> = commands.iter().map(|text| command(text)).collect();
    decide(&commands, &listing(there), rules)
}

/// What was decided, in git's words.
fn said(there: &[&str], commands: &[&str], rules: Rules) -> Vec<&'static str> {
    let decided = decided(there, commands, rules);
    let words = decided.decisions.into_iter().map(|decision| match decision {
        Stand => "ok",
        Refuse(reason) => reason.words(),
    });
    words.collect()
}

#[test]
fn each_command_stands_or_falls_by_its_own_old_value() {
    let there = ["main 1", "a 1", "b 1"];
    let commands = ["a 1 2", "b 2 3", "c - 1", "main - 2", "d 1 2", "e 1 -", "f - -"];
    let expected = [
        "ok",
        "incorrect old value provided",
        "ok",
        "reference already exists",
        "reference does not exist",
        "reference does not exist",
        "ok",
    ];
    assert_eq!(said(&there, &commands, CLIENT), expected);
    let effects = decided(&there, &commands, CLIENT).commands;
    assert_eq!(effects, [command("a 1 2"), command("c - 1")]);
}

#[test]
fn an_atomic_push_stands_whole_or_not_at_all() {
    let there = ["main 1", "a 1"];
    assert_eq!(said(&there, &["a 1 2", "c - 1"], ATOMIC), ["ok", "ok"]);
    let mixed = decided(&there, &["a 2 3", "c - 1"], ATOMIC);
    assert_eq!(mixed.decisions, [Refuse(Reason::Stale), Refuse(Reason::Atomic)]);
    assert!(mixed.commands.is_empty());
}

#[test]
fn names_that_git_refuses_are_refused() {
    let long = format!("{} - 1", "x".repeat(251));
    let commands =
        ["refs/one - 1", "HEAD 1 2", "a..b - 1", "x.lock - 1", "refs/heads/ - 1", "@{1} - 1", &long];
    let mut expected = vec!["funny refname"; 6];
    expected.push("refname too long");
    assert_eq!(said(&["main 1"], &commands, CLIENT), expected);
    assert_eq!(said(&[], &["main - 0"], CLIENT), ["invalid new value provided"]);
    assert_eq!(said(&[], &["main - ref:other"], CLIENT), ["invalid new value provided"]);
}

#[test]
fn the_branch_that_head_points_at_is_not_deleted() {
    let there = ["main 1", "same ref:main"];
    assert_eq!(said(&there, &["main 1 -"], CLIENT), ["deletion of the current branch prohibited"]);
    assert_eq!(said(&there, &["same 1 -"], CLIENT), ["deletion of the current branch prohibited"]);
}

#[test]
fn a_directory_and_a_file_cannot_both_be() {
    let conflict = "refname conflict";
    assert_eq!(said(&["a 1"], &["a/b - 1"], CLIENT), [conflict]);
    assert_eq!(said(&["a/b 1"], &["a - 1"], CLIENT), [conflict]);
    assert_eq!(said(&[], &["a - 1", "a/b - 1"], CLIENT), ["ok", conflict]);
    assert_eq!(said(&["a 1"], &["a 1 -", "a/b - 1"], CLIENT), ["ok", "ok"]);
    assert_eq!(said(&["a 1"], &["a/b - 1", "a 1 -"], CLIENT), ["ok", "ok"]);
    assert_eq!(said(&["a 1"], &["a 2 -", "a/b - 1"], CLIENT), ["incorrect old value provided", conflict]);
    assert_eq!(said(&["a/b 1", "a/c 1"], &["a/b 1 -", "a - 1"], CLIENT), ["ok", conflict]);
    assert_eq!(said(&["a 1"], &["a-b - 1", "ab - 1"], CLIENT), ["ok", "ok"]);
    // One transaction cannot do it, and an atomic push is one.
    assert_eq!(said(&["a 1"], &["a 1 -", "a/b - 1"], ATOMIC), ["atomic push failure", conflict]);
}

#[test]
fn of_two_commands_for_one_reference_the_first_stands() {
    assert_eq!(said(&["a 1"], &["a 1 2", "a 1 3"], CLIENT), ["ok", "multiple updates for ref not allowed"]);
    assert_eq!(said(&["a 1"], &["a 3 2", "a 1 3"], CLIENT), ["incorrect old value provided", "ok"]);
    assert_eq!(
        said(&["a 1"], &["a 1 2", "a 2 3"], ATOMIC),
        ["atomic push failure", "incorrect old value provided"]
    );
}

#[test]
fn a_command_for_a_symbolic_reference_changes_what_it_leads_to() {
    let there = ["main 1", "s ref:t", "t 1", "u ref:u", "v ref:w"];
    let led = decided(&there, &["s 1 2"], CLIENT);
    assert_eq!((led.decisions, led.commands), (vec![Stand], vec![command("t 1 2")]));
    assert_eq!(said(&there, &["s 1 2", "t 1 2"], CLIENT), ["ok", "ok"]);
    assert_eq!(decided(&there, &["s 1 2", "t 1 2"], CLIENT).commands, [command("t 1 2")]);
    let both = ["inconsistent aliased update"; 2];
    assert_eq!(said(&there, &["s 1 2", "t 1 3"], CLIENT), both);
    assert_eq!(said(&there, &["s 3 2", "t 3 2"], CLIENT), ["incorrect old value provided"; 2]);
    assert_eq!(said(&there, &["u 1 2"], CLIENT), ["broken symref"]);
    assert_eq!(decided(&there, &["v - 2"], CLIENT).commands, [command("w - 2")]);
}

#[test]
fn the_server_itself_may_change_head_and_symbolic_references() {
    let there = ["main 1", "s ref:t", "t 1"];
    let commands = ["HEAD ref:main ref:t", "s ref:t ref:main", "n - ref:t"];
    let decided = decided(&there, &commands, SERVER);
    assert_eq!(decided.decisions, [Stand; 3]);
    assert_eq!(decided.commands, commands.map(command));
    assert_eq!(said(&there, &["HEAD ref:t ref:main"], SERVER), ["incorrect old value provided"]);
    assert_eq!(said(&there, &["HEAD ref:main -"], SERVER), ["funny refname"]);
}

fn some_name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["main", "a", "a/b", "a/b/c", "a/d", "b", "s", "x..y", "c"])
        .prop_map(str::to_owned)
}

fn some_value() -> impl Strategy<Value = char> {
    prop::sample::select(vec!['1', '2', '-'])
}

fn some_listing() -> impl Strategy<Value = Listing> {
    let free = prop::sample::subsequence(vec!["main 1", "b 1", "s ref:a", "c 2"], 0..=4);
    let tree = prop::sample::select(vec![vec!["a 1"], vec!["a/b 1", "a/d 2"], vec!["a/b/c 1"], vec![]]);
    (free, tree).prop_map(|(free, tree)| listing(&[free, tree].concat()))
}

fn fits_on_disk(there: &Listing) -> bool {
    let names: BTreeSet<&[u8]> = there.references.keys().map(|name| &name.0[..]).collect();
    there.references.keys().all(|name| !collides(&names, name))
}

proptest! {
    #[test]
    fn what_stands_is_done_what_does_not_is_not_and_the_checksum_is_foretold(
        there in some_listing(),
        commands in prop::collection::vec((some_name(), some_value(), some_value()), 0..7),
        atomic in any::<bool>(),
    ) {
        let commands: Vec<Command> =
            commands.iter().map(|(name, old, new)| command(&format!("{name} {old} {new}"))).collect();
        let decided = decide(&commands, &there, Rules { atomic, ..CLIENT });
        prop_assert_eq!(decided.decisions.len(), commands.len());
        let mut then = there.clone();
        then.apply(&decided.commands);
        prop_assert!(fits_on_disk(&then), "{:?}", then);
        for (command, decision) in commands.iter().zip(&decided.decisions) {
            if *decision == Stand {
                let name = there.resolve(&command.name).unwrap();
                prop_assert_eq!(then.get(&name), command.new.as_ref());
            }
        }
        for effect in &decided.commands {
            prop_assert_eq!(there.get(&effect.name), effect.old.as_ref());
        }
        let stands = |decision: &Decision| *decision == Stand;
        if atomic {
            let all = decided.decisions.iter().all(stands);
            prop_assert!(all || (!decided.decisions.iter().any(stands) && decided.commands.is_empty()));
        }
        let before = there.checksum(&key(), ObjectFormat::Sha1);
        prop_assert_eq!(
            after(&key(), &before, &decided.commands),
            Some(then.checksum(&key(), ObjectFormat::Sha1))
        );
    }

    #[test]
    fn both_transactions_can_be_done_one_after_the_other(
        there in some_listing(),
        commands in prop::collection::vec((some_name(), some_value(), some_value()), 0..7),
    ) {
        let commands: Vec<Command> =
            commands.iter().map(|(name, old, new)| command(&format!("{name} {old} {new}"))).collect();
        let decided = decide(&commands, &there, CLIENT);
        let order = transactions(&decided.commands);
        let mut then = there;
        // Within one transaction git demands that nothing that is created meets what is there before.
        for commands in [order.first, order.second] {
            let names: BTreeSet<&[u8]> = then.references.keys().map(|name| &name.0[..]).collect();
            let made = commands.iter().filter(|command| command.old.is_none());
            for command in made {
                prop_assert!(!collides(&names, &command.name), "{:?}", command);
            }
            then.apply(&commands);
            prop_assert!(fits_on_disk(&then));
        }
    }
}
