//! Parsers and emitters for IPv6, ICMPv6, Neighbor Discovery, MLD, Mobility Header, GeoNetworking and BTP.
//!
//! This crate knows the formats and makes no protocol decisions. Parsers read octets from unauthenticated
//! sources: they never panic and never allocate. A parser rejects input with an [`Error`] that names the
//! expected and the found value. Emitters write only the form that the standard defines, with every reserved
//! bit zero.
//!
//! | module | standard |
//! |---|---|
//! | [`ipv6`], [`extension`], [`fragment`], [`checksum`] | RFC 8200, RFC 2473 5.1, RFC 6275 6.3 and 6.4 |
//! | [`icmpv6`] | RFC 4443 |
//! | [`ipv4`] | RFC 791, RFC 792, RFC 1191 |
//! | [`mld`] | RFC 3810 5, RFC 2710 3 |
//! | [`nd`] | RFC 4861, RFC 6275 7, RFC 3963 7.3, RFC 4191 |
//! | [`discovery`] | RFC 6275 6.5 and 6.6, RFC 3963 7.1 and 7.2 |
//! | [`prefix_discovery`] | RFC 6275 6.7 and 6.8 |
//! | [`mobility`] | RFC 6275 6.1 and 6.2, RFC 3963 4; the module lists the RFCs of its options |
//! | [`geonet`] | ETSI EN 302 636-4-1 V1.4.1 |
//! | [`btp`] | ETSI EN 302 636-5-1, TS 103 248 |
//! | [`address`] | none: text of link-layer addresses and octets |
//!
//! Left out: IPsec headers (they end the chain of extension headers), jumbograms, source routing other than
//! the type 2 routing header, reassembly, Redirect.
//!
//! In all modules, a *packet* starts with the IPv6 header; a *message* (ICMPv6) and a *mobility header* start
//! with their own first octet. Offsets are in octets.
#![forbid(unsafe_code)]

pub mod address;
pub mod btp;
pub mod checksum;
pub mod discovery;
pub mod error;
pub mod extension;
pub mod fragment;
pub mod geonet;
pub mod icmpv6;
pub mod ipv4;
pub mod ipv6;
pub mod mld;
pub mod mobility;
pub mod nd;
pub mod prefix_discovery;

mod octets;

pub use error::Error;
