//! Tests of the engine in virtual time.

mod floods;
mod handshakes;
mod network;
mod noise;
mod paths;
mod random;
mod rotation;
