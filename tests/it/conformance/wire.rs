//! Packets of a push and of its report, and the request that carries one.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};

/// A packet.
pub fn packet(data: &[u8]) -> Vec<u8> {
    [format!("{:04x}", data.len() + 4).as_bytes(), data].concat()
}

/// Commands with what the client wishes, and their end; push options where they are wished for.
pub fn commands(commands: &[String], wishes: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for (index, command) in commands.iter().enumerate() {
        let line = if index == 0 { format!("{command}\0 {wishes}") } else { command.clone() };
        body.extend(packet(line.as_bytes()));
    }
    body.extend(b"0000");
    if wishes.contains("push-options") {
        body.extend(packet(b"reason=a test"));
        body.extend(b"0000");
    }
    body
}

/// What came back. A push that was not understood has no report.
#[derive(Debug, Default)]
pub struct Report {
    /// What is said of the pack.
    pub unpack: Option<String>,
    /// Of each reference: nothing, where its command stands; else why it does not.
    references: BTreeMap<String, Option<String>>,
}

impl Report {
    /// Reads it, out of its band where it is in one.
    pub fn read(answer: &[u8], side_band: bool) -> Self {
        let mut report = Self::default();
        let inner: Vec<u8> = if side_band {
            let bands = packets(answer).into_iter().filter(|packet| packet.first() == Some(&1));
            bands.flat_map(|packet| packet[1..].to_vec()).collect()
        } else {
            answer.to_vec()
        };
        for line in packets(&inner) {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            let mut words = line.splitn(3, ' ');
            match (words.next(), words.next(), words.next()) {
                (Some("unpack"), Some(first), rest) => {
                    report.unpack = Some([first, rest.unwrap_or_default()].join(" ").trim().to_owned());
                }
                (Some("ok"), Some(name), _) => drop(report.references.insert(name.to_owned(), None)),
                (Some("ng"), Some(name), why) => {
                    let why = why.unwrap_or_default().to_owned();
                    report.references.insert(name.to_owned(), Some(why));
                }
                _ => {}
            }
        }
        report
    }

    /// Why a command does not stand; none: it does.
    pub fn of(&self, name: &str) -> Option<&str> {
        match self.references.get(name) {
            Some(why) => why.as_deref(),
            // A name with a space in it is cut where it is read.
            None => match self.references.iter().find(|(short, _)| name.starts_with(&format!("{short} "))) {
                Some((_, why)) => why.as_deref(),
                None => Some("no report"),
            },
        }
    }

    /// Whether the pack was no good, or nothing was understood.
    pub fn unpack_failed(&self) -> bool {
        self.unpack.as_deref() != Some("ok")
    }
}

/// The packets of a text, up to where it is none any more.
fn packets(mut text: &[u8]) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    while text.len() >= 4 {
        let length = std::str::from_utf8(&text[..4]).ok().and_then(|hex| usize::from_str_radix(hex, 16).ok());
        match length {
            Some(0..=3) => text = &text[4..],
            Some(length) if length <= text.len() => {
                all.push(text[4..length].to_vec());
                text = &text[length..];
            }
            _ => break,
        }
    }
    all
}

/// Sends a push, and returns the body of the answer.
pub fn post(url: &str, body: &[u8]) -> Vec<u8> {
    let rest = url.strip_prefix("http://").expect("a plain URL");
    let (host, path) = rest.split_once('/').expect("a path");
    let mut stream = std::net::TcpStream::connect(host).expect("the router listens");
    let head = format!(
        "POST /{path}/git-receive-pack HTTP/1.0\r\nHost: {host}\r\n\
         Content-Type: application/x-git-receive-pack-request\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    stream.write_all(body).expect("sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("headers");
    let status = String::from_utf8_lossy(&answer[..end]).lines().next().unwrap_or_default().to_owned();
    assert!(!status.contains(" 5"), "{status}: {}", String::from_utf8_lossy(&answer[end..]));
    answer.split_off(end + 4)
}
