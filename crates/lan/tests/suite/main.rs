//! Tests of the services for hosts on board, in virtual time.

mod client;
mod dhcpv4;
mod dhcpv4_hostile;
mod dns;
mod mutated;
