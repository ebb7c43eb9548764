//! Nested mobile routers, each with its own home agent, in virtual time (RFC 3963, RFC 4888;
//! `carnet_mobility::nesting`).

mod hostile;
mod rings;
mod ways;
mod world;
