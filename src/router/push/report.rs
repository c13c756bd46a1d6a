//! What a client is told: the report of its push, in a band of its own when it asked for that.
//!
//! An answer is never empty: git waits for ever on one.

use super::commands::Wishes;
use super::pktline::{MOST, encode, flush};
use crate::model::wire::push::RefName;
use bytes::{Bytes, BytesMut};

/// What a packet of a band holds besides its length and the band's number.
const BAND: usize = MOST - 5;

/// The longest sentence that is told of one reference.
const LONGEST: usize = 1_000;

/// How a push ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Why its objects were not taken; none: they were.
    pub unpack: Option<String>,
    /// Each reference, and why it was not changed.
    pub references: Vec<(RefName, Option<String>)>,
}

impl Report {
    /// Nothing was taken, and this is why.
    #[must_use]
    pub fn unpack_failed(names: impl Iterator<Item = RefName>, why: &str) -> Self {
        let references = names.map(|name| (name, Some("unpacker error".to_owned()))).collect();
        Self { unpack: Some(why.to_owned()), references }
    }

    /// Every reference is refused for the same reason.
    #[must_use]
    pub fn refused(names: impl Iterator<Item = RefName>, why: &str) -> Self {
        Self { unpack: None, references: names.map(|name| (name, Some(why.to_owned()))).collect() }
    }

    /// The end of the answer: the report, as the client wants it.
    #[must_use]
    pub fn encode(&self, wishes: Wishes) -> Bytes {
        let mut answer = BytesMut::new();
        if wishes.report {
            let lines = self.lines();
            if wishes.side_band {
                lines.chunks(BAND).for_each(|chunk| band(&mut answer, 1, chunk));
            } else {
                answer.extend_from_slice(&lines);
            }
        }
        if wishes.side_band || answer.is_empty() {
            flush(&mut answer);
        }
        answer.freeze()
    }

    fn lines(&self) -> BytesMut {
        let mut lines = BytesMut::new();
        let unpack = self.unpack.as_deref().map_or("ok".to_owned(), sentence);
        encode(&mut lines, format!("unpack {unpack}\n").as_bytes());
        for (name, refused) in &self.references {
            let mut line = BytesMut::new();
            line.extend_from_slice(if refused.is_some() { b"ng " } else { b"ok " });
            // A name comes from a packet of the client's: it fits in one, if a sentence need not.
            line.extend_from_slice(&name.0[..name.0.len().min(BAND - LONGEST - 8)]);
            if let Some(why) = refused {
                line.extend_from_slice(b" ");
                line.extend_from_slice(sentence(why).as_bytes());
            }
            line.extend_from_slice(b"\n");
            encode(&mut lines, &line);
        }
        flush(&mut lines);
        lines
    }
}

/// One line, and not a long one.
fn sentence(why: &str) -> String {
    why.trim().chars().map(|one| if one.is_control() { ' ' } else { one }).take(LONGEST / 4).collect()
}

fn band(to: &mut BytesMut, number: u8, payload: &[u8]) {
    let mut packet = BytesMut::with_capacity(payload.len() + 1);
    packet.extend_from_slice(&[number]);
    packet.extend_from_slice(payload);
    encode(to, &packet);
}

/// Words for people, which git shows as the remote's; none where the client has no band for them or wants none.
#[must_use]
pub fn words(text: &str, wishes: Wishes) -> Option<Bytes> {
    if !wishes.side_band || wishes.quiet {
        return None;
    }
    let mut packet = BytesMut::new();
    for line in text.lines() {
        let line: String = line.chars().filter(|one| !one.is_control()).take(BAND / 8).collect();
        band(&mut packet, 2, format!("{line}\n").as_bytes());
    }
    (!packet.is_empty()).then(|| packet.freeze())
}

/// A packet that says nothing, so that nobody on the way takes the connection for dead.
#[must_use]
pub fn alive(wishes: Wishes) -> Option<Bytes> {
    wishes.side_band.then(|| Bytes::from_static(b"0005\x01"))
}

#[cfg(test)]
mod tests {
    use super::super::pktline::{Packet, decode};
    use super::*;

    fn wishes(report: bool, side_band: bool) -> Wishes {
        Wishes { report, side_band, ..Wishes::default() }
    }

    fn name(text: &str) -> RefName {
        RefName(text.as_bytes().to_vec())
    }

    fn report() -> Report {
        let references =
            vec![(name("refs/heads/a"), None), (name("refs/heads/b"), Some("stale\ninfo".into()))];
        Report { unpack: None, references }
    }

    /// Each packet's payload; of a flush, `0000`.
    fn payloads(text: &[u8]) -> Vec<Vec<u8>> {
        let mut buffer = BytesMut::from(text);
        let packets: Vec<_> = std::iter::from_fn(|| decode(&mut buffer).unwrap()).collect();
        assert!(buffer.is_empty());
        let payload = |packet| match packet {
            Packet::Data(bytes) => bytes.to_vec(),
            Packet::Flush => b"0000".to_vec(),
        };
        packets.into_iter().map(payload).collect()
    }

    const LINES: [&str; 4] = ["unpack ok\n", "ok refs/heads/a\n", "ng refs/heads/b stale info\n", "0000"];

    #[test]
    fn the_report_says_of_each_reference_how_it_ended() {
        assert_eq!(
            payloads(&report().encode(wishes(true, false))),
            LINES.map(|line| line.as_bytes().to_vec())
        );
        let failed = Report::unpack_failed([name("refs/heads/a")].into_iter(), "index-pack abnormal exit");
        let said = payloads(&failed.encode(wishes(true, false)));
        assert_eq!(said[0], b"unpack index-pack abnormal exit\n");
        assert_eq!(said[1], b"ng refs/heads/a unpacker error\n");
    }

    #[test]
    fn in_a_band_the_same_report_is_wrapped_and_closed_by_a_flush_of_its_own() {
        let said = payloads(&report().encode(wishes(true, true)));
        assert_eq!(said.len(), 2);
        assert_eq!((said[0][0], said[1].as_slice()), (1, &b"0000"[..]));
        assert_eq!(payloads(&said[0][1..]), LINES.map(|line| line.as_bytes().to_vec()));
    }

    #[test]
    fn a_long_report_is_cut_into_packets_that_may_be() {
        let references = (0..5_000).map(|number| (name(&format!("refs/heads/{number:030}")), None)).collect();
        let many = Report { unpack: None, references };
        let said = payloads(&many.encode(wishes(true, true)));
        assert!(said.len() > 3 && said.iter().all(|packet| packet.len() <= MOST - 4));
        let inner: Vec<u8> = said[..said.len() - 1].iter().flat_map(|packet| packet[1..].to_vec()).collect();
        assert_eq!(payloads(&inner).len(), 5_002);
    }

    #[test]
    fn an_answer_is_never_empty() {
        for (report_wanted, side_band) in [(false, false), (false, true), (true, false), (true, true)] {
            assert!(!report().encode(wishes(report_wanted, side_band)).is_empty());
        }
        assert_eq!(report().encode(wishes(false, false)), "0000");
    }

    #[test]
    fn words_go_to_people_who_want_them() {
        assert_eq!(words("one\ntwo", wishes(true, true)).unwrap(), "0009\x02one\n0009\x02two\n");
        assert_eq!(words("one", wishes(true, false)), None);
        assert_eq!(words("one", Wishes { quiet: true, ..wishes(true, true) }), None);
        assert_eq!(alive(wishes(true, false)), None);
    }
}
