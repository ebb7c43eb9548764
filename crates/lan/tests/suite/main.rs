//! The services for hosts in virtual time.

mod client;
mod dhcpv4;
mod dhcpv4_hostile;
mod dns;
mod mutated;
