//! Prefixes that the mobile router delegates to routers on board (RFC 8415 6.3), and the routers that have
//! them. The module ensures that no two routers get the same prefix.
//!
//! The delegator delegates blocks of the mobile network prefixes that no interface of the mobile router uses.
//! A prefix that the config names for an interface is only for routers behind that interface. One delegator
//! serves all interfaces, so two interfaces never delegate the same prefix. The delegator recognises a router
//! by its interface, its DUID and the IAID of its request. A router that renews gets its prefix again. A new
//! router gets the block that follows the last delegated block. So the hosts of a former router have time to
//! stop using their addresses.
//!
//! The number of delegations is limited ([`MAX_DELEGATIONS`]). A hostile host can use up the free prefixes
//! with forged DUIDs. Routers that already have a prefix keep it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time, WallTime};
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

/// Maximum number of delegated prefixes of all interfaces together.
pub const MAX_DELEGATIONS: usize = 1024;
/// Minimum time between two events about a lack of free prefixes.
const EXHAUSTED_EVENT_INTERVAL: Duration = Duration::from_secs(60);

/// Settings of one interface whose routers get prefixes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegatingInterface {
    /// Name of the interface.
    pub name: String,
    /// Length of the delegated prefixes in bits.
    pub prefix_length: u8,
    /// Time after which a delegation ends unless the router renews it.
    pub delegation_lifetime: Duration,
    /// Networks that belong to other interfaces. Routers behind this interface get no part of them.
    pub networks_of_other_interfaces: Vec<Ipv6Net>,
}

/// Config of the delegator.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DelegatorConfig {
    /// Mobile network prefixes.
    pub prefixes: Vec<Ipv6Net>,
    /// Networks and addresses in use. No delegated prefix overlaps them.
    pub networks_in_use: Vec<Ipv6Net>,
    /// The interfaces whose routers get prefixes.
    pub interfaces: Vec<DelegatingInterface>,
}

/// Identity of a router that has a prefix. A router with several prefixes has one identity for each of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DelegationClient {
    /// Name of the interface at which the router is.
    pub interface: String,
    /// DUID of the router (RFC 8415 11), at most 130 octets.
    pub duid: Vec<u8>,
    /// Number that the router has given its request (IAID, RFC 8415 12).
    pub iaid: u32,
}

/// A delegated prefix, as status reports show it and as the kernel's route to it needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrefixDelegation {
    /// The delegated prefix.
    pub prefix: Ipv6Net,
    /// Router that has the prefix.
    pub client: DelegationClient,
    /// Link-local address of the router, to which packets for the prefix go.
    pub router_address: Ipv6Addr,
    /// Time at which the delegation ends unless the router renews it.
    pub delegation_ends_at: Time,
}

/// Stored record of a delegated prefix. As with a DHCP lease of IPv4, a wrong date makes the delegation
/// longer, never shorter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredDelegation {
    /// The delegated prefix.
    pub prefix: Ipv6Net,
    /// Interface of the router.
    pub interface: String,
    /// DUID of the router.
    #[serde(with = "carnet_base::hex")]
    pub duid: Vec<u8>,
    /// IAID of the router's request.
    pub iaid: u32,
    /// Link-local address of the router.
    pub router: Ipv6Addr,
    /// Date at which the router got or renewed the prefix.
    pub since: WallTime,
    /// Duration of the delegation in seconds.
    pub seconds: u32,
}

impl StoredDelegation {
    /// Returns the delegation; `None` if it has ended at this date.
    fn to_delegation(&self, now: Time, wall: WallTime) -> Option<PrefixDelegation> {
        let whole = Duration::from_secs(self.seconds.into());
        let passed = if wall < self.since { Duration::ZERO } else { wall.absolute_difference(self.since) };
        let remaining = whole.saturating_sub(passed);
        let (interface, duid) = (self.interface.clone(), self.duid.clone());
        (!remaining.is_zero()).then(|| PrefixDelegation {
            prefix: self.prefix,
            client: DelegationClient { interface, duid, iaid: self.iaid },
            router_address: self.router,
            delegation_ends_at: now + remaining,
        })
    }
}

/// An output of the delegator. The caller carries out the outputs in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DelegationOutput {
    /// The caller stores the record of a prefix; `None` removes the record.
    Store(Ipv6Net, Option<StoredDelegation>),
    /// The caller reports this event.
    Event(DelegationEvent),
}

/// An event for the operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DelegationEvent {
    /// A router on board has got a prefix.
    Delegated(PrefixDelegation),
    /// A router on board has given its prefix back, or has not renewed it.
    Ended {
        /// The delegation.
        delegation: PrefixDelegation,
        /// Whether the router has given the prefix back; otherwise it has not renewed the prefix in time.
        was_released: bool,
    },
    /// A router gets no prefix, because none is free.
    PrefixesExhausted {
        /// Interface of the router.
        interface: String,
        /// Length of the prefixes.
        length: u8,
    },
}

/// The delegated prefixes of all interfaces.
#[derive(Debug)]
pub struct PrefixDelegator {
    config: DelegatorConfig,
    /// Delegations, by the first address of their prefix. The prefixes do not overlap.
    delegations: BTreeMap<Ipv6Addr, PrefixDelegation>,
    prefix_by_client: BTreeMap<DelegationClient, Ipv6Addr>,
    prefixes_by_deadline: BTreeSet<(Time, Ipv6Addr)>,
    /// First address behind the prefix that was delegated last, at which the search for a free prefix begins.
    next_search_start: u128,
    exhausted_event_limiter: RateLimiter,
    outputs: VecDeque<DelegationOutput>,
    /// Whether the routes to delegated prefixes have changed since the last
    /// [`PrefixDelegator::take_routes_changed`].
    routes_changed: bool,
}

impl PrefixDelegator {
    /// Creates a delegator with these stored delegations. It removes those that the config does not allow.
    pub fn new(
        config: DelegatorConfig,
        stored: &[StoredDelegation],
        now: Time,
        wall: WallTime,
    ) -> PrefixDelegator {
        let mut delegator = PrefixDelegator {
            config,
            delegations: BTreeMap::new(),
            prefix_by_client: BTreeMap::new(),
            prefixes_by_deadline: BTreeSet::new(),
            next_search_start: 0,
            exhausted_event_limiter: RateLimiter::new(1, EXHAUSTED_EVENT_INTERVAL),
            outputs: VecDeque::new(),
            routes_changed: false,
        };
        for record in stored {
            let delegation = record
                .to_delegation(now, wall)
                .filter(|delegation| delegator.may_keep_delegation(delegation));
            match delegation {
                Some(delegation) => {
                    delegator.insert_delegation(delegation);
                    delegator.routes_changed = true;
                }
                None => delegator.outputs.push_back(DelegationOutput::Store(record.prefix, None)),
            }
        }
        delegator
    }

    /// Applies a changed config. Routers keep their prefixes as far as the config allows them.
    pub fn reconfigure(&mut self, config: DelegatorConfig) {
        if self.config == config {
            return;
        }
        self.config = config;
        self.prefix_by_client.clear();
        self.prefixes_by_deadline.clear();
        for delegation in std::mem::take(&mut self.delegations).into_values() {
            if self.may_keep_delegation(&delegation) {
                self.insert_delegation(delegation);
            } else {
                self.outputs.push_back(DelegationOutput::Store(delegation.prefix, None));
                self.end_delegation(delegation, false);
            }
        }
    }

    /// Returns the settings of an interface; `None` if its routers get no prefixes.
    pub fn delegating_interface(&self, name: &str) -> Option<&DelegatingInterface> {
        self.config.interfaces.iter().find(|interface| interface.name == name)
    }

    /// Returns the delegations, ordered by prefix.
    pub fn delegations(&self) -> impl Iterator<Item = &PrefixDelegation> {
        self.delegations.values()
    }

    /// Returns whether the delegations have changed since the last call.
    pub fn take_routes_changed(&mut self) -> bool {
        std::mem::take(&mut self.routes_changed)
    }

    /// Returns whether [`Self::poll_output`] or [`Self::take_routes_changed`] has something for the caller.
    pub fn has_changes(&self) -> bool {
        self.routes_changed || !self.outputs.is_empty()
    }

    /// Returns the next output.
    pub fn poll_output(&mut self) -> Option<DelegationOutput> {
        self.outputs.pop_front()
    }

    /// Returns the time at which the caller must call [`Self::handle_timeout`]; `None` if no call is due.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.prefixes_by_deadline.first().map(|(due, _)| *due)
    }

    /// Ends the delegations whose time has come.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((_, first)) = self.prefixes_by_deadline.first().filter(|(due, _)| *due <= now).copied()
        {
            let Some(delegation) = self.remove_delegation(first) else { return };
            self.outputs.push_back(DelegationOutput::Store(delegation.prefix, None));
            self.end_delegation(delegation, false);
        }
    }

    /// Returns the prefix that a router would get, with its lifetime, and changes nothing. `wanted` are the
    /// prefixes that the router asks for. Returns `None` if no prefix is free.
    pub(super) fn choose_prefix(
        &self,
        client: &DelegationClient,
        wanted: &[Ipv6Net],
    ) -> Option<(Ipv6Net, Duration)> {
        let interface = self.delegating_interface(&client.interface)?;
        if let Some(delegation) = self.delegation_of_client(client) {
            return Some((delegation.prefix, interface.delegation_lifetime));
        }
        if self.delegations.len() >= MAX_DELEGATIONS {
            return None;
        }
        let is_usable = |prefix: &&Ipv6Net| {
            prefix.prefix_len() == interface.prefix_length
                && self.is_prefix_free(**prefix, &interface.networks_of_other_interfaces)
        };
        let wanted = wanted.iter().find(is_usable).copied();
        let prefix = wanted
            .or_else(|| self.first_free_prefix(interface, self.next_search_start))
            .or_else(|| self.first_free_prefix(interface, 0))?;
        Some((prefix, interface.delegation_lifetime))
    }

    /// Delegates a prefix to a router, or renews its delegation. `router` is its link-local address.
    pub(super) fn delegate_prefix(
        &mut self,
        (now, wall): (Time, WallTime),
        client: &DelegationClient,
        router: Ipv6Addr,
        wanted: &[Ipv6Net],
    ) -> Option<(Ipv6Net, Duration)> {
        let Some((prefix, lifetime)) = self.choose_prefix(client, wanted) else {
            self.report_exhausted(now, &client.interface);
            return None;
        };
        let before = self.remove_delegation(prefix.network());
        let delegation = PrefixDelegation {
            prefix,
            client: client.clone(),
            router_address: router,
            delegation_ends_at: now + lifetime,
        };
        self.routes_changed |= before.as_ref().is_none_or(|before| before.router_address != router);
        self.outputs.push_back(DelegationOutput::Store(
            prefix,
            Some(StoredDelegation {
                prefix,
                interface: client.interface.clone(),
                duid: client.duid.clone(),
                iaid: client.iaid,
                router,
                since: wall,
                seconds: u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX),
            }),
        ));
        if before.is_none() {
            self.next_search_start = u128::from(prefix.broadcast()).wrapping_add(1);
            let event = DelegationEvent::Delegated(delegation.clone());
            self.outputs.push_back(DelegationOutput::Event(event));
        }
        self.insert_delegation(delegation);
        Some((prefix, lifetime))
    }

    /// Ends the delegation of a router that gives these prefixes back. Returns whether it had one of them.
    pub(super) fn release_prefixes(&mut self, client: &DelegationClient, prefixes: &[Ipv6Net]) -> bool {
        let prefix = self.delegation_of_client(client).map(|delegation| delegation.prefix);
        let Some(prefix) = prefix.filter(|prefix| prefixes.contains(prefix)) else { return false };
        let Some(delegation) = self.remove_delegation(prefix.network()) else { return false };
        self.outputs.push_back(DelegationOutput::Store(prefix, None));
        self.end_delegation(delegation, true);
        true
    }

    /// Reports that no prefix is free, at most once a minute.
    pub(super) fn report_exhausted(&mut self, now: Time, interface: &str) {
        let Some(length) = self.delegating_interface(interface).map(|interface| interface.prefix_length)
        else {
            return;
        };
        if self.exhausted_event_limiter.try_take_token(now) {
            let interface = interface.to_owned();
            let event = DelegationEvent::PrefixesExhausted { interface, length };
            self.outputs.push_back(DelegationOutput::Event(event));
        }
    }

    fn delegation_of_client(&self, client: &DelegationClient) -> Option<&PrefixDelegation> {
        self.delegations.get(self.prefix_by_client.get(client)?)
    }

    fn end_delegation(&mut self, delegation: PrefixDelegation, was_released: bool) {
        self.routes_changed = true;
        let event = DelegationEvent::Ended { delegation, was_released };
        self.outputs.push_back(DelegationOutput::Event(event));
    }

    fn insert_delegation(&mut self, delegation: PrefixDelegation) {
        let first = delegation.prefix.network();
        self.prefixes_by_deadline.insert((delegation.delegation_ends_at, first));
        self.prefix_by_client.insert(delegation.client.clone(), first);
        self.delegations.insert(first, delegation);
    }

    fn remove_delegation(&mut self, first: Ipv6Addr) -> Option<PrefixDelegation> {
        let delegation = self.delegations.remove(&first)?;
        self.prefixes_by_deadline.remove(&(delegation.delegation_ends_at, first));
        self.prefix_by_client.remove(&delegation.client);
        Some(delegation)
    }

    /// Returns whether a router may keep a prefix with the present config.
    fn may_keep_delegation(&self, delegation: &PrefixDelegation) -> bool {
        self.delegating_interface(&delegation.client.interface).is_some_and(|interface| {
            self.is_prefix_free(delegation.prefix, &interface.networks_of_other_interfaces)
        }) && delegation.prefix.trunc() == delegation.prefix
            && !self.prefix_by_client.contains_key(&delegation.client)
            && self.delegations.len() < MAX_DELEGATIONS
    }

    /// Returns whether a prefix belongs to the mobile network, and overlaps no network that is in use or
    /// delegated. `foreign` are the networks of other interfaces, which count as in use.
    fn is_prefix_free(&self, prefix: Ipv6Net, foreign: &[Ipv6Net]) -> bool {
        self.config.prefixes.iter().any(|whole| whole.contains(&prefix))
            && self.overlapping_network(prefix, foreign).is_none()
    }

    /// Returns a network that overlaps a prefix and is in use or delegated; `None` if none overlaps.
    /// `foreign` are the networks of other interfaces, which count as in use.
    fn overlapping_network(&self, prefix: Ipv6Net, foreign: &[Ipv6Net]) -> Option<Ipv6Net> {
        let overlaps = |other: &Ipv6Net| other.contains(&prefix) || prefix.contains(other);
        let used = self.config.networks_in_use.iter().chain(foreign).copied().find(overlaps);
        // Delegations do not overlap each other. So only the last delegation that begins before the end of
        // `prefix` can overlap it.
        let before = self.delegations.range(..=prefix.broadcast()).next_back();
        used.or_else(|| before.map(|(_, delegation)| delegation.prefix).filter(overlaps))
    }

    /// Returns the first free prefix for an interface that begins at or behind an address; `None` if no
    /// prefix is free. Each step of the search skips a network in use or a delegation, so the number of steps
    /// is limited.
    fn first_free_prefix(&self, interface: &DelegatingInterface, from: u128) -> Option<Ipv6Net> {
        let length = interface.prefix_length;
        let size = 1u128.checked_shl(u32::from(128 - length))?;
        for whole in self.config.prefixes.iter().filter(|whole| whole.prefix_len() <= length) {
            let last = u128::from(whole.broadcast());
            let mut first = u128::from(whole.network()).max(from.checked_next_multiple_of(size)?);
            while first <= last {
                let prefix = Ipv6Net::new(first.into(), length).ok()?;
                let Some(blocker) = self.overlapping_network(prefix, &interface.networks_of_other_interfaces)
                else {
                    return Some(prefix);
                };
                let behind =
                    u128::from(blocker.broadcast()).max(u128::from(prefix.broadcast())).checked_add(1);
                let Some(next) = behind.and_then(|next| next.checked_next_multiple_of(size)) else { break };
                first = next;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: Duration = Duration::from_secs(600);

    fn ipv6_net(text: &str) -> Ipv6Net {
        text.parse().expect("a prefix")
    }

    fn router_address() -> Ipv6Addr {
        "fe80::9".parse().expect("an address")
    }

    fn wall_time(seconds: u64) -> WallTime {
        WallTime::from_unix_nanos(1_700_000_000_000_000_000) + Duration::from_secs(seconds)
    }

    fn delegator_config(prefix: &str, used: &[&str], length: u8) -> DelegatorConfig {
        let interface = |name: &str| DelegatingInterface {
            name: name.into(),
            prefix_length: length,
            delegation_lifetime: LIFETIME,
            networks_of_other_interfaces: Vec::new(),
        };
        DelegatorConfig {
            prefixes: vec![ipv6_net(prefix)],
            networks_in_use: used.iter().map(|used| ipv6_net(used)).collect(),
            interfaces: vec![interface("i0"), interface("i1")],
        }
    }

    fn delegation_client(interface: &str, number: u8) -> DelegationClient {
        DelegationClient { interface: interface.into(), duid: vec![0, 3, 0, 1, number], iaid: 1 }
    }

    fn delegate_to(delegator: &mut PrefixDelegator, now: u64, client: &DelegationClient) -> Option<String> {
        let times = (Time::from_secs(now), wall_time(now));
        delegator.delegate_prefix(times, client, router_address(), &[]).map(|(prefix, _)| prefix.to_string())
    }

    fn stored_delegations(delegator: &mut PrefixDelegator) -> Vec<StoredDelegation> {
        let mut disk = BTreeMap::new();
        while let Some(output) = delegator.poll_output() {
            if let DelegationOutput::Store(prefix, record) = output {
                disk.remove(&prefix);
                disk.extend(record.map(|record| (prefix, record)));
            }
        }
        disk.into_values().collect()
    }

    #[test]
    fn delegator_gives_each_router_a_free_prefix_until_none_is_left() {
        let config = delegator_config("2001:db8:a::/61", &["2001:db8:a::/64", "2001:db8:a:4::/63"], 64);
        let mut delegator = PrefixDelegator::new(config, &[], Time::ZERO, wall_time(0));
        let given: Vec<_> =
            (0..6).map(|number| delegate_to(&mut delegator, 0, &delegation_client("i0", number))).collect();
        let some = |text: &str| Some(format!("2001:db8:a:{text}::/64"));
        assert_eq!(given, [some("1"), some("2"), some("3"), some("6"), some("7"), None]);
        // All blocks are given out, and both interfaces share the blocks. So a new router behind the other
        // interface gets none. A router that has a prefix gets this prefix again.
        assert_eq!(delegate_to(&mut delegator, 0, &delegation_client("i1", 0)), None);
        assert_eq!(delegate_to(&mut delegator, 0, &delegation_client("i0", 2)), some("3"));
        let is_exhausted =
            |output| matches!(output, DelegationOutput::Event(DelegationEvent::PrefixesExhausted { .. }));
        let events =
            std::iter::from_fn(|| delegator.poll_output()).filter(|output| is_exhausted(output.clone()));
        assert_eq!(events.count(), 1, "one event a minute");
    }

    #[test]
    fn delegated_prefix_of_another_length_overlaps_no_used_network() {
        let config = delegator_config("2001:db8:a::/56", &["2001:db8:a::/64", "2001:db8:a:1f::/64"], 60);
        let mut delegator = PrefixDelegator::new(config, &[], Time::ZERO, wall_time(0));
        assert_eq!(
            delegate_to(&mut delegator, 0, &delegation_client("i0", 0)).as_deref(),
            Some("2001:db8:a:20::/60")
        );
        let all = (1..40)
            .filter_map(|number| delegate_to(&mut delegator, 0, &delegation_client("i0", number)))
            .count();
        assert_eq!(all, 13);
    }

    #[test]
    fn delegator_gives_no_prefix_of_another_interface() {
        let mut config = delegator_config("2001:db8:a::/61", &["2001:db8:a::/64", "2001:db8:a:4::/64"], 64);
        config.interfaces[0].networks_of_other_interfaces.push(ipv6_net("2001:db8:a:4::/62"));
        config.interfaces[1].networks_of_other_interfaces.push(ipv6_net("2001:db8:a::/62"));
        let mut delegator = PrefixDelegator::new(config.clone(), &[], Time::ZERO, wall_time(0));
        let mut all = |name: &str| -> Vec<String> {
            (0..4)
                .filter_map(|number| delegate_to(&mut delegator, 0, &delegation_client(name, number)))
                .collect()
        };
        let of = |numbers: [u8; 3]| numbers.map(|number| format!("2001:db8:a:{number}::/64"));
        assert_eq!((all("i0"), all("i1")), (of([1, 2, 3]).to_vec(), of([5, 6, 7]).to_vec()));
        // A router gets no network of another interface, even if it asks for that network.
        let mut delegator = PrefixDelegator::new(config.clone(), &[], Time::ZERO, wall_time(0));
        let wanted = [ipv6_net("2001:db8:a:7::/64")];
        let times = (Time::ZERO, wall_time(0));
        let given = delegator.delegate_prefix(times, &delegation_client("i0", 1), router_address(), &wanted);
        assert_eq!(given.map(|(prefix, _)| prefix), Some(ipv6_net("2001:db8:a:1::/64")));
        // A changed config ends the delegations that it does not allow.
        config.interfaces[0].networks_of_other_interfaces.push(ipv6_net("2001:db8:a::/62"));
        delegator.reconfigure(config);
        assert_eq!(delegator.delegations().count(), 0);
    }

    #[test]
    fn prefix_at_the_end_of_the_address_space_ends_the_search() {
        let mut delegator = PrefixDelegator::new(
            delegator_config("ff00::/8", &["fff0::/12"], 12),
            &[],
            Time::ZERO,
            wall_time(0),
        );
        let all: Vec<_> = (0..20)
            .map_while(|number| delegate_to(&mut delegator, 0, &delegation_client("i0", number)))
            .collect();
        assert_eq!((all.len(), all.last().map(String::as_str)), (15, Some("ffe0::/12")));
    }

    #[test]
    fn delegator_limits_number_of_delegations() {
        let mut delegator =
            PrefixDelegator::new(delegator_config("2001:db8::/32", &[], 64), &[], Time::ZERO, wall_time(0));
        let numbered = |number: u32| DelegationClient { iaid: number, ..delegation_client("i0", 1) };
        for number in 0..1024 {
            assert!(delegate_to(&mut delegator, 0, &numbered(number)).is_some(), "{number}");
        }
        assert_eq!(delegate_to(&mut delegator, 0, &numbered(1024)), None);
    }

    #[test]
    fn restored_prefix_delegation_ends_at_its_date() {
        let config = delegator_config("2001:db8:a::/62", &["2001:db8:a::/64"], 64);
        let mut delegator = PrefixDelegator::new(config.clone(), &[], Time::ZERO, wall_time(0));
        let first = delegate_to(&mut delegator, 0, &delegation_client("i0", 1));
        let disk = stored_delegations(&mut delegator);
        assert_eq!(disk.len(), 1);
        // After the restart, another router cannot get the prefix, and the first router keeps it.
        let mut again = PrefixDelegator::new(config.clone(), &disk, Time::ZERO, wall_time(300));
        assert!(again.take_routes_changed());
        assert_ne!(delegate_to(&mut again, 0, &delegation_client("i0", 2)), first);
        assert_eq!(delegate_to(&mut again, 0, &delegation_client("i0", 1)), first);
        // If the delegation has ended, the delegator removes the stored record.
        let mut late = PrefixDelegator::new(config.clone(), &disk, Time::ZERO, wall_time(600));
        assert_eq!(late.delegations().count(), 0);
        assert_eq!(late.poll_output(), Some(DelegationOutput::Store(ipv6_net("2001:db8:a:1::/64"), None)));
        // A wrong date does not end the delegation. A config that uses the network does.
        let early = PrefixDelegator::new(config.clone(), &disk, Time::ZERO, WallTime::from_unix_nanos(0));
        assert_eq!(early.delegations().count(), 1);
        let mut used = config;
        used.networks_in_use.push(ipv6_net("2001:db8:a:1::/64"));
        again.reconfigure(used);
        let left: Vec<_> = again.delegations().map(|delegation| delegation.prefix).collect();
        assert_eq!(left, [ipv6_net("2001:db8:a:2::/64")]);
    }

    #[test]
    fn only_its_router_can_release_a_delegation_before_it_expires() {
        let config = delegator_config("2001:db8:a::/62", &["2001:db8:a::/64"], 64);
        let mut delegator = PrefixDelegator::new(config, &[], Time::ZERO, wall_time(0));
        let (one, two) = (delegation_client("i0", 1), delegation_client("i0", 2));
        delegate_to(&mut delegator, 0, &one);
        delegate_to(&mut delegator, 0, &two);
        let prefix = ipv6_net("2001:db8:a:1::/64");
        assert!(!delegator.release_prefixes(&two, &[prefix]));
        assert!(delegator.release_prefixes(&one, &[prefix]));
        // The next router gets the block that has been free for the longest time.
        assert_eq!(
            delegate_to(&mut delegator, 10, &delegation_client("i0", 3)).as_deref(),
            Some("2001:db8:a:3::/64")
        );
        delegate_to(&mut delegator, 500, &two);
        delegator.take_routes_changed();
        delegator.handle_timeout(Time::from_secs(609));
        assert!(!delegator.take_routes_changed());
        delegator.handle_timeout(Time::from_secs(610));
        assert!(delegator.take_routes_changed());
        let left: Vec<_> = delegator.delegations().map(|delegation| delegation.client.clone()).collect();
        assert_eq!(left, [two]);
        assert_eq!(delegator.poll_timeout(), Some(Time::from_secs(1100)));
    }

    #[test]
    fn renewal_from_another_address_changes_only_the_route_of_the_delegation() {
        let config = delegator_config("2001:db8:a::/62", &["2001:db8:a::/64"], 64);
        let mut delegator = PrefixDelegator::new(config, &[], Time::ZERO, wall_time(0));
        let one = delegation_client("i0", 1);
        delegate_to(&mut delegator, 0, &one);
        assert!(delegator.take_routes_changed());
        delegate_to(&mut delegator, 1, &one);
        assert!(!delegator.take_routes_changed());
        let other: Ipv6Addr = "fe80::a".parse().expect("an address");
        delegator.delegate_prefix((Time::from_secs(2), wall_time(2)), &one, other, &[]);
        assert!(delegator.take_routes_changed());
        assert_eq!(
            delegator.delegations().map(|delegation| delegation.router_address).collect::<Vec<_>>(),
            [other]
        );
    }
}
