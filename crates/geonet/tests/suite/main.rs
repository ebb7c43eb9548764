//! Tests of the router by EN 302 636-4-1, in virtual time.
//!
//! `craft` is a scripted tester: it builds frames octet by octet with the wire codec and checks what one
//! router does. It uses the constellation and the names of the ETSI test purposes (TS 102 871-2). `air` is a
//! simulated radio channel with many routers, `host` has virtual interfaces over one router. A test function
//! whose name begins with the id of a test purpose implements that purpose.

mod air;
mod craft;
mod dcc;
mod host;

mod acceleration;
mod address;
mod ahead;
mod areas;
mod beaconing;
mod broadcast;
mod buffering;
mod contention;
mod data_rate;
mod feedback;
mod geo_destinations;
mod geocast;
mod headers;
mod hostile;
mod ipv6_details;
mod ipv6_hostile;
mod ipv6_purposes;
mod location_service;
mod many;
mod multicast;
mod recovery;
mod unicast;
