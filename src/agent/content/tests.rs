//! Copies on real repositories, with real git, between real (if small) servers.

mod away;
mod copying;
mod damage;
mod exact;
mod support;
mod tidying;
