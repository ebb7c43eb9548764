//! Mobile routers behind mobile routers, each with a home agent of its own, in virtual time (RFC 3963, RFC
//! 4888; `carnet_mobility::nesting`).

mod hostile;
mod rings;
mod ways;
mod world;
