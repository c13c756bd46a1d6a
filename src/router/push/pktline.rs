//! Git's packet lines: four hexadecimal digits of length, then so many bytes less four.
//!
//! Decoding is pure and takes nothing before a packet is whole. [`Incoming`] reads packets from a
//! body and gives the rest of it away untouched, for what follows the commands is a pack.

use crate::body::ByteStream;
use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use std::io;

/// The longest packet: 65,516 bytes of payload and its length.
pub const MOST: usize = 65_520;

/// One packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Packet {
    /// A payload, which may be empty.
    Data(Bytes),
    /// `0000`.
    Flush,
}

/// Why bytes are not packets.
#[derive(Debug, thiserror::Error)]
pub enum PacketError {
    /// No length, or one that cannot be.
    #[error("the request is not made of packet lines")]
    Malformed,
    /// The body ended within a packet.
    #[error("the request ends in the middle of a packet line")]
    Cut,
    /// The body broke.
    #[error("the request broke off")]
    Broken(#[from] io::Error),
}

/// Takes the first packet off a buffer; none: it is not whole yet.
///
/// # Errors
/// When what stands there is no packet.
pub fn decode(buffer: &mut BytesMut) -> Result<Option<Packet>, PacketError> {
    let Some(digits) = buffer.get(..4) else { return Ok(None) };
    let length = length(digits).ok_or(PacketError::Malformed)?;
    match length {
        0 => {
            let _ = buffer.split_to(4);
            Ok(Some(Packet::Flush))
        }
        4..=MOST if buffer.len() < length => Ok(None),
        4..=MOST => Ok(Some(Packet::Data(buffer.split_to(length).split_off(4).freeze()))),
        _ => Err(PacketError::Malformed),
    }
}

fn length(digits: &[u8]) -> Option<usize> {
    digits.iter().try_fold(0, |sum, digit| Some(sum * 16 + char::from(*digit).to_digit(16)? as usize))
}

/// Writes one packet; the payload is at most 65,516 bytes long.
pub fn encode(to: &mut BytesMut, payload: &[u8]) {
    to.extend_from_slice(format!("{:04x}", payload.len() + 4).as_bytes());
    to.extend_from_slice(payload);
}

/// Writes a flush.
pub fn flush(to: &mut BytesMut) {
    to.extend_from_slice(b"0000");
}

/// A body that begins with packets.
pub struct Incoming {
    body: ByteStream,
    buffer: BytesMut,
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Incoming {{ {} bytes ahead }}", self.buffer.len())
    }
}

impl Incoming {
    /// Nothing of it was read yet.
    #[must_use]
    pub fn new(body: ByteStream) -> Self {
        // Whoever hears a client out asks again after the end; that is no fault.
        Self { body: body.fuse().boxed(), buffer: BytesMut::new() }
    }

    /// The next packet; none: the body ended between two.
    ///
    /// # Errors
    /// When the body breaks, or is not made of packets here.
    pub async fn packet(&mut self) -> Result<Option<Packet>, PacketError> {
        loop {
            if let Some(packet) = decode(&mut self.buffer)? {
                return Ok(Some(packet));
            }
            match self.body.next().await {
                Some(chunk) => self.buffer.extend_from_slice(&chunk?),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(PacketError::Cut),
            }
        }
    }

    /// What was not read.
    #[must_use]
    pub fn rest(self) -> ByteStream {
        let ahead = self.buffer.freeze();
        let first = (!ahead.is_empty()).then_some(Ok(ahead));
        futures::stream::iter(first).chain(self.body).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(mut buffer: BytesMut) -> Vec<Packet> {
        std::iter::from_fn(|| decode(&mut buffer).unwrap()).collect()
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again_wherever_the_bytes_are_cut(
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..8), cut in 0usize..200,
        ) {
            let mut text = BytesMut::new();
            for payload in &payloads { encode(&mut text, payload); }
            flush(&mut text);
            let cut = cut.min(text.len());
            let (mut buffer, mut seen) = (BytesMut::from(&text[..cut]), Vec::new());
            while let Some(packet) = decode(&mut buffer).unwrap() { seen.push(packet); }
            buffer.extend_from_slice(&text[cut..]);
            seen.extend(all(buffer));
            let expected = payloads.into_iter().map(|one| Packet::Data(one.into())).chain([Packet::Flush]);
            prop_assert!(seen.into_iter().eq(expected));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let mut buffer = BytesMut::from(&bytes[..]);
            while let Ok(Some(_)) = decode(&mut buffer) {}
        }
    }

    #[test]
    fn a_length_that_cannot_be_is_refused() {
        for text in ["0001", "0003", "zzzz", "+004", "fff1", "PACK"] {
            assert!(decode(&mut BytesMut::from(text)).is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn what_follows_the_packets_is_given_away_untouched() {
        let chunks =
            ["00", "09hello0000PA", "CK", "more"].map(|text| Ok(Bytes::from_static(text.as_bytes())));
        let mut body = Incoming::new(futures::stream::iter(chunks).boxed());
        assert_eq!(body.packet().await.unwrap(), Some(Packet::Data(Bytes::from_static(b"hello"))));
        assert_eq!(body.packet().await.unwrap(), Some(Packet::Flush));
        let rest: Vec<_> = body.rest().map(Result::unwrap).collect().await;
        assert_eq!(rest.concat(), b"PACKmore");
    }

    #[tokio::test]
    async fn a_body_that_ends_in_a_packet_was_cut() {
        let body = |text: &'static str| {
            Incoming::new(futures::stream::iter([Ok(Bytes::from_static(text.as_bytes()))]).boxed())
        };
        assert!(matches!(body("0009he").packet().await, Err(PacketError::Cut)));
        assert!(matches!(body("").packet().await, Ok(None)));
    }
}
