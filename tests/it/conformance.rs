//! Every kind of push, good and bad, byte for byte the same to git's own receive-pack and to a router: it must end alike.
//!
//! Alike are the references afterwards, and of each command whether it stands. Where git says why one does not, in
//! words of its own that people search for, the router says the same.

mod cases;
mod wire;

use crate::router::clone_url;
use crate::support::source::git;
use crate::support::up::Up;
use cases::{CASES, Case, Pack, STRICTER};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use wire::{Report, packet};

/// Says nothing of why: a router is free to say more.
const VAGUE: [&str; 2] = ["failed to update ref", "atomic transaction failed"];

/// Where objects are made, and both repositories that take pushes.
struct World {
    source: PathBuf,
    plain: PathBuf,
    url: String,
    known: BTreeMap<&'static str, String>,
}

#[test]
fn every_push_ends_through_a_router_as_at_gits_own_receive_pack() {
    let up = Up::start(&["--fileservers", "3"]);
    let world = World::new(&up);
    let mut wrong = Vec::new();
    for (number, case) in CASES.iter().enumerate() {
        let prepared = Prepared::new(&world, number, case);
        let (there, here) = (world.plain(&prepared), world.routed(&prepared));
        println!("{number:2} {}: git {there:?}, router {here:?}", case.name);
        if let Err(why) = alike(&prepared, &there, &here) {
            wrong.push(format!("{}: {why}\n  git    {there:?}\n  router {here:?}", case.name));
        }
        let (plain, routed) = (world.references(&world.plain), world.references(Path::new(&world.url)));
        assert_eq!(plain, routed, "{}: references differ; git {there:?}, router {here:?}", case.name);
    }
    let prepared = Prepared::new(&world, CASES.len(), &STRICTER);
    let here = world.routed(&prepared);
    let none_stands = prepared.names.iter().all(|name| here.of(name).is_some());
    assert!(none_stands, "{}: {here:?}", STRICTER.name);
    assert!(CASES.len() >= 60);
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
}

/// Both must say the same of each command; a push that is not understood says the same of all.
fn alike(prepared: &Prepared, there: &Report, here: &Report) -> Result<(), String> {
    if !prepared.case.wishes.contains("report-status") {
        return Ok(());
    }
    for name in &prepared.names {
        let (git, ours) = (there.of(name), here.of(name));
        match (git, ours) {
            (None, None) => {}
            (Some(git), Some("")) => {
                return Err(format!("{name}: git says {git:?}, the router not why"));
            }
            // What is wrong with a pack is git's own to say, and it says so before.
            (Some(git), Some(ours)) if git == ours || VAGUE.contains(&git) || there.unpack_failed() => {}
            (git, ours) => return Err(format!("{name}: git {git:?}, router {ours:?}")),
        }
    }
    if there.unpack_failed() && !here.unpack_failed() && here.unpack.is_some() {
        return Err("git could not unpack it, the router says that it could".to_owned());
    }
    Ok(())
}

/// One push, as bytes.
struct Prepared {
    case: &'static Case,
    names: Vec<String>,
    body: Vec<u8>,
}

impl Prepared {
    /// Makes what the case needs to be there, in both repositories, and the objects that it brings.
    fn new(world: &World, number: usize, case: &'static Case) -> Self {
        let mut labels = world.known.clone();
        for (label, parent) in [("N", "C"), ("P", "N"), ("S", "A")] {
            let parent = labels[parent].clone();
            labels.insert(label, world.commit(&parent, &format!("{label} {number}")));
        }
        let bad = format!("tree {}\nauthor nobody\ncommitter nobody\n\n{number}\n", labels["tree"]);
        labels.insert("bad", world.hash(&["-t", "commit", "--literally"], bad.as_bytes()));
        for (name, label) in pairs(case.seeds, '=') {
            let command = format!("{} {} {}", labels["0"], labels[label], full(number, name));
            world.seed(&command);
        }
        let mut commands = Vec::new();
        let (mut names, mut wanted) = (Vec::new(), Vec::new());
        for command in case.commands.split(';').filter(|command| !command.is_empty()) {
            let mut words = command.splitn(3, ' ');
            let (old, new) = (words.next().expect("an old value"), words.next().expect("a new value"));
            let name = full(number, words.next().expect("a name"));
            if ["N", "P", "S", "bad"].contains(&new) {
                wanted.push(labels[new].clone());
            }
            commands.push(format!("{} {} {name}", labels[old], labels[new]));
            names.push(name);
        }
        let body = match case.pack {
            Pack::Raw(body) => body(&labels),
            _ => [wire::commands(&commands, case.wishes), world.pack(case.pack, &wanted, &labels)].concat(),
        };
        Self { case, names, body }
    }
}

fn pairs(text: &'static str, between: char) -> impl Iterator<Item = (&'static str, &'static str)> {
    text.split(',').filter_map(move |pair| pair.split_once(between))
}

/// The name in a place of this case's own; `!` before names that are as they stand.
fn full(number: usize, name: &str) -> String {
    match (name.strip_prefix('!'), name.strip_prefix("tag:")) {
        (Some(name), _) => name.replace('#', &number.to_string()),
        (None, Some(tag)) => format!("refs/tags/c{number}/{tag}"),
        (None, None) => format!("refs/heads/c{number}/{name}"),
    }
}

impl World {
    fn new(up: &Up) -> Self {
        let source = up.sources().join("thing");
        std::fs::create_dir_all(&source).expect("a directory");
        git(&source, &["init", "-q", "-b", "main"]);
        let mut world = Self {
            source,
            plain: up.directory.path().join("plain.git"),
            url: String::new(),
            known: BTreeMap::new(),
        };
        world.known.insert("0", "0".repeat(40));
        world.known.insert("gone", "de".repeat(20));
        let mut parent = String::new();
        for label in ["A", "B", "C"] {
            parent = world.commit(&parent, label);
            world.known.insert(label, parent.clone());
        }
        let (a, b, c) = (world.known["A"].clone(), world.known["B"].clone(), world.known["C"].clone());
        for (name, value) in [("refs/heads/main", &c), ("refs/heads/other", &world.commit(&a, "D"))] {
            git(&world.source, &["update-ref", name, value]);
        }
        git(&world.source, &["tag", "-a", "-m", "a tag", "v0", &b]);
        for (label, what) in [("T", "v0"), ("tree", "main^{tree}"), ("blob", "main:file")] {
            let found = git(&world.source, &["rev-parse", what]);
            world.known.insert(label, found);
        }
        up.done(&["repo", "import", world.source.to_str().expect("text")]);
        world.url = clone_url(up, "thing");
        let (from, to) = (world.source.to_str().expect("text"), world.plain.to_str().expect("text"));
        git(&world.source, &["clone", "-q", "--bare", from, to]);
        let settings =
            ["receive.fsckObjects=true", "receive.advertisePushOptions=true", "receive.autogc=false"];
        for setting in settings {
            let (key, value) = setting.split_once('=').expect("a setting");
            git(&world.plain, &["config", key, value]);
        }
        world
    }

    /// A commit with a file of its own.
    fn commit(&self, parent: &str, text: &str) -> String {
        let blob = self.hash(&["-t", "blob"], text.as_bytes());
        let tree = self.fed(&["mktree"], format!("100644 blob {blob}\tfile\n").as_bytes());
        let mut arguments = vec!["commit-tree", &tree, "-m", text];
        if !parent.is_empty() {
            arguments.extend(["-p", parent]);
        }
        git(&self.source, &arguments)
    }

    fn hash(&self, how: &[&str], text: &[u8]) -> String {
        self.fed(&[&["hash-object", "-w", "--stdin"], how].concat(), text)
    }

    fn fed(&self, arguments: &[&str], input: &[u8]) -> String {
        let output = fed(&self.source, arguments, input);
        assert!(output.status.success(), "git {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("text").trim().to_owned()
    }

    /// A reference that both have before the push that is tried. No object comes with it.
    fn seed(&self, command: &str) {
        let nothing = fed(&self.source, &["pack-objects", "--stdout", "-q"], b"").stdout;
        let body = [wire::commands(&[command.to_owned()], "report-status"), nothing].concat();
        let name = command.rsplit(' ').next().expect("a name");
        let (there, here) = (self.receive(&body), wire::post(&self.url, &body));
        for (who, answer) in [("git", there), ("router", here)] {
            let report = Report::read(&answer, false);
            assert!(report.of(name).is_none() && report.unpack.is_some(), "{who}: {command}: {report:?}");
        }
    }

    fn pack(&self, pack: Pack, wanted: &[String], labels: &BTreeMap<&'static str, String>) -> Vec<u8> {
        let made = |how: &[&str], input: &str| {
            let output =
                fed(&self.source, &[&["pack-objects", "--stdout", "-q"], how].concat(), input.as_bytes());
            assert!(output.status.success(), "{output:?}");
            output.stdout
        };
        let all = wanted.iter().fold(String::new(), |all, one| all + one + "\n");
        let thin = || made(&["--revs", "--thin"], &format!("{all}^{}\n", labels["C"]));
        match pack {
            Pack::Thin => thin(),
            Pack::Whole => made(&["--revs"], &all),
            Pack::Empty => made(&[], ""),
            Pack::Nothing | Pack::Raw(_) => Vec::new(),
            Pack::Cut => {
                let mut bytes = thin();
                bytes.truncate(bytes.len() - 25);
                bytes
            }
            Pack::Flipped => {
                let mut bytes = thin();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 0x55;
                bytes
            }
            Pack::Garbage => b"this is no pack".to_vec(),
            Pack::CommitsOnly => made(&[], &all),
            Pack::ParentMissing => made(&["--revs"], &format!("{all}^{}\n", labels["N"])),
            Pack::More => made(&["--revs"], &format!("{all}{}\n", labels["S"])),
        }
    }

    /// As git's own receive-pack takes it.
    fn receive(&self, body: &[u8]) -> Vec<u8> {
        let plain = self.plain.to_str().expect("text");
        fed(&self.plain, &["receive-pack", "--stateless-rpc", plain], body).stdout
    }

    fn plain(&self, prepared: &Prepared) -> Report {
        Report::read(&self.receive(&prepared.body), prepared.case.wishes.contains("side-band"))
    }

    fn routed(&self, prepared: &Prepared) -> Report {
        Report::read(&wire::post(&self.url, &prepared.body), prepared.case.wishes.contains("side-band"))
    }

    fn references(&self, from: &Path) -> String {
        git(&self.source, &["ls-remote", from.to_str().expect("text")])
    }
}

fn fed(place: &Path, arguments: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new("git")
        .args(["-c", "user.name=Someone", "-c", "user.email=someone@example.org"])
        .args(arguments)
        .current_dir(place)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git runs");
    // One that reads no more says why by its answer.
    let _ = child.stdin.take().expect("a pipe").write_all(input);
    child.wait_with_output().expect("git ends")
}

/// The first line of a push with its capabilities, for cases that are no lists of commands.
pub fn first(labels: &BTreeMap<&'static str, String>, name: &str) -> Vec<u8> {
    packet(format!("{} {} {name}\0report-status", labels["0"], labels["B"]).as_bytes())
}
