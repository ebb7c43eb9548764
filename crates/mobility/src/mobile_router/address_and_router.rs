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
//! A candidate is *proven* if the home agent has acknowledged a registration over it since the link came up.
//! Any host on the link can send Router Advertisements, so an advertisement alone takes no proven candidate
//! out of use:
//!
//! * A proven candidate whose prefix only another router advertises stays a candidate.
//! * An address stays with its proven router while this router works and the kernel's list has it.
//! * If a proven candidate fails, it is tried again after each other candidate that the router tries, and
//!   after each other router of its address. So many forged prefixes and routers delay the return to it by
//!   one attempt only.
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
//!
//! Proven and other candidates then alternate.

use std::cmp::Reverse;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Address, Interface, Ipv4Router, Ipv6Router, NeighbourState, Time};
use ipnet::Ipv6Net;

use super::link_routers::{LinkRouters, RouterMatch};

/// Maximum number of candidates of one IP version on an uplink.
const MAX_CARE_OF_ADDRESS_CANDIDATES: usize = 4;
/// Maximum number of failed candidates that the router stores. It stores at most as many proven ones.
const MAX_FAILED_CANDIDATES: usize = 8;
const MAX_PROVEN_CANDIDATES: usize = 4;
/// Maximum number of default routes of an interface, of which the best come first. An attacker can make the
/// kernel install many.
const MAX_CONSIDERED_ROUTES: usize = 16;
/// First and longest time for which a failed candidate comes last. It doubles with each failure.
const FAILED_CANDIDATE_PAUSE: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(1920));

/// A care-of address, and the router to which its packets go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate<A> {
    /// The care-of address.
    pub address: A,
    /// The next hop; unspecified for a default route without gateway.
    pub router: A,
}

/// Candidates of an uplink.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidates<A> {
    /// Candidates with different addresses, the best first.
    pub best_candidates: Vec<Candidate<A>>,
    /// Candidates with an address from `best_candidates` and another router that answers.
    pub spare_candidates: Vec<Candidate<A>>,
}

impl<A> Default for Candidates<A> {
    fn default() -> Self {
        Candidates { best_candidates: Vec::new(), spare_candidates: Vec::new() }
    }
}

/// Candidates over which the home agent has acknowledged a registration since the link came up; the latest
/// is at the end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ProvenCandidates(Vec<(IpAddr, IpAddr)>);

impl ProvenCandidates {
    /// Records that the home agent has acknowledged a registration over a candidate.
    pub fn add(&mut self, address: IpAddr, router: IpAddr) {
        self.0.retain(|known| *known != (address, router));
        if self.0.len() >= MAX_PROVEN_CANDIDATES {
            self.0.remove(0);
        }
        self.0.push((address, router));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn contains(&self, address: IpAddr, router: IpAddr) -> bool {
        self.0.contains(&(address, router))
    }

    /// Returns whether a candidate with this router is proven.
    pub fn has_router(&self, router: IpAddr) -> bool {
        self.0.iter().any(|(_, known)| *known == router)
    }

    /// Returns the IPv6 addresses of the proven candidates.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv6Addr> {
        self.0.iter().filter_map(|(address, _)| match address {
            IpAddr::V6(address) => Some(*address),
            IpAddr::V4(_) => None,
        })
    }

    /// Returns the router of the last proven candidate with this address; `None` if no such candidate is
    /// proven.
    fn router_of(&self, address: IpAddr) -> Option<IpAddr> {
        self.0.iter().rev().find(|(known, _)| *known == address).map(|(_, router)| *router)
    }
}

/// Candidates over which the home agent did not answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FailedCandidates(Vec<FailedCandidate>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FailedCandidate {
    address: IpAddr,
    router: Option<IpAddr>,
    failed_at: Time,
    /// Time until which the candidate comes after all other candidates.
    avoided_until: Time,
    failure_count: u32,
}

impl FailedCandidates {
    /// Records that the home agent did not answer over a candidate. Returns whether it is the first such
    /// failure since the last answer.
    pub fn add(&mut self, now: Time, address: IpAddr, router: Option<IpAddr>) -> bool {
        let same = |entry: &FailedCandidate| (entry.address, entry.router) == (address, router);
        let before = self.0.iter().position(same).map(|position| self.0.remove(position));
        let times = before.map_or(0, |before| before.failure_count.saturating_add(1));
        let last_for = (FAILED_CANDIDATE_PAUSE.0 * 2_u32.pow(times.min(5))).min(FAILED_CANDIDATE_PAUSE.1);
        if self.0.len() >= MAX_FAILED_CANDIDATES {
            self.0.remove(0);
        }
        self.0.push(FailedCandidate {
            address,
            router,
            failed_at: now,
            avoided_until: now + last_for,
            failure_count: times,
        });
        before.is_none()
    }

    pub fn remove(&mut self, address: IpAddr, router: Option<IpAddr>) {
        self.0.retain(|entry| (entry.address, entry.router) != (address, router));
    }

    fn failed_at(&self, address: IpAddr, router: Option<IpAddr>) -> Option<Time> {
        let same = |entry: &&FailedCandidate| (entry.address, entry.router) == (address, router);
        self.0
            .iter()
            .find(same)
            .filter(|entry| entry.avoided_until > entry.failed_at)
            .map(|entry| entry.failed_at)
    }

    pub fn contains(&self, address: IpAddr, router: Option<IpAddr>) -> bool {
        self.failed_at(address, router).is_some()
    }

    /// Returns whether the last failure of an address was over a router other than `router`.
    fn is_latest_of_other_router(&self, address: IpAddr, router: IpAddr) -> bool {
        let mut all = self.0.iter().rev().filter(|entry| entry.avoided_until > entry.failed_at);
        all.find(|entry| entry.address == address).is_some_and(|entry| entry.router != Some(router))
    }

    /// Returns whether a candidate with this router has failed.
    pub fn has_router(&self, router: IpAddr) -> bool {
        self.0.iter().any(|entry| entry.router == Some(router) && entry.avoided_until > entry.failed_at)
    }

    fn is_empty(&self) -> bool {
        self.0.iter().all(|entry| entry.avoided_until <= entry.failed_at)
    }

    /// Returns the earliest time at which the router may try a failed candidate again; `None` if no candidate
    /// has to wait.
    pub fn next_expiry(&self) -> Option<Time> {
        self.0
            .iter()
            .filter(|entry| entry.avoided_until > entry.failed_at)
            .map(|entry| entry.avoided_until)
            .min()
    }

    /// Allows the router to try a failed candidate again when its `avoided_until` has passed. The count of
    /// its failures stays. Returns whether there is such a candidate.
    pub fn expire_failures(&mut self, now: Time) -> bool {
        let mut changed = false;
        for entry in self
            .0
            .iter_mut()
            .filter(|entry| entry.avoided_until > entry.failed_at && entry.avoided_until <= now)
        {
            entry.avoided_until = entry.failed_at;
            changed = true;
        }
        changed
    }
}

/// Returns the label of an address in the default policy table (RFC 6724 2.1).
fn policy_label(address: Ipv6Addr) -> u8 {
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
fn compare_address_with_route(
    address: &Address,
    route: &Ipv6Router,
    heard: &LinkRouters,
    proven: &ProvenCandidates,
) -> Option<RouterMatch> {
    if route.source.is_some_and(|source| !source.contains(&address.address)) {
        return None;
    }
    let subnet = Ipv6Net::new(address.address, address.prefix_length).ok();
    let named = route.source.is_some()
        || route.preferred_source == Some(address.address)
        || subnet.is_some_and(|subnet| address.prefix_length < 128 && subnet.contains(&route.gateway));
    match heard.match_of_router(address.address, route.gateway) {
        // The route names this address, so the operator has selected the router. Only a renumbering of the
        // router overrides this.
        RouterMatch::Unknown | RouterMatch::Leftover | RouterMatch::Foreign if named => {
            Some(RouterMatch::Advertised)
        }
        // The address is from DHCPv6 or from the operator, so it remains usable without an advertisement.
        RouterMatch::Leftover if address.permanent || address.prefix_length == 128 => {
            Some(RouterMatch::Unknown)
        }
        // The operator has configured address and default route. Any host can advertise the prefix.
        RouterMatch::Foreign if address.permanent => Some(match heard.advertised_at(route.gateway) {
            None => RouterMatch::Advertised,
            Some(_) => RouterMatch::Unknown,
        }),
        RouterMatch::Leftover | RouterMatch::Foreign
            if proven.contains(address.address.into(), route.gateway.into()) =>
        {
            Some(RouterMatch::Unknown)
        }
        fit => Some(fit),
    }
}

/// Returns the default routers that have advertised but are not in the kernel's list. Returns an empty list
/// if the kernel has no default route, or one without gateway, which stands for any router.
fn unadvertised_routers(routes: &[Ipv6Router], heard: &LinkRouters) -> Vec<Ipv6Router> {
    if routes.is_empty() || routes.iter().any(|route| route.gateway.is_unspecified()) {
        return Vec::new();
    }
    let listed = |router: &Ipv6Addr| routes.iter().any(|route| route.gateway == *router);
    heard.default_routers().filter(|router| !listed(router)).map(Ipv6Router::from).collect()
}

/// Record of the answers and failures of an uplink's candidates.
pub(super) struct CandidateHistory<'a> {
    pub failed_candidates: &'a FailedCandidates,
    pub proven_candidates: &'a ProvenCandidates,
}

/// A candidate with its rank; the lowest rank is the best.
struct RankedCandidate<A, R> {
    rank: R,
    candidate: Candidate<A>,
    /// Whether the address fits no other router better. `is_router_listed`: whether the kernel's list of
    /// default routers has this router.
    fits_no_other_router_better: bool,
    is_router_listed: bool,
    /// Whether the router answers. `has_worked` is true if the router answers and the candidate has not
    /// failed.
    is_router_answering: bool,
    has_worked: bool,
}

impl<A: Copy + Ord + Into<IpAddr>, R: Ord + Copy> RankedCandidate<A, R> {
    fn is_proven(&self, proven: &ProvenCandidates) -> bool {
        proven.contains(self.candidate.address.into(), self.candidate.router.into())
    }

    /// Returns whether packets of the address go to this router although another router has a better rank.
    /// This is so for the last proven router of an address while it works. If it has failed and a later
    /// attempt over another router has failed too, it is tried again next.
    fn is_preferred(&self, experience: &CandidateHistory<'_>) -> bool {
        let (address, router) = (self.candidate.address.into(), self.candidate.router.into());
        let is_next = || {
            self.is_router_answering
                && experience.failed_candidates.is_latest_of_other_router(address, router)
        };
        experience.proven_candidates.router_of(address) == Some(router)
            && self.fits_no_other_router_better
            && ((self.has_worked && self.is_router_listed) || is_next())
    }
}

/// Selects the candidates by their ranks. Two candidates for which `is_same` is true work or fail together,
/// so one of them suffices.
fn select_candidates<A: Copy + Ord + Into<IpAddr>, R: Ord + Copy>(
    mut ranked: Vec<RankedCandidate<A, R>>,
    experience: &CandidateHistory<'_>,
    is_same: impl Fn(&Candidate<A>, &Candidate<A>) -> bool,
) -> Candidates<A> {
    let fitting = ranked.iter().any(|it| it.fits_no_other_router_better && it.is_router_listed);
    ranked.retain(|it| !fitting || it.fits_no_other_router_better);
    ranked.sort_by_key(|it| it.rank);
    let mut chosen: Vec<&RankedCandidate<A, R>> = Vec::new();
    for it in &ranked {
        if chosen.iter().any(|other| {
            other.candidate.address == it.candidate.address || is_same(&other.candidate, &it.candidate)
        }) {
            continue;
        }
        let kept = ranked
            .iter()
            .find(|other| other.candidate.address == it.candidate.address && other.is_preferred(experience));
        chosen.push(kept.unwrap_or(it));
    }
    let best = order_proven_and_others_alternately(&chosen, experience.proven_candidates);
    let is_spare = |it: &&RankedCandidate<A, R>| {
        it.is_router_answering
            && best.iter().any(|b| b.address == it.candidate.address && b.router != it.candidate.router)
    };
    let spare =
        ranked.iter().filter(is_spare).take(MAX_CARE_OF_ADDRESS_CANDIDATES).map(|it| it.candidate).collect();
    Candidates { best_candidates: best, spare_candidates: spare }
}

/// Returns at most [`MAX_CARE_OF_ADDRESS_CANDIDATES`] candidates. Proven and other ones alternate; the first
/// stays first.
fn order_proven_and_others_alternately<A: Copy + Ord + Into<IpAddr>, R: Ord + Copy>(
    chosen: &[&RankedCandidate<A, R>],
    proven: &ProvenCandidates,
) -> Vec<Candidate<A>> {
    let first_is_proven = chosen.first().is_some_and(|first| first.is_proven(proven));
    let group = |is_proven: bool| chosen.iter().filter(move |it| it.is_proven(proven) == is_proven);
    let (mut one, mut other) = (group(first_is_proven), group(!first_is_proven));
    let mut found = Vec::new();
    while found.len() < MAX_CARE_OF_ADDRESS_CANDIDATES {
        let next: Vec<_> = one.next().into_iter().chain(other.next()).map(|it| it.candidate).collect();
        if next.is_empty() {
            break;
        }
        found.extend(next);
    }
    found.truncate(MAX_CARE_OF_ADDRESS_CANDIDATES);
    found
}

/// Returns the IPv6 candidates of the uplink's own link, the best first.
pub(super) fn ipv6_candidates(
    addresses: &[&Address],
    routes: &[Ipv6Router],
    heard: &LinkRouters,
    experience: &CandidateHistory<'_>,
    in_use: Option<Ipv6Addr>,
    home_agent: Ipv6Addr,
) -> Candidates<Ipv6Addr> {
    let CandidateHistory { failed_candidates: failed, proven_candidates: proven } = experience;
    let one_has_failed = !failed.is_empty();
    let mut ranked = Vec::new();
    let unlisted = unadvertised_routers(routes, heard);
    for address in addresses {
        let listed = routes.iter().map(|route| (route, true)).enumerate();
        let listed = listed.filter(|(at, (route, _))| {
            *at < MAX_CONSIDERED_ROUTES || proven.has_router(route.gateway.into())
        });
        let others = unlisted.iter().map(|route| (route, false)).enumerate();
        for (position, (route, is_router_listed)) in listed.chain(others) {
            let Some(fit) = compare_address_with_route(address, route, heard, proven) else { continue };
            if !is_router_listed && fit != RouterMatch::Advertised {
                continue;
            }
            let candidate = Candidate { address: address.address, router: route.gateway };
            let failed_at = failed.failed_at(address.address.into(), Some(route.gateway.into()));
            let is_in_use = in_use == Some(address.address);
            let class = match fit {
                _ if !is_router_listed => RouterMatch::Foreign as u8 + 1,
                RouterMatch::Advertised | RouterMatch::Unknown => 0,
                fit => fit as u8,
            };
            let recent = one_has_failed.then(|| (!is_in_use, Reverse(heard.advertised_at(route.gateway))));
            let is_unreachable = heard.is_unreachable(route.gateway);
            let rank = (
                (is_unreachable, failed_at, class, address.deprecated),
                (policy_label(address.address) != policy_label(home_agent), fit, recent, position),
                (address.temporary, !is_in_use),
                (Reverse(common_prefix_length(address.address, home_agent)), address.address),
            );
            let fits = !matches!(fit, RouterMatch::Leftover | RouterMatch::Foreign);
            let answers = !is_unreachable;
            let works = answers && failed_at.is_none();
            ranked.push(RankedCandidate {
                rank,
                candidate,
                fits_no_other_router_better: fits,
                is_router_listed,
                has_worked: works,
                is_router_answering: answers,
            });
        }
    }
    select_candidates(ranked, experience, |one, other| {
        one.router == other.router && common_prefix_length(one.address, other.address) == 64
    })
}

/// Returns how well an IPv4 address matches a default route; `None` if the route does not apply to the
/// address.
fn ipv4_match_of_route(interface: &Interface, address: Ipv4Addr, route: &Ipv4Router) -> Option<RouterMatch> {
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
    experience: &CandidateHistory<'_>,
    in_use: Option<Ipv4Addr>,
) -> Candidates<Ipv4Addr> {
    let failed = experience.failed_candidates;
    let mut ranked = Vec::new();
    let addresses = interface.ipv4_addresses.iter().map(|known| known.addr());
    for address in addresses.filter(|address| is_usable_ipv4(*address)) {
        for (position, route) in interface.ipv4_routers.iter().enumerate() {
            let Some(fit) = ipv4_match_of_route(interface, address, route) else { continue };
            let unreachable = route.neighbour == NeighbourState::Failed;
            let failed_at = failed.failed_at(address.into(), Some(route.gateway.into()));
            let foreign = fit == RouterMatch::Foreign;
            let rank = (unreachable, failed_at, foreign, position, fit, in_use != Some(address), address);
            let candidate = Candidate { address, router: route.gateway };
            let answers = !unreachable;
            let works = answers && failed_at.is_none();
            ranked.push(RankedCandidate {
                rank,
                candidate,
                fits_no_other_router_better: !foreign,
                is_router_listed: true,
                has_worked: works,
                is_router_answering: answers,
            });
        }
    }
    select_candidates(ranked, experience, |_, _| false)
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
    fn address_labels_equal_the_default_policy_table() {
        for (address, expected) in [
            ("2001:db8::1", 1),
            ("2002:c000:201::1", 2),
            ("2001::1", 5),
            ("fd00::1", 13),
            ("fec0::1", 11),
            ("3ffe::1", 12),
            ("::ffff:192.0.2.1", 4),
        ] {
            assert_eq!(policy_label(address.parse().expect("an address")), expected, "{address}");
        }
    }

    #[test]
    fn failed_candidate_ranks_last_for_doubling_times() {
        let mut failed = FailedCandidates::default();
        let address: IpAddr = "2001:db8::1".parse().expect("an address");
        let mut now = Time::from_secs(1);
        for seconds in [60, 120, 240, 480, 960, 1920, 1920] {
            failed.add(now, address, None);
            assert!(failed.contains(address, None));
            assert_eq!(failed.next_expiry(), Some(now + Duration::from_secs(seconds)));
            now += Duration::from_secs(seconds);
            assert!(
                failed.expire_failures(now)
                    && !failed.contains(address, None)
                    && !failed.expire_failures(now)
            );
        }
        failed.remove(address, None);
        failed.add(now, address, None);
        assert_eq!(failed.next_expiry(), Some(now + Duration::from_secs(60)), "it had worked again");
    }
}
