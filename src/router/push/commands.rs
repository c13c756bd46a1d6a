//! What a client asks of receive-pack: commands, capabilities, push options.
//!
//! Only grammar is judged here, and how much there is; whether a command stands is decided against
//! the references. Shallow pushes and signed ones are refused with a sentence: they were not advertised.

use super::pktline::{Incoming, Packet, PacketError};
use crate::model::checksum::Target;
use crate::model::fleet::ObjectFormat;
use crate::model::wire::push::{Command, RefName};
use bytes::Bytes;
use std::collections::BTreeSet;

/// How much a client may ask for.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Commands in one push.
    pub commands: usize,
    /// Bytes of all commands and options together.
    pub bytes: usize,
}

/// Most options of one push, and the longest of them: what a program could want to know fits in.
const OPTIONS: usize = 64;
const LONGEST_OPTION: usize = 4 * 1024;

/// How the client wants to be told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a word that a client says or not")]
pub struct Wishes {
    /// It reads a report.
    pub report: bool,
    /// The report, and words for people, come in bands.
    pub side_band: bool,
    /// All references or none.
    pub atomic: bool,
    /// It wants no words for people.
    pub quiet: bool,
    /// Options follow the commands.
    pub(super) options: bool,
}

/// A push as the client asks for it. The pack follows in the body, unless nothing but deletions is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// In the client's order.
    pub commands: Vec<Command>,
    /// How it wants to be told.
    pub wishes: Wishes,
    /// Its options.
    pub options: Vec<String>,
    /// No client asks for it: HEAD and symbolic references may be changed.
    pub by_server: bool,
}

impl Asked {
    /// Whether objects come: a client that only deletes sends none.
    #[must_use]
    pub fn brings_objects(&self) -> bool {
        self.commands.iter().any(|command| command.new.is_some())
    }
}

/// What stood in the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A lone flush: the client tries whether it may talk at all before it sends much.
    Probe,
    /// A push.
    Push(Asked),
    /// A push that is not taken, why, and how the client wants to be told.
    Refused(Asked, String),
}

/// Why a request cannot be understood.
#[derive(Debug, thiserror::Error)]
pub enum CommandsError {
    /// It is not made of packets.
    #[error(transparent)]
    Packets(#[from] PacketError),
    /// A line that is no command.
    #[error("{0}")]
    Malformed(&'static str),
    /// More than is taken.
    #[error("{0}")]
    TooMuch(String),
}

/// Reads all that precedes the pack.
///
/// # Errors
/// When it cannot be understood, or is too much.
pub async fn read(body: &mut Incoming, format: ObjectFormat, bounds: Bounds) -> Result<Heard, CommandsError> {
    let mut reading = Reading::new(format, bounds);
    while let Some(line) = line(body).await? {
        reading.line(&line)?;
    }
    if reading.asked.wishes.options {
        while let Some(line) = line(body).await? {
            reading.option(&line)?;
        }
    }
    Ok(reading.heard())
}

/// The next line; none: a flush. A body may end only after one.
async fn line(body: &mut Incoming) -> Result<Option<Bytes>, CommandsError> {
    match body.packet().await? {
        Some(Packet::Data(line)) => Ok(Some(line)),
        Some(Packet::Flush) => Ok(None),
        None => Err(CommandsError::Packets(PacketError::Cut)),
    }
}

struct Reading {
    format: ObjectFormat,
    bounds: Bounds,
    bytes: usize,
    first: bool,
    refused: Option<String>,
    asked: Asked,
}

impl Reading {
    fn new(format: ObjectFormat, bounds: Bounds) -> Self {
        let asked =
            Asked { commands: Vec::new(), wishes: Wishes::default(), options: Vec::new(), by_server: false };
        Self { format, bounds, bytes: 0, first: true, refused: None, asked }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), CommandsError> {
        self.count(line)?;
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if line.starts_with(b"shallow ") {
            self.refuse("pushes from a shallow clone are not taken here: fetch its history first");
            return Ok(());
        }
        let (line, words) = match line.iter().position(|byte| *byte == 0) {
            Some(at) if self.first => (&line[..at], Some(&line[at + 1..])),
            Some(_) => return Err(CommandsError::Malformed("a command holds a NUL")),
            None => (line, None),
        };
        if std::mem::take(&mut self.first) {
            self.capabilities(words.unwrap_or_default());
        }
        if line == b"push-cert" || self.certificate() {
            self.refuse("signed pushes are not taken here");
            return Ok(());
        }
        if self.asked.commands.len() >= self.bounds.commands {
            return Err(CommandsError::TooMuch(format!(
                "a push changes at most {} references",
                self.bounds.commands
            )));
        }
        self.asked.commands.push(command(line, self.format)?);
        Ok(())
    }

    /// What follows the beginning of a certificate is its text.
    fn certificate(&self) -> bool {
        self.refused.as_deref().is_some_and(|why| why.starts_with("signed"))
    }

    fn option(&mut self, line: &[u8]) -> Result<(), CommandsError> {
        self.count(line)?;
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        if self.asked.options.len() >= OPTIONS || line.len() > LONGEST_OPTION {
            return Err(CommandsError::TooMuch(format!(
                "a push has at most {OPTIONS} options of {LONGEST_OPTION} bytes"
            )));
        }
        let text =
            std::str::from_utf8(line).map_err(|_| CommandsError::Malformed("an option is not UTF-8"))?;
        self.asked.options.push(text.to_owned());
        Ok(())
    }

    fn count(&mut self, line: &[u8]) -> Result<(), CommandsError> {
        self.bytes += line.len();
        if self.bytes <= self.bounds.bytes {
            return Ok(());
        }
        Err(CommandsError::TooMuch(format!(
            "the commands of a push have at most {} bytes",
            self.bounds.bytes
        )))
    }

    fn capabilities(&mut self, words: &[u8]) {
        let words = String::from_utf8_lossy(words);
        let words: BTreeSet<&str> = words.split_ascii_whitespace().collect();
        self.asked.wishes = Wishes {
            report: words.contains("report-status") || words.contains("report-status-v2"),
            side_band: words.contains("side-band-64k"),
            atomic: words.contains("atomic"),
            quiet: words.contains("quiet"),
            options: words.contains("push-options"),
        };
        let format = words.iter().find_map(|word| word.strip_prefix("object-format="));
        if let Some(other) = format.filter(|format| *format != self.format.as_str()) {
            self.refuse(&format!("this repository's object format is {}, not {other}", self.format));
        }
    }

    fn refuse(&mut self, why: &str) {
        self.refused.get_or_insert_with(|| why.to_owned());
    }

    fn heard(self) -> Heard {
        match self.refused {
            Some(why) => Heard::Refused(self.asked, why),
            None if self.first => Heard::Probe,
            None => Heard::Push(self.asked),
        }
    }
}

/// `<old> <new> <name>`
fn command(line: &[u8], format: ObjectFormat) -> Result<Command, CommandsError> {
    let bad = CommandsError::Malformed("a line is not `old new name`");
    let length = format.hex_len();
    let spaced = line.get(length) == Some(&b' ') && line.get(2 * length + 1) == Some(&b' ');
    if !spaced || line.len() == 2 * length + 2 {
        return Err(bad);
    }
    let (Some(old), Some(new)) = (object(&line[..length]), object(&line[length + 1..=2 * length])) else {
        return Err(bad);
    };
    Ok(Command { name: RefName(line[2 * length + 2..].to_vec()), old, new })
}

/// An object's name; the inner none: zeros, which stand for nothing.
#[allow(clippy::option_option, reason = "not readable, nothing, and something are three things")]
fn object(digits: &[u8]) -> Option<Option<Target>> {
    let hex = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    if !digits.iter().all(hex) {
        return None;
    }
    if digits.iter().all(|digit| *digit == b'0') {
        return Some(None);
    }
    String::from_utf8(digits.to_vec()).ok().map(|name| Some(Target::Object(name)))
}

#[cfg(test)]
mod tests {
    use super::super::pktline::{encode, flush};
    use super::*;
    use bytes::BytesMut;
    use futures::StreamExt as _;
    use proptest::prelude::*;

    const BOUNDS: Bounds = Bounds { commands: 3, bytes: 2_000 };
    const NONE: &str = "0000000000000000000000000000000000000000";

    fn oid(digit: char) -> String {
        std::iter::repeat_n(digit, 40).collect()
    }

    async fn heard(lists: &[&[String]]) -> Result<Heard, CommandsError> {
        let mut text = BytesMut::new();
        for list in lists {
            list.iter().for_each(|line| encode(&mut text, line.as_bytes()));
            flush(&mut text);
        }
        text.extend_from_slice(b"PACK");
        let stream = futures::stream::iter([Ok(text.freeze())]).boxed();
        read(&mut Incoming::new(stream), ObjectFormat::Sha1, BOUNDS).await
    }

    #[tokio::test]
    async fn commands_capabilities_and_options_are_read() {
        let first = format!(
            "{NONE} {} refs/heads/a\0 report-status-v2 side-band-64k atomic push-options object-format=sha1 agent=git/2",
            oid('a')
        );
        let second = format!("{} {NONE} refs/heads/b\n", oid('b'));
        let options = ["ci.skip".to_owned(), "x=ü\n".to_owned()];
        let Heard::Push(asked) = heard(&[&[first, second], &options]).await.unwrap() else { panic!() };
        let [one, two] = asked.commands.as_slice() else { panic!() };
        assert_eq!((one.name.0.as_slice(), &one.old), (&b"refs/heads/a"[..], &None));
        assert_eq!(one.new, Some(Target::Object(oid('a'))));
        assert_eq!((two.name.0.as_slice(), &two.new), (&b"refs/heads/b"[..], &None));
        let wishes = asked.wishes;
        assert!(wishes.report && wishes.side_band && wishes.atomic && !wishes.quiet);
        assert_eq!(asked.options, ["ci.skip", "x=ü"]);
        assert!(asked.brings_objects());
    }

    #[tokio::test]
    async fn a_lone_flush_is_a_probe() {
        assert_eq!(heard(&[&[]]).await.unwrap(), Heard::Probe);
    }

    #[tokio::test]
    async fn shallow_and_signed_pushes_and_other_formats_are_refused_with_a_sentence() {
        let command = format!("{NONE} {} refs/heads/a\0report-status", oid('a'));
        let shallow = [format!("shallow {}", oid('c')), command];
        let signed = ["push-cert\0report-status".to_owned(), "certificate version 0.1".to_owned()];
        let other = [format!("{NONE} {} refs/heads/a\0report-status object-format=sha256", oid('a'))];
        for (lines, word) in
            [(&shallow[..], "shallow"), (&signed[..], "signed"), (&other[..], "object format")]
        {
            let Heard::Refused(asked, why) = heard(&[lines]).await.unwrap() else { panic!("{lines:?}") };
            assert!(why.contains(word) && asked.wishes.report, "{why}");
        }
    }

    #[tokio::test]
    async fn what_is_no_command_is_an_error() {
        for line in [
            String::new(),
            "x".to_owned(),
            format!("{NONE} {NONE} "),
            format!("{NONE}  {NONE} refs/heads/a"),
            format!("{NONE} {} refs/heads/a", oid('g')),
            format!("{NONE} {} refs/heads/a", oid('A')),
            format!("{} refs/heads/a", oid('a')),
        ] {
            assert!(heard(&[std::slice::from_ref(&line)]).await.is_err(), "{line:?}");
        }
        let nul = format!("{NONE} {} refs/heads/a\0", oid('a'));
        assert!(heard(&[&[nul.clone(), nul]]).await.is_err(), "capabilities stand in the first line");
    }

    #[tokio::test]
    async fn more_than_is_taken_is_refused() {
        let line = |name: &str| format!("{NONE} {} refs/heads/{name}", oid('a'));
        let many: Vec<_> = ["a", "b", "c", "d"].map(line).to_vec();
        assert!(
            matches!(heard(&[&many]).await, Err(CommandsError::TooMuch(why)) if why.contains("3 references"))
        );
        let long = [line(&"x".repeat(2_000))];
        assert!(matches!(heard(&[&long]).await, Err(CommandsError::TooMuch(why)) if why.contains("bytes")));
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in prop::collection::vec(any::<u8>(), 0..120), format in prop::bool::ANY) {
            let format = if format { ObjectFormat::Sha1 } else { ObjectFormat::Sha256 };
            let mut reading = Reading::new(format, BOUNDS);
            let _ = reading.line(&line);
            let _ = reading.option(&line);
        }
    }
}
