//! Tests of the room, on both engines.
