//! Tests of the real program in network namespaces: its entries in the kernel, its traffic, and its behaviour
//! after failures.
//!
//! Each test has its own hosts ([`hosts`]), mostly a whole [`testbed`]. The test uses the program as an
//! operator would ([`station`]) while [`traffic`] flows. The tests need root. Without root the tests are
//! skipped with a message, or fail with `CARNET_REQUIRE_ROOT=1`.

mod air;
mod hosts;
mod station;
mod testbed;
mod traffic;

mod agent_lost;
mod boundaries;
mod bursts;
mod care_of_test;
mod cleanup;
mod copies;
mod door;
mod facilities;
mod fast_path;
mod firewall;
#[cfg(feature = "fleet")]
mod fleet;
mod geonet;
mod geonet_ipv6;
mod geonet_multicast;
mod home_link;
mod home_network;
mod host_configuration;
mod identifiers;
mod ipsec;
mod ipv4;
mod ipv4_fast;
mod ipv4_networks;
mod keys;
mod links;
mod mobile_node;
mod mutations;
mod offloads;
mod on_board;
mod on_board_clients;
mod on_board_isolated;
mod on_board_rates;
mod on_board_routers;
mod optional;
mod path_mtu;
mod paths;
mod persistence;
mod portal;
mod portal_access;
mod positions;
mod pseudonyms;
mod radio;
mod refresh;
mod reload;
mod replay;
mod roaming;
mod rotation;
mod sandbox;
mod sessions;
mod sessions_direct;
mod sessions_nested;
mod settings;
mod signals;
mod size;
mod small_server;
mod start;
mod strangers;
mod support;
mod theft;
mod tracked;
mod tunnels;
mod volume;
mod ways_out;
