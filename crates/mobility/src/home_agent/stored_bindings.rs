//! The part of the binding cache that survives a restart.
//!
//! Times are dates, because the monotonic clock starts anew with the machine. The reader also accepts files
//! of earlier versions, which stored one binding for each node.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Endpoint, Time, WallTime, mapped};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

use super::binding::{Binding, BindingState, CareOfAddressAge, FormerPath, MAX_BINDINGS};
use super::care_of_address::is_acceptable_care_of_address;
use super::care_of_test::TESTED_ADDRESS_LIFETIME;
use super::drain::RELAY_LIFETIME;
use super::replay_state::{KeyNumbers, ReplayState};
use super::update_checks::shared_prefixes;
use super::{HomeAgent, HomeAgentTimer, MAX_FLOWS, Relay, RemovedNode};
use crate::flow::FlowBinding;
use crate::sequence::count_used_numbers;
use crate::{OLD_PATH_GRACE, Output, is_newer};

/// Maximum distance from the last signed sequence number to a later number that was accepted without a key.
/// An attacker may have recorded signed messages. Sequence numbers wrap around, so each step forward makes
/// the oldest recorded messages count as newer again. With this limit, at most one eighth of the 32,768 older
/// numbers counts as newer again. The distance suffices for two days of registrations with a lifetime of 60
/// s.
const UNSIGNED_LEAD: u16 = 4096;

/// Stored state of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBinding {
    /// Home address.
    pub home_address: Ipv6Addr,
    /// Last accepted sequence number, if any. For a node with a key it is the number of the last signed
    /// message.
    pub sequence: Option<u16>,
    /// Last sequence number that was accepted with a signature. It is stored if it differs from
    /// [`Self::sequence`], or if [`Self::spi`] is missing, because then nothing else shows that the number
    /// was signed. The SPI is missing for a node without a key or outside the config, and for a node with
    /// several keys before its next update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_sequence: Option<u16>,
    /// Last accepted NTP timestamp, if any.
    pub timestamp: Option<u64>,
    /// Number of sequence numbers that the node has used under each key: first the first key of the config,
    /// then the others by last use. Earlier versions did not count; then the count begins with the next
    /// Binding Update.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keys: Vec<KeyNumbers>,
    /// SPI of the key that the node used last, if any. Earlier versions supported one key for each node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spi: Option<u32>,
    /// Registration without a Binding Identifier, if there is one.
    pub registration: Option<StoredRegistration>,
    /// Registrations with Binding Identifiers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub identified: Vec<StoredRegistration>,
    /// Former paths from which the home agent still accepts packets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former: Vec<StoredPath>,
    /// Flow bindings of the node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub flows: Vec<FlowBinding>,
    /// Relay of the node's packets to the home agent to which the node has gone; `None` without a relay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay: Option<Relay>,
    /// End of the relay; `None` without a relay, and in the state of earlier versions, which did not store
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relay_until: Option<WallTime>,
}

/// A registration of a [`StoredBinding`], which ends with its lifetime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredRegistration {
    /// Binding Identifier; `None` for the plain registration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bid: Option<u16>,
    /// BID-PRI (RFC 6089 4.1).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub priority: u8,
    /// Registered care-of address.
    pub care_of_address: Endpoint,
    /// Time at which the node came to this care-of address; `None` if it is unknown, as in the state of
    /// earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<WallTime>,
    /// The home agent's end of the tunnel; `None` if this is the home agent's IPv6 address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Endpoint>,
    /// R flag: the node is a mobile router.
    pub mobile_router: bool,
    /// L flag: the home agent defends the link-local address as well.
    pub link_local: bool,
    /// Prefixes whose packets the home agent forwards to the node.
    pub prefixes: Vec<Ipv6Net>,
    /// IPv4 prefixes whose packets the home agent forwards to the node. Earlier versions had none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// Granted lifetime in seconds.
    pub lifetime_s: u64,
    /// Date at which the lifetime ends.
    pub expires: WallTime,
    /// Former care-of address and the end of its grace period, in the state of earlier versions; otherwise
    /// `None`. Present versions store it in [`StoredBinding::former`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous: Option<(Ipv6Addr, WallTime)>,
    /// Whether the node has not answered the test at the care-of address yet. Earlier versions had no test.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untested: bool,
}

/// A former path of a binding, from which the home agent still accepts packets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPath {
    /// The home agent's end of the former tunnel.
    pub agent: Endpoint,
    /// The former care-of address.
    pub care_of_address: Endpoint,
    /// Time until which the home agent accepts packets from the path.
    pub until: WallTime,
    /// Whether the node has not answered the test at this address, see [`StoredRegistration::untested`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub untested: bool,
}

fn is_zero(priority: &u8) -> bool {
    *priority == 0
}

impl StoredBinding {
    /// Returns whether [`Self::sequence`] is the number of a signed message. Earlier versions stored no SPI.
    /// In their files a node has no key if it has a binding or a relay but no timestamp.
    fn is_signed(&self) -> bool {
        let is_bound = self.registration.is_some() || !self.identified.is_empty();
        self.spi.is_some() || self.timestamp.is_some() || !is_bound && self.relay.is_none()
    }

    /// Creates an empty state of a node.
    pub fn of(home_address: Ipv6Addr) -> Self {
        StoredBinding {
            home_address,
            sequence: None,
            signed_sequence: None,
            timestamp: None,
            keys: Vec::new(),
            spi: None,
            registration: None,
            identified: Vec::new(),
            former: Vec::new(),
            flows: Vec::new(),
            relay: None,
            relay_until: None,
        }
    }
}

impl HomeAgent {
    /// Returns all state that must survive a restart.
    pub fn stored_bindings(&self, now: Time, wall: WallTime) -> Vec<StoredBinding> {
        let home_addresses = self.config.nodes.iter().map(|node| node.home_address);
        let absent = self.removed_nodes.keys().copied();
        home_addresses
            .chain(absent)
            .filter_map(|home_address| self.stored_node(now, wall, home_address))
            .collect()
    }

    /// Returns the state of one node that must survive a restart; `None` if the node has no such state.
    pub fn stored_node(&self, now: Time, wall: WallTime, home_address: Ipv6Addr) -> Option<StoredBinding> {
        let Some(node) = self.config.node(home_address) else {
            let RemovedNode { replay_state: replay, key_numbers: keys } =
                self.removed_nodes.get(&home_address)?;
            return Some(StoredBinding {
                signed_sequence: replay.sequence,
                timestamp: replay.timestamp,
                keys: keys.clone(),
                ..StoredBinding::of(home_address)
            });
        };
        let has_key = node.authentication.signing_association().is_some();
        let replay = self.cache.replay_state(home_address);
        let mut registrations: Vec<StoredRegistration> = self
            .cache
            .all_bindings_of(home_address)
            .filter(|binding| binding.is_valid())
            .map(|binding| self.to_stored_registration(now, wall, &binding))
            .collect();
        let relay = self.relay_of_node(home_address).cloned();
        let replays = replay.sequence.is_some() || replay.timestamp.is_some();
        if registrations.is_empty() && !replays && relay.is_none() {
            return None;
        }
        // The former paths of a node without bindings end within seconds, so they are not stored.
        let bound = !registrations.is_empty();
        let former = self.cache.former_paths(home_address).iter().filter(|_| bound);
        let signed = replay.sequence.filter(|_| has_key);
        let sequence = signed.or(self.cache.sequence(home_address).filter(|_| bound));
        let spi = self.last_spi_of(home_address).filter(|_| replay.sequence.is_some());
        let plain = registrations.iter().position(|registration| registration.bid.is_none());
        Some(StoredBinding {
            home_address,
            sequence,
            signed_sequence: replay.sequence.filter(|_| !has_key || spi.is_none()),
            timestamp: replay.timestamp,
            keys: self.key_numbers_of(home_address),
            spi,
            registration: plain.map(|plain| registrations.remove(plain)),
            identified: registrations,
            former: former
                .map(|path| StoredPath {
                    agent: path.agent,
                    care_of_address: path.care_of_address,
                    until: wall + path.accept_packets_until.saturating_since(now),
                    untested: !path.is_care_of_tested,
                })
                .collect(),
            flows: self.cache.flows(home_address).to_vec(),
            relay_until: self
                .remaining_relay_time(now, home_address)
                .filter(|_| relay.is_some())
                .map(|left| wall + left),
            relay,
        })
    }

    /// Returns the SPI of the key that a node used last; `None` if the node has no key, or has several and
    /// has not used one yet.
    fn last_spi_of(&self, home_address: Ipv6Addr) -> Option<u32> {
        let authentication = &self.config.node(home_address)?.authentication;
        match authentication.associations() {
            [one] => Some(one.spi),
            _ => self.last_spi_by_node.get(&home_address).copied(),
        }
    }

    /// Returns the number of sequence numbers that a node has used under each key.
    fn key_numbers_of(&self, home_address: Ipv6Addr) -> Vec<KeyNumbers> {
        let Some(node) = self.config.node(home_address) else { return Vec::new() };
        let numbers = self.cache.used_sequence_numbers(home_address, &node.authentication, None);
        let first = node.authentication.signing_association().filter(|_| numbers > 0);
        let first = first.map(|first| KeyNumbers { key: first.fingerprint(), numbers });
        first.into_iter().chain(self.cache.other_key_numbers(home_address).iter().copied()).collect()
    }

    fn to_stored_registration(&self, now: Time, wall: WallTime, binding: &Binding) -> StoredRegistration {
        let (prefixes, ipv4_prefixes) = mapped::split_by_family(binding.prefixes.iter().copied());
        StoredRegistration {
            bid: binding.bid,
            priority: binding.priority,
            care_of_address: binding.care_of_address,
            since: binding.care_of_address_age.age_at(now).map(|length| wall - length),
            agent: Some(binding.agent).filter(|agent| *agent != self.config.address),
            mobile_router: binding.mobile_router,
            link_local: binding.link_local,
            prefixes,
            ipv4_prefixes,
            lifetime_s: binding.lifetime.as_secs(),
            expires: wall + binding.expires_at.saturating_since(now),
            previous: None,
            untested: !binding.is_care_of_tested,
        }
    }

    /// Takes over the state that [`Self::stored_bindings`] returned, except nodes and prefixes that the
    /// config no longer permits, and bindings whose lifetime has ended. Does not repeat duplicate address
    /// detection, because the nodes kept their addresses meanwhile.
    pub fn restore(&mut self, now: Time, wall: WallTime, stored: Vec<StoredBinding>) {
        let left = |until: WallTime, most: Duration| {
            Duration::from_nanos(until.as_unix_nanos().saturating_sub(wall.as_unix_nanos())).min(most)
        };
        for entry in stored {
            let home_address = entry.home_address;
            let signed = entry.signed_sequence.or(entry.sequence.filter(|_| entry.is_signed()));
            let is_signed = signed.is_some() || entry.timestamp.is_some();
            let mut replay = ReplayState { sequence: signed, timestamp: entry.timestamp };
            let mut keys = entry.keys;
            let Some(node) = self.config.node(home_address) else {
                if is_signed {
                    self.removed_nodes
                        .insert(home_address, RemovedNode { replay_state: replay, key_numbers: keys });
                }
                continue;
            };
            let own = node.prefixes.clone();
            let has_test = node.care_of_test;
            let has_key = node.authentication.signing_association().is_some();
            if has_key {
                // RFC 6275 9.5.1: the next number must be newer than the number of the binding, even if that
                // number was unsigned. But an attacker may have sent the unsigned number, so it may lead the
                // signed one by [`UNSIGNED_LEAD`] only.
                let newer = |it: u16, than| is_newer(it, than) && it.wrapping_sub(than) <= UNSIGNED_LEAD;
                let unsigned = entry.sequence.filter(|it| signed.is_none_or(|signed| newer(*it, signed)));
                replay.sequence = unsigned.or(signed);
                if let Some(sequence) = replay.sequence {
                    // Count unsigned numbers too, because they use up the key's sequence numbers in the same
                    // way.
                    keys.iter_mut()
                        .for_each(|key| key.numbers = count_used_numbers(key.numbers, signed, sequence));
                }
                if let Some(spi) = entry.spi.filter(|_| node.authentication.has_several_keys()) {
                    self.last_spi_by_node.insert(home_address, spi);
                }
            }
            let first =
                node.authentication.signing_association().map(|association| association.fingerprint());
            if (has_key || is_signed)
                && let Some(node) = self.cache.node_or_new(home_address)
            {
                node.set_replay_state(replay);
                let place = keys.iter().position(|key| Some(key.key) == first);
                let numbers = place.map_or(0, |place| keys.remove(place).numbers);
                node.set_used_sequence_numbers(numbers, keys);
            }
            let allowed =
                |relay: &Relay| relay.prefixes.iter().all(|p| own.iter().any(|own| own.contains(p)));
            if let Some(relay) =
                entry.relay.filter(|relay| self.is_peer_home_agent(relay.to.into()) && allowed(relay))
            {
                let remaining = entry.relay_until.map_or(RELAY_LIFETIME, |until| left(until, RELAY_LIFETIME));
                if !remaining.is_zero() {
                    self.begin_relay(home_address, relay, now + remaining);
                    self.outputs.push_back(Output::Forwarding(home_address));
                }
            }
            let mut former = entry.former;
            let identified = entry.identified.into_iter().filter(|it| it.bid.is_some()).take(MAX_BINDINGS);
            let registrations: Vec<StoredRegistration> = match entry.registration {
                Some(plain) => vec![StoredRegistration { bid: None, ..plain }],
                None => identified.collect(),
            };
            for registration in registrations {
                let lifetime = Duration::from_secs(registration.lifetime_s).min(self.config.max_lifetime);
                let remaining = left(registration.expires, lifetime);
                let agent = registration.agent.unwrap_or(self.config.address.into());
                let ends = (agent, registration.care_of_address);
                // If the home agent no longer has this IPv4 address, its packets do not reach the node, so
                // the node must register again.
                let reached = agent.ipv4().is_none_or(|own| self.config.ipv4_address == Some(own));
                let ipv4 = registration.ipv4_prefixes.iter().copied().map(mapped::from_ipv4);
                let prefixes: Vec<Ipv6Net> = ipv4.chain(registration.prefixes).collect();
                let permitted = reached
                    && prefixes.iter().all(|p| own.iter().any(|own| own.contains(p)))
                    && is_acceptable_care_of_address(&self.config, &self.cache, home_address, ends);
                if remaining.is_zero() || !permitted {
                    continue;
                }
                if let Some((previous, until)) = registration.previous {
                    let care_of_address = previous.into();
                    former.push(StoredPath { agent, care_of_address, until, untested: false });
                }
                let binding = Binding {
                    home_address,
                    bid: registration.bid,
                    priority: registration.priority,
                    care_of_address: registration.care_of_address,
                    // A date in the future shows that the operator has set the clock back, so the age is
                    // unknown.
                    care_of_address_age: CareOfAddressAge::with_age(
                        now,
                        registration
                            .since
                            .filter(|since| *since <= wall)
                            .map(|it| it.absolute_difference(wall)),
                    ),
                    agent,
                    mobile_router: registration.mobile_router,
                    link_local: registration.link_local,
                    prefixes: shared_prefixes(&own, prefixes),
                    sequence: entry.sequence.unwrap_or(0),
                    lifetime,
                    expires_at: now + remaining,
                    state: BindingState::Valid,
                    is_care_of_tested: !has_test || !registration.untested,
                };
                self.cache.insert(&binding);
                if !binding.is_care_of_tested {
                    self.timers.set_deadline(HomeAgentTimer::CareOfTest(home_address, binding.bid), now);
                }
            }
            let Some(node) = self.cache.node_mut(home_address).filter(|node| !node.is_unbound()) else {
                continue;
            };
            for path in former {
                // While the new address is untested, the former address still carries packets, and the
                // node may return to it.
                let tested_until = path.until + TESTED_ADDRESS_LIFETIME.saturating_sub(OLD_PATH_GRACE);
                let tested_for = left(tested_until, TESTED_ADDRESS_LIFETIME);
                if has_test && !path.untested && !tested_for.is_zero() {
                    node.record_tested_address(now, path.care_of_address, now + tested_for);
                }
                let until = now + left(path.until, OLD_PATH_GRACE);
                if until > now {
                    node.add_former_path(FormerPath {
                        agent: path.agent,
                        care_of_address: path.care_of_address,
                        accept_packets_until: until,
                        is_care_of_tested: !has_test || !path.untested,
                    });
                }
            }
            node.set_flows(entry.flows.into_iter().take(MAX_FLOWS).collect());
            if let Some(until) = node.grace_period_ends_at() {
                self.timers.set_deadline(HomeAgentTimer::Grace(home_address), until);
            }
            self.outputs.push_back(Output::Forwarding(home_address));
            self.announce_address(now, home_address);
        }
    }
}
