//! Tests of the router by EN 302 636-4-1, in virtual time.
//!
//! `simulated_stations` is a scripted tester: it builds frames octet by octet with the wire codec and checks
//! what one router does. It uses the constellation and the names of the ETSI test purposes (TS 102 871-2).
//! `radio_channel` is a simulated radio channel with many routers, `host_and_router` has virtual interfaces
//! over one router. A test function whose name begins with the id of a test purpose implements that purpose.

mod dcc;
mod host_and_router;
mod radio_channel;
mod simulated_stations;

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
