//! The pushes. Names are below a place of each case's own; `!` before those that stand as they are, with the case's
//! number for `#`. Values: `A`, `B`, `C` in a line, `T` a tag, `blob`, `tree`: there already. `N` after `C`, `P` after
//! `N`, `S` after `A`, and `bad`, which no `fsck` lets pass: new with this push. `gone`: nowhere. `0`: none.

use super::first;
use super::wire::packet;
use std::collections::BTreeMap;

/// What follows the commands.
#[derive(Clone, Copy)]
pub enum Pack {
    /// What is new, thin.
    Thin,
    /// All history.
    Whole,
    /// A pack of nothing.
    Empty,
    /// Not a byte.
    Nothing,
    /// The thin one without its end.
    Cut,
    /// The thin one with a byte changed.
    Flipped,
    /// No pack.
    Garbage,
    /// New commits without their trees.
    CommitsOnly,
    /// What is new without `N`.
    ParentMissing,
    /// `S` too, which nobody asks for.
    More,
    /// These bytes are the whole push.
    Raw(fn(&BTreeMap<&'static str, String>) -> Vec<u8>),
}

/// One push.
pub struct Case {
    pub name: &'static str,
    /// `name=value`, with commas between.
    pub seeds: &'static str,
    /// `old new name`, with semicolons between.
    pub commands: &'static str,
    pub pack: Pack,
    pub wishes: &'static str,
}

const PLAIN: &str = "report-status";
const ATOMIC: &str = "report-status atomic";

const fn case(name: &'static str, seeds: &'static str, commands: &'static str, pack: Pack) -> Case {
    Case { name, seeds, commands, pack, wishes: PLAIN }
}

const fn atomic(name: &'static str, seeds: &'static str, commands: &'static str, pack: Pack) -> Case {
    Case { name, seeds, commands, pack, wishes: ATOMIC }
}

const fn wishing(name: &'static str, wishes: &'static str) -> Case {
    Case { name, seeds: "x=C", commands: "C N x", pack: Pack::Thin, wishes }
}

const fn raw(
    name: &'static str,
    commands: &'static str,
    body: fn(&BTreeMap<&'static str, String>) -> Vec<u8>,
) -> Case {
    Case { name, seeds: "", commands, pack: Pack::Raw(body), wishes: PLAIN }
}

use Pack::{CommitsOnly, Cut, Empty, Flipped, Garbage, More, Nothing, ParentMissing, Thin, Whole};

pub const CASES: &[Case] = &[
    // Good ones.
    case("a branch of what is there", "", "0 B x", Empty),
    case("a branch of what is new", "", "0 N x", Thin),
    case("a branch of two new commits", "", "0 P x", Thin),
    case("forward to what is there", "x=B", "B C x", Empty),
    case("forward to what is new", "x=C", "C N x", Thin),
    case("forced to the side", "x=C", "C S x", Thin),
    case("forced back", "x=C", "C B x", Empty),
    case("deleted", "x=B", "B 0 x", Nothing),
    case("one deleted, one created", "x=B", "B 0 x;0 C y", Empty),
    case("two deleted", "x=B,y=C", "B 0 x;C 0 y", Nothing),
    case("an annotated tag", "", "0 T tag:v", Empty),
    case("a light tag", "", "0 B tag:w", Empty),
    case("a tag moved", "tag:v=B", "B C tag:v", Empty),
    case("a tag deleted", "tag:v=T", "T 0 tag:v", Nothing),
    case("a tag of a blob", "", "0 blob tag:b", Empty),
    case("a tag of a tree", "", "0 tree tag:t", Empty),
    case("two branches of one new commit", "", "0 N x;0 N y", Thin),
    case("three changes at once", "x=B,y=C", "B C x;C N y;0 S z", Thin),
    atomic("two at once or none", "", "0 N x;0 B y", Thin),
    atomic("created and deleted at once or none", "x=B", "B 0 x;0 C y", Empty),
    case("a note", "", "0 B !refs/notes/c#", Empty),
    case("a name of its own kind", "", "0 B !refs/custom/c#/x", Empty),
    case("the value that it has", "x=B", "B B x", Empty),
    case("all history again", "", "0 N x", Whole),
    case("more than was asked for", "", "0 N x", More),
    case("a deep name", "", "0 B a/b/c/d/e/f", Empty),
    case("a name beyond ASCII", "", "0 B größe/日本", Empty),
    case("a name with odd signs", "", "0 B x@y+z=%25,#'", Empty),
    case("a branch that is called HEAD", "", "0 B HEAD", Empty),
    wishing("with options", "report-status push-options"),
    wishing("in bands", "report-status side-band-64k"),
    wishing("in bands, quietly", "report-status side-band-64k quiet agent=git/2.47"),
    wishing("a report of the second kind", "report-status-v2 report-status"),
    wishing("the object format named", "report-status object-format=sha1"),
    wishing("without a report", "agent=git/1.0"),
    wishing("words that nobody knows", "report-status quite-unknown=3 session-id=7"),
    // Stale ones.
    case("another old value", "x=C", "B N x", Thin),
    case("created where it is", "x=B", "0 C x", Empty),
    case("created where it is, the same", "x=B", "0 B x", Empty),
    case("changed where it is not", "", "B C x", Empty),
    case("deleted where it is not", "", "B 0 x", Nothing),
    case("deleted with another old value", "x=C", "B 0 x", Nothing),
    case("nothing made of nothing", "", "0 0 x", Nothing),
    case("an old value that is nowhere", "x=B", "gone C x", Empty),
    case("one stale, one good", "x=C", "B N x;0 C y", Thin),
    atomic("one stale, one good, at once or none", "x=C", "B N x;0 C y", Thin),
    atomic("one deleted that is not, at once or none", "", "B 0 x;0 C y", Empty),
    // Those that stand in each other's way.
    case("below a branch", "x=B", "0 B x/y", Empty),
    case("above a branch", "x/y=B", "0 B x", Empty),
    case("above and below in one push", "", "0 B x;0 B x/y", Empty),
    case("below one that is deleted", "x=B", "B 0 x;0 B x/y", Empty),
    case("above one that is deleted", "x/y=B", "B 0 x/y;0 B x", Empty),
    case("one twice", "", "0 B x;0 C x", Empty),
    case("one twice, the same", "", "0 B x;0 B x", Empty),
    case("one twice, and another", "", "0 B x;0 C x;0 B y", Empty),
    atomic("below a branch, at once or none", "x=B", "0 B x/y;0 B z", Empty),
    case("the current branch deleted", "", "C 0 !refs/heads/main", Nothing),
    case("the current branch deleted, one created", "", "C 0 !refs/heads/main;0 B x", Empty),
    // Names and values that no push may have.
    case("two dots", "", "0 B a..b", Empty),
    case("a lock's name", "", "0 B x.lock", Empty),
    case("a control sign", "", "0 B x\u{1}y", Empty),
    case("a space", "", "0 B x y", Empty),
    case("no name of a reference", "", "0 B !heads/c#", Empty),
    case("a name that ends in a slash", "", "0 B x/", Empty),
    case("two slashes", "", "0 B x//y", Empty),
    case("a tilde", "", "0 B x~1", Empty),
    case("a caret", "", "0 B x^{}", Empty),
    case("an at sign and a brace", "", "0 B x@{y", Empty),
    case("a dot at the end", "", "0 B x.", Empty),
    case("a part that begins with a dot", "", "0 B .x", Empty),
    case("a word in capitals", "", "0 B !FOO", Empty),
    case("a bad name beside a good one", "", "0 B a..b;0 B y", Empty),
    atomic("a bad name beside a good one, at once or none", "", "0 B a..b;0 B y", Empty),
    case("a branch of a blob", "", "0 blob x", Empty),
    case("a branch of a tree", "", "0 tree x", Empty),
    case("a branch of a tag", "", "0 T x", Empty),
    // Objects that are not good.
    case("a value that is nowhere", "", "0 gone x", Empty),
    case("a value that is nowhere, and a good one", "", "0 gone x;0 B y", Empty),
    case("a pack that is cut off", "", "0 N x", Cut),
    case("a pack with a byte changed", "", "0 N x", Flipped),
    case("no pack", "", "0 N x", Garbage),
    case("nothing where a pack ought to be", "", "0 N x", Nothing),
    case("commits without their trees", "", "0 N x", CommitsOnly),
    case("a commit without its parent", "", "0 P x", ParentMissing),
    case("a commit that is not well formed", "", "0 bad x", CommitsOnly),
    // What is no push.
    raw("an empty body", "", |_| Vec::new()),
    raw("a flush", "", |_| b"0000".to_vec()),
    raw("no flush", "0 B x", |labels| first(labels, "refs/heads/raw")),
    raw("a length that is none", "0 B x", |labels| {
        [first(labels, "refs/heads/raw"), b"zzzz".to_vec()].concat()
    }),
    raw("a length too short", "0 B x", |labels| [first(labels, "refs/heads/raw"), b"0003".to_vec()].concat()),
    raw("a line that is no command", "0 B x", |_| {
        [packet(b"hello there\0report-status"), b"0000".to_vec()].concat()
    }),
    raw("a value that is no number", "0 B x", |labels| {
        let line = format!("{} {} refs/heads/raw\0report-status", labels["0"], "xy".repeat(20));
        [packet(line.as_bytes()), b"0000".to_vec()].concat()
    }),
    raw("a value too short", "0 B x", |labels| {
        let line = format!("{} {} refs/heads/raw\0report-status", labels["0"], &labels["B"][..30]);
        [packet(line.as_bytes()), b"0000".to_vec()].concat()
    }),
    raw("no name", "0 B x", |labels| [first(labels, ""), b"0000".to_vec()].concat()),
];

/// Git lets the good one stand here, though it was asked for all or none; a router does not.
pub const STRICTER: Case =
    atomic("a value that is nowhere, and a good one, at once or none", "", "0 gone x;0 B y", Empty);
