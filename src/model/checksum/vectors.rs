//! The published test vectors, read from the page that publishes them.

use super::{ChecksumKey, Summer, Target};
use crate::model::fleet::ObjectFormat;

const PAGE: &str = include_str!("../../../docs/reference/checksum.md");

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

fn target(text: &str) -> Target {
    text.strip_prefix("ref:").map_or_else(|| Target::Object(text.into()), |to| Target::Symbolic(to.into()))
}

/// What the page says, and what is so: sum and the form that people see.
fn compare(vector: &str) -> ([String; 2], [String; 2]) {
    let secret = std::array::from_fn(|index| u8::try_from(index).unwrap());
    let key = ChecksumKey { id: 1, secret };
    let (mut summer, mut said) = (None, [String::new(), String::new()]);
    for line in vector.lines() {
        let (first, rest) = line.split_once(' ').unwrap();
        match first {
            "objectformat" => summer = Some(Summer::new(&key, rest.parse::<ObjectFormat>().unwrap())),
            "HEAD" => summer.as_mut().unwrap().add_head(&target(rest)),
            "sum" => said[0] = rest.to_owned(),
            "shown" => said[1] = rest.to_owned(),
            to => summer.as_mut().unwrap().add_reference(rest.as_bytes(), &target(to)),
        }
    }
    let checksum = summer.unwrap().finish();
    (said, [hex(&checksum.sum), checksum.shown()])
}

#[test]
fn the_published_vectors_are_what_the_code_computes() {
    let vectors: Vec<_> =
        PAGE.split("```vector\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert_eq!(vectors.len(), 4);
    let (said, so): (Vec<_>, Vec<_>) = vectors.into_iter().map(compare).unzip();
    assert_eq!(said, so);
}
