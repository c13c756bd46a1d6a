//! The program that takes Git clients' requests and picks fileservers.

pub mod push;
