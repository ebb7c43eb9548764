//! Candidates of an uplink: an address that can be the care-of address, with the router to which its packets
//! go.
//!
//! An address belongs to the router that advertises its prefix (RFC 6724 5 rule 5.5, RFC 8028 3). Other
//! routers drop its packets (BCP 38). If no router advertises the prefix, the address belongs to the router
//! of a source-specific route, or to a router in its own subnet. Otherwise it belongs to the kernel's first
//! router. If some address of the uplink belongs to a router in this way, an address that only fits another
//! network's router is no candidate.
//!
//! A network manager may install only one default route for each metric, so that the kernel's list lacks the
//! other routers (dhcpcd does so). A default router that advertises the prefix of an address is still a
//! candidate; it comes after the working routers of the list. If the list is empty, the uplink has no
//! candidates, because the operator does not want it used.
//!
//! The order is, best first:
//!
//! 1. The router answers Neighbor Unreachability Detection (RFC 4861 6.3.6).
//! 2. The home agent has answered over the candidate, or the router has not tried it. Among failed
//!    candidates, the one that failed longest ago comes first.
//! 3. The address matches the router well ([`RouterMatch`]). A suspected prefix comes after an advertised
//!    one. A router that the kernel's list lacks comes last.
//! 4. The address is not deprecated (RFC 6724 rule 3, RFC 4862 5.5.4).
//! 5. The address has the label of the home agent's address (rule 6): a global address is preferred to a
//!    unique local one.
//! 6. After a failure: first the candidate in use, then the router that advertised last. Otherwise: the
//!    kernel's order of routes.
//! 7. The address is stable. Rule 7 prefers temporary addresses, but a new care-of address costs a
//!    registration.
//! 8. The candidate is in use. Otherwise the longest common prefix with the home agent's address decides
//!    (rule 8, which other means may override).

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Address, Interface, Ipv4Router, Ipv6Router, NeighbourState, Time};
use ipnet::Ipv6Net;

use super::link_routers::{LinkRouters, RouterMatch};

/// Maximum number of candidates of one IP version on an uplink.
const MAX_CANDIDATES: usize = 4;
/// Maximum number of failed candidates that are stored.
const MAX_FAILED: usize = 8;
/// First and longest time for which a failed candidate comes last. It doubles with each failure.
const LAST_FOR: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(1920));

/// A care-of address, and the router to which its packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<A> {
    /// The care-of address.
    pub address: A,
    /// The next hop; unspecified for a default route without gateway.
    pub router: A,
}

/// Candidates over which the home agent did not answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FailedCandidates(Vec<FailedCandidate>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FailedCandidate {
    address: IpAddr,
    router: Option<IpAddr>,
    at: Time,
    /// Time until which the candidate comes after all others.
    until: Time,
    times: u32,
}

impl FailedCandidates {
    /// Records that the home agent did not answer over a candidate. Returns whether it is the first such
    /// failure since the last answer.
    pub fn add(&mut self, now: Time, address: IpAddr, router: Option<IpAddr>) -> bool {
        let same = |entry: &FailedCandidate| (entry.address, entry.router) == (address, router);
        let before = self.0.iter().position(same).map(|position| self.0.remove(position));
        let times = before.map_or(0, |before| before.times.saturating_add(1));
        let last_for = (LAST_FOR.0 * 2_u32.pow(times.min(5))).min(LAST_FOR.1);
        if self.0.len() >= MAX_FAILED {
            self.0.remove(0);
        }
        self.0.push(FailedCandidate { address, router, at: now, until: now + last_for, times });
        before.is_none()
    }

    pub fn remove(&mut self, address: IpAddr, router: Option<IpAddr>) {
        self.0.retain(|entry| (entry.address, entry.router) != (address, router));
    }

    fn failed_at(&self, address: IpAddr, router: Option<IpAddr>) -> Option<Time> {
        let same = |entry: &&FailedCandidate| (entry.address, entry.router) == (address, router);
        self.0.iter().find(same).filter(|entry| entry.until > entry.at).map(|entry| entry.at)
    }

    pub fn contains(&self, address: IpAddr, router: Option<IpAddr>) -> bool {
        self.failed_at(address, router).is_some()
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|entry| entry.until <= entry.at)
    }

    /// Returns when the router may try the next failed candidate again.
    pub fn deadline(&self) -> Option<Time> {
        self.0.iter().filter(|entry| entry.until > entry.at).map(|entry| entry.until).min()
    }

    /// Allows the router to try failed candidates again whose time is over. Their counts of failures stay.
    /// Returns whether there are any.
    pub fn expire(&mut self, now: Time) -> bool {
        let mut changed = false;
        for entry in self.0.iter_mut().filter(|entry| entry.until > entry.at && entry.until <= now) {
            entry.until = entry.at;
            changed = true;
        }
        changed
    }
}

/// Returns the label of an address in the default policy table (RFC 6724 2.1).
fn label(address: Ipv6Addr) -> u8 {
    let within = |prefix: &[u16], length: u8| {
        let mut segments = [0; 8];
        segments.iter_mut().zip(prefix).for_each(|(segment, given)| *segment = *given);
        Ipv6Net::new(Ipv6Addr::from(segments), length).is_ok_and(|net| net.contains(&address))
    };
    if address.to_ipv4_mapped().is_some() {
        4
    } else if within(&[0x2002], 16) {
        2
    } else if within(&[0x2001, 0], 32) {
        5
    } else if within(&[0xfc00], 7) {
        13
    } else if within(&[0xfec0], 10) {
        11
    } else if within(&[0x3ffe], 16) {
        12
    } else {
        1
    }
}

/// Returns the length of the common prefix of two addresses, at most 64 bits (RFC 6724 2.2).
fn common_prefix_length(one: Ipv6Addr, other: Ipv6Addr) -> u32 {
    (u128::from(one) ^ u128::from(other)).leading_zeros().min(64)
}

/// Returns how well an address matches a default route; `None` if the route does not apply to the address.
fn fit(address: &Address, route: &Ipv6Router, heard: &LinkRouters) -> Option<RouterMatch> {
    if route.source.is_some_and(|source| !source.contains(&address.address)) {
        return None;
    }
    let subnet = Ipv6Net::new(address.address, address.prefix_length).ok();
    let named = route.source.is_some()
        || route.preferred_source == Some(address.address)
        || subnet.is_some_and(|subnet| address.prefix_length < 128 && subnet.contains(&route.gateway));
    match heard.fit(address.address, route.gateway) {
        // The route names this address, so the operator has selected the router. Only a renumbering of the
        // router overrides this.
        RouterMatch::Unknown | RouterMatch::Leftover | RouterMatch::Foreign if named => {
            Some(RouterMatch::Advertised)
        }
        // The address is from DHCPv6 or from the operator, so it remains usable without an advertisement.
        RouterMatch::Leftover if address.permanent || address.prefix_length == 128 => {
            Some(RouterMatch::Unknown)
        }
        fit => Some(fit),
    }
}

/// Returns the default routers that have advertised but are not in the kernel's list. Any router matches a
/// default route without gateway.
fn unlisted(routes: &[Ipv6Router], heard: &LinkRouters) -> Vec<Ipv6Router> {
    if routes.is_empty() || routes.iter().any(|route| route.gateway.is_unspecified()) {
        return Vec::new();
    }
    let listed = |router: &Ipv6Addr| routes.iter().any(|route| route.gateway == *router);
    heard.default_routers().filter(|router| !listed(router)).map(Ipv6Router::from).collect()
}

/// Returns the IPv6 candidates of the uplink's own link, the best first.
pub(super) fn candidates(
    addresses: &[&Address],
    routes: &[Ipv6Router],
    heard: &LinkRouters,
    failed: &FailedCandidates,
    in_use: Option<Ipv6Addr>,
    home_agent: Ipv6Addr,
) -> Vec<Candidate<Ipv6Addr>> {
    let one_has_failed = !failed.is_empty();
    let mut ranked = Vec::new();
    let unlisted = unlisted(routes, heard);
    for address in addresses {
        for (position, route) in routes.iter().chain(&unlisted).enumerate() {
            let Some(fit) = fit(address, route, heard) else { continue };
            let listed = position < routes.len();
            if !listed && fit != RouterMatch::Advertised {
                continue;
            }
            let candidate = Candidate { address: address.address, router: route.gateway };
            let failed_at = failed.failed_at(address.address.into(), Some(route.gateway.into()));
            let is_in_use = in_use == Some(address.address);
            let class = match fit {
                _ if !listed => RouterMatch::Foreign as u8 + 1,
                RouterMatch::Advertised | RouterMatch::Unknown => 0,
                fit => fit as u8,
            };
            let recent = one_has_failed.then(|| (!is_in_use, Reverse(heard.heard_at(route.gateway))));
            let rank = (
                (heard.is_unreachable(route.gateway), failed_at, class, address.deprecated),
                (label(address.address) != label(home_agent), fit, recent, position),
                (address.temporary, !is_in_use),
                (Reverse(common_prefix_length(address.address, home_agent)), address.address),
            );
            let fits = !matches!(fit, RouterMatch::Leftover | RouterMatch::Foreign);
            ranked.push((rank, fits, listed, candidate));
        }
    }
    let fitting = ranked.iter().any(|(_, fits, listed, _)| *fits && *listed);
    ranked.retain(|(_, fits, ..)| !fitting || *fits);
    ranked.sort_by_key(|(rank, ..)| *rank);
    let mut found: Vec<Candidate<Ipv6Addr>> = Vec::new();
    for (.., candidate) in ranked {
        // Two addresses with the same prefix and router work or fail together, so one of them suffices.
        let same = |known: &Candidate<Ipv6Addr>| {
            known.address == candidate.address
                || (known.router == candidate.router
                    && common_prefix_length(known.address, candidate.address) == 64)
        };
        if found.len() < MAX_CANDIDATES && !found.iter().any(same) {
            found.push(candidate);
        }
    }
    found
}

/// Returns how well an IPv4 address matches a default route.
fn ipv4_fit(interface: &Interface, address: Ipv4Addr, route: &Ipv4Router) -> Option<RouterMatch> {
    if route.source.is_some_and(|source| !source.contains(&address)) {
        return None;
    }
    let reaches = |from: Ipv4Addr| {
        let mut subnets = interface.ipv4_addresses.iter().filter(|known| known.addr() == from);
        subnets.any(|subnet| subnet.prefix_len() < 32 && subnet.contains(&route.gateway))
    };
    let others = || interface.ipv4_addresses.iter().any(|other| reaches(other.addr()));
    Some(match route.preferred_source {
        Some(source) if source == address => RouterMatch::Advertised,
        Some(source) if interface.ipv4_addresses.iter().any(|known| known.addr() == source) => {
            RouterMatch::Foreign
        }
        _ if route.source.is_some() || reaches(address) => RouterMatch::Advertised,
        _ if others() => RouterMatch::Foreign,
        _ => RouterMatch::Unknown,
    })
}

/// Returns the IPv4 candidates, the best first. The best one uses the kernel's first route, with the route's
/// preferred source address or with an address in the router's subnet.
pub(super) fn ipv4_candidates(
    interface: &Interface,
    failed: &FailedCandidates,
    in_use: Option<Ipv4Addr>,
) -> Vec<Candidate<Ipv4Addr>> {
    let mut ranked = Vec::new();
    let addresses = interface.ipv4_addresses.iter().map(|known| known.addr());
    for address in addresses.filter(|address| is_usable_ipv4(*address)) {
        for (position, route) in interface.ipv4_routers.iter().enumerate() {
            let Some(fit) = ipv4_fit(interface, address, route) else { continue };
            let unreachable = route.neighbour == NeighbourState::Failed;
            let failed_at = failed.failed_at(address.into(), Some(route.gateway.into()));
            let foreign = fit == RouterMatch::Foreign;
            let rank = (unreachable, failed_at, foreign, position, fit, in_use != Some(address), address);
            ranked.push((rank, foreign, Candidate { address, router: route.gateway }));
        }
    }
    let fitting = ranked.iter().any(|(_, foreign, _)| !foreign);
    ranked.retain(|(_, foreign, _)| !fitting || !foreign);
    ranked.sort_by_key(|(rank, _, _)| *rank);
    let mut found: Vec<Candidate<Ipv4Addr>> = Vec::new();
    for (_, _, candidate) in ranked {
        let same = |known: &Candidate<Ipv4Addr>| known.address == candidate.address;
        if found.len() < MAX_CANDIDATES && !found.iter().any(same) {
            found.push(candidate);
        }
    }
    found
}

/// Returns whether a router may forward packets of an IPv4 address. Private addresses count, because a NAT
/// may translate them.
pub(super) fn is_usable_ipv4(address: Ipv4Addr) -> bool {
    !(address.is_unspecified()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_broadcast())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_those_of_the_default_policy_table() {
        for (address, expected) in [
            ("2001:db8::1", 1),
            ("2002:c000:201::1", 2),
            ("2001::1", 5),
            ("fd00::1", 13),
            ("fec0::1", 11),
            ("3ffe::1", 12),
            ("::ffff:192.0.2.1", 4),
        ] {
            assert_eq!(label(address.parse().expect("an address")), expected, "{address}");
        }
    }

    #[test]
    fn failed_candidate_comes_last_for_longer_each_time() {
        let mut failed = FailedCandidates::default();
        let address: IpAddr = "2001:db8::1".parse().expect("an address");
        let mut now = Time::from_secs(1);
        for seconds in [60, 120, 240, 480, 960, 1920, 1920] {
            failed.add(now, address, None);
            assert!(failed.contains(address, None));
            assert_eq!(failed.deadline(), Some(now + Duration::from_secs(seconds)));
            now += Duration::from_secs(seconds);
            assert!(failed.expire(now) && !failed.contains(address, None) && !failed.expire(now));
        }
        failed.remove(address, None);
        failed.add(now, address, None);
        assert_eq!(failed.deadline(), Some(now + Duration::from_secs(60)), "it had worked again");
    }
}
