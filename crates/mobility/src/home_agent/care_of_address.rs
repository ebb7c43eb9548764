//! Which addresses may be care-of addresses (status 174, RFC 6275 6.1.8 and 9.5.1).
//!
//! Mobile routers may stand behind each other: one whose care-of address lies in another's prefix is reached
//! through the other's tunnel. Only a ring of them, in which every packet would be wrapped for ever, is
//! refused; the Binding Update that would close it is the one that meets the refusal.

use std::net::Ipv6Addr;

use super::{BindingCache, HomeAgentConfig};
use crate::is_unicast_routable;

/// Whether `home_address` may be bound to `care_of_address`.
pub(super) fn is_acceptable(
    config: &HomeAgentConfig,
    cache: &BindingCache,
    home_address: Ipv6Addr,
    care_of_address: Ipv6Addr,
) -> bool {
    is_unicast_routable(care_of_address)
        && care_of_address != config.address
        && !cache.owners().is_home_address(care_of_address)
        && !closes_ring(config, cache, home_address, care_of_address)
}

/// Follows the tunnels from `care_of_address` outwards: does the way lead back to the node itself?
fn closes_ring(
    config: &HomeAgentConfig,
    cache: &BindingCache,
    home_address: Ipv6Addr,
    care_of_address: Ipv6Addr,
) -> bool {
    let own = |address| cache.owners().of_prefixes_around(address).any(|owner| owner == home_address);
    let mut hop = care_of_address;
    for _ in 0..=config.nodes.len() {
        if own(hop) {
            return true;
        }
        match cache.leading_to(hop, home_address) {
            Some(binding) => hop = binding.care_of_address,
            None => return false,
        }
    }
    // More steps than there are nodes: a ring of others, which nothing should have let come about.
    true
}
