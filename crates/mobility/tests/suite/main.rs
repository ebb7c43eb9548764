//! Home agent and mobile router against the standards, and against each other, in virtual time.
//!
//! `test_messages` builds Binding Updates by hand and reads answers. `agent` is a home agent without a
//! network; `agent_and_routers` puts a home agent and mobile routers on a simulated network. Every test names
//! its clause.

mod agent;
mod agent_and_routers;
mod direct;
mod mnpp;
mod several_care_of_addresses;
mod test_messages;
mod test_setup;
mod vehicle_on_road;

mod agent_authentication;
mod agent_care_of_test;
mod agent_deregistration;
mod agent_dual_stack;
mod agent_flood;
mod agent_flows;
mod agent_heartbeat;
mod agent_home_link;
mod agent_keys;
mod agent_messages;
mod agent_multiple;
mod agent_multiple_life;
mod agent_ndp_proxy;
mod agent_notices;
mod agent_prefixes;
mod agent_registration;
mod agent_replay;
mod agent_restart;
mod agent_shares;
mod faults;
mod home_network;
mod host_configuration;
mod hostile;
mod ipv4_networks;
mod peers;
mod recordings;
mod road_arrivals;
mod road_capacity;
mod road_flows;
mod road_identifiers;
mod road_ipv4;
mod road_liveness;
mod road_order;
mod road_portals;
mod road_schedules;
mod road_sessions;
mod router_candidates;
mod router_forgeries;
mod router_home;
mod router_home_links;
mod router_host;
mod router_links;
mod router_movement;
mod router_refusals;
mod router_sending;
mod router_signal;
mod router_silence;
