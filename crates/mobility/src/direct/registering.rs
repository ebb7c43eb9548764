//! Registration of this router with another one: the tests, the Binding Update, and the renewal (RFC 6275
//! 11.6, 11.7.2).

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mobility::{DirectRoute, DirectRouteKind};
use ipnet::Ipv6Net;

use super::liveness::Ends;
use super::peer::{Candidate, CareOfToken, Exchange, HomeTests, Peer, Registration, Step};
use super::tokens::{Key, MAX_TOKEN_LIFETIME, key, sign, verify};
use super::{Direct, DirectDrop, IDLE, LENGTH, MAX_PEERS, MAX_RR_BINDING_LIFETIME};
use crate::binding_update_list::Retransmission;
use crate::{is_unicast_routable, lifetime_from_units, lifetime_units};

/// Age of tokens and registrations at which they are renewed. So there are always tokens for the next
/// handover.
const RENEWAL: Duration = Duration::from_secs(180);
const _: () = assert!(RENEWAL.as_secs() < MAX_TOKEN_LIFETIME.as_secs());
/// Most questions by the home agents, with waits of 1, 2 and 4 seconds.
const HOME_TRIES: u32 = 3;
const HOME_INTERVAL: Duration = Duration::from_secs(1);
/// Most direct questions, with waits of 250, 500 and 1000 milliseconds.
const STRAIGHT_TRIES: u32 = 3;
const STRAIGHT_INTERVAL: Duration = Duration::from_millis(250);
/// Longest time for an answer. A request with a limit of tries never reaches it.
const LONGEST: Duration = Duration::from_secs(64);
/// Pause after a failure: 1, 2, 4 and up to 64 seconds for a router. [`CANDIDATE_HOLD`] is for a network
/// without a known router: 30 seconds up to 8 minutes.
const HOLD: Duration = Duration::from_secs(1);
const CANDIDATE_HOLD: Duration = Duration::from_secs(30);
/// Time after its last packet for which a network is asked for.
const LATELY: Duration = Duration::from_secs(10);
/// Statuses of an acknowledgement (RFC 6275 6.1.8).
const SEQUENCE_OUT_OF_WINDOW: u8 = 135;
const EXPIRED_HOME_NONCE: u8 = 136;
const EXPIRED_NONCES: u8 = 138;

/// Returns the retransmission of a Home Test Init.
pub(super) fn home_tests() -> Retransmission {
    Retransmission::new(HOME_INTERVAL, LONGEST)
}

/// Returns the retransmission of a message from care-of address to care-of address.
fn direct_requests() -> Retransmission {
    Retransmission::new(STRAIGHT_INTERVAL, LONGEST)
}

/// Returns the peer whose exchange this answer's cookie belongs to.
fn asked(
    peers: &mut BTreeMap<Ipv6Addr, Box<Peer>>,
    cookie: u64,
) -> Result<(Ipv6Addr, &mut Peer), DirectDrop> {
    let asked = peers.iter_mut().find(|(_, peer)| peer.awaits(cookie));
    asked.map(|(home_address, peer)| (*home_address, &mut **peer)).ok_or(DirectDrop::Unasked)
}

impl Direct {
    /// Returns when a network is to be asked for, if packets go there.
    pub(super) fn due(&self, candidate: &Candidate) -> Option<Time> {
        let able = self.has_tunnel && !self.care_of_addresses.is_empty();
        (able && candidate.next <= candidate.used + LATELY).then_some(candidate.next)
    }

    pub(super) fn ask_candidates(&mut self, now: Time) {
        let due = |candidate: &Candidate| self.due(candidate).is_some_and(|at| at <= now);
        let mut due: Vec<(u32, u64)> = self
            .candidates
            .iter()
            .filter(|(_, candidate)| due(candidate))
            .map(|(network, candidate)| (candidate.failures, *network))
            .collect();
        // Networks without an answer do not delay the others.
        due.sort_unstable();
        for (_, network) in due {
            let may_ask = self.questions.has_token(now);
            let ready = self.questions.ready_at(now);
            let fresh = self.rng.u64();
            let Some(candidate) = self.candidates.get_mut(&network) else { continue };
            if candidate.retransmission.rounds() >= HOME_TRIES {
                candidate.next = now + CANDIDATE_HOLD * (1 << candidate.failures.min(4));
                candidate.failures = candidate.failures.saturating_add(1);
                (candidate.cookie, candidate.tests) = (fresh, HomeTests::default());
                candidate.retransmission = home_tests();
            } else if candidate.retransmission.rounds() > 0 || may_ask {
                let first = candidate.retransmission.is_fresh();
                candidate.next = now + candidate.retransmission.transmitted(now, 1);
                let (destination, cookie) = (candidate.destination, candidate.cookie);
                if first {
                    let _taken = self.questions.allow(now);
                }
                self.send_home_test_init(destination, cookie);
            } else {
                candidate.next = ready;
            }
        }
    }

    /// Asks an address whose router has proven nothing as long as nothing is registered there. Only a router
    /// that knows this router's care-of address already learns the present one, with the key as proof.
    fn send_home_test_init(&mut self, destination: Ipv6Addr, cookie: u64) {
        let mut message = DirectRoute {
            cookie,
            home_address: self.config.home_address,
            prefixes: self.config.prefixes.clone(),
            ..DirectRoute::new(DirectRouteKind::HomeTestInit)
        };
        if let Some(key) = self.key_at(destination) {
            message.care_of_address =
                self.care_of_addresses.first().copied().unwrap_or(Ipv6Addr::UNSPECIFIED);
            sign(&mut message, &key);
        }
        self.counters.tests += 1;
        self.send_home(destination, &message);
    }

    /// Returns the key of this router's registration with another one.
    fn key_at(&self, home_address: Ipv6Addr) -> Option<Key> {
        Some(self.peers.get(&home_address)?.registration.as_ref()?.key)
    }

    /// Whether packets go in either direction.
    fn is_wanted(now: Time, peer: &Peer) -> bool {
        peer.used.is_some_and(|used| now.saturating_since(used) <= IDLE)
            || peer.binding.as_ref().is_some_and(|binding| binding.wanted)
    }

    /// Returns this router's care-of address that is to be registered.
    pub(super) fn choice(&self, peer: &Peer) -> Option<Ipv6Addr> {
        let count = self.care_of_addresses.len().max(1);
        self.care_of_addresses.get(peer.choice % count).copied()
    }

    fn is_needed(&self, now: Time, peer: &Peer) -> bool {
        let Some(local) = self.choice(peer) else { return false };
        peer.heartbeats.has_failed()
            || peer.registration.as_ref().is_none_or(|registration| {
                registration.care_of_address != local || now >= registration.since + RENEWAL
            })
    }

    /// Returns when [`Self::register`] is due.
    pub(super) fn registering_due(&self, now: Time, peer: &Peer) -> Option<Time> {
        if let Some(exchange) = &peer.exchange {
            return Some(exchange.next);
        }
        if !Direct::is_wanted(now, peer) {
            return None;
        }
        match (self.is_needed(now, peer), &peer.registration) {
            // The registration continues when there is a tunnel.
            (true, _) if !self.has_tunnel && self.first_step(now, peer).is_none() => None,
            (true, _) => Some(peer.hold),
            (false, Some(registration)) if self.choice(peer).is_some() => Some(registration.since + RENEWAL),
            (false, _) => None,
        }
    }

    /// Returns the first step that the existing tokens need.
    fn first_step(&self, now: Time, peer: &Peer) -> Option<Step> {
        let local = self.choice(peer)?;
        let fresh = |since: Time| now.saturating_since(since) < RENEWAL;
        let Some(home) = peer.home.as_ref().filter(|home| fresh(home.since) && peer.remote.is_some()) else {
            return self.has_tunnel.then(|| Step::Home(HomeTests::default()));
        };
        let care_of = peer.care_of.filter(|token| token.care_of_address == local && fresh(token.since));
        Some(match care_of {
            None => Step::CareOf { care_of_address: local },
            Some(token) => Step::Update {
                care_of_address: local,
                sequence: peer.sequence,
                key: key(home.home, token.token, home.prefixes.iter().copied()),
                first: now,
            },
        })
    }

    /// Does the next step of a registration if it is due.
    pub(super) fn register(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get(&home_address) else { return };
        if !Direct::is_wanted(now, peer) {
            if peer.registration.is_some() || peer.exchange.is_some() {
                self.end(now, home_address, "not used");
            }
            return;
        }
        match &peer.exchange {
            Some(exchange) if exchange.next > now => return,
            Some(exchange) => {
                let most = if matches!(exchange.step, Step::Home(_)) { HOME_TRIES } else { STRAIGHT_TRIES };
                if exchange.retransmission.rounds() >= most {
                    self.give_up(now, home_address);
                }
            }
            None => {}
        }
        let Some(peer) = self.peers.get(&home_address) else { return };
        if peer.exchange.is_none() {
            if peer.hold > now || !self.is_needed(now, peer) {
                return;
            }
            let Some(step) = self.first_step(now, peer) else { return };
            let retransmission = if matches!(step, Step::Home(_)) { home_tests() } else { direct_requests() };
            let exchange = Exchange { step, cookie: self.rng.u64(), retransmission, next: now };
            if let Some(peer) = self.peers.get_mut(&home_address) {
                peer.exchange = Some(exchange);
            }
        }
        self.send_step(now, home_address);
    }

    fn send_step(&mut self, now: Time, home_address: Ipv6Addr) {
        let registered = self.key_at(home_address);
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        let Some(exchange) = &mut peer.exchange else { return };
        exchange.next = now + exchange.retransmission.transmitted(now, 1);
        let cookie = exchange.cookie;
        let remote = peer.remote.unwrap_or(Ipv6Addr::UNSPECIFIED);
        match &mut exchange.step {
            Step::Home(_) => self.send_home_test_init(home_address, cookie),
            Step::CareOf { care_of_address } => {
                let local = *care_of_address;
                let mut message = DirectRoute {
                    cookie,
                    home_address: self.config.home_address,
                    care_of_address: local,
                    ..DirectRoute::new(DirectRouteKind::CareOfTestInit)
                };
                if let Some(key) = registered {
                    sign(&mut message, &key);
                }
                self.send_straight((local, remote), &message);
            }
            Step::Update { care_of_address, sequence, key, .. } => {
                peer.sequence = peer.sequence.wrapping_add(1);
                *sequence = peer.sequence;
                let (local, key) = (*care_of_address, *key);
                let message = DirectRoute {
                    sequence: peer.sequence,
                    lifetime: lifetime_units(MAX_RR_BINDING_LIFETIME),
                    cookie,
                    home_nonce: peer.home.as_ref().map_or(0, |home| home.nonce),
                    care_of_nonce: peer.care_of.map_or(0, |token| token.nonce),
                    status: u8::from(peer.used.is_some_and(|used| now.saturating_since(used) <= IDLE)),
                    ..DirectRoute::new(DirectRouteKind::BindingUpdate)
                };
                self.send_update((local, remote), message, &key);
            }
        }
    }

    fn send_update(&mut self, ends: Ends, message: DirectRoute, key: &Key) {
        let mut message = DirectRoute {
            home_address: self.config.home_address,
            care_of_address: ends.0,
            prefixes: self.config.prefixes.clone(),
            ..message
        };
        sign(&mut message, key);
        self.send_straight(ends, &message);
    }

    /// Handles an exchange without an answer.
    fn give_up(&mut self, now: Time, home_address: Ipv6Addr) {
        let count = self.care_of_addresses.len();
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        let Some(exchange) = peer.exchange.take() else { return };
        if !matches!(exchange.step, Step::Home(_)) {
            peer.care_of = None;
            if peer.choice + 1 < count {
                // The access network of this care-of address may drop direct packets.
                peer.choice += 1;
                return;
            }
            // The other end may have moved; it names its new address when it is asked by the home agents.
            (peer.choice, peer.home, peer.mute) = (0, None, true);
        }
        self.back_off(now, home_address);
    }

    fn back_off(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        peer.exchange = None;
        peer.hold = now + HOLD * (1 << peer.failures.min(6));
        peer.failures = peer.failures.saturating_add(1);
    }

    /// Ends this router's registration with another one, which then sends by the home agents.
    pub(super) fn end(&mut self, now: Time, home_address: Ipv6Addr, reason: &'static str) {
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        // The tokens that came by the home agents are still valid: a router that has an address again need
        // not ask there.
        (peer.exchange, peer.care_of) = (None, None);
        let registration = peer.registration.take();
        let bound = peer.binding.as_ref().map(|binding| binding.care_of_address).or(peer.remote);
        peer.sequence = peer.sequence.wrapping_add(1);
        let sequence = peer.sequence;
        if let (Some(registration), Some(remote)) = (registration, bound)
            && self.care_of_addresses.contains(&registration.care_of_address)
        {
            let message = DirectRoute { sequence, ..DirectRoute::new(DirectRouteKind::BindingUpdate) };
            self.send_update((registration.care_of_address, remote), message, &registration.key);
        }
        self.set_direct(now, home_address, false, reason);
    }

    /// Takes a token for the home address, and the care-of address of its sender.
    pub(super) fn take_home_test(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        if destination != self.config.home_address || source != message.home_address {
            return Err(DirectDrop::NotForUs);
        }
        let answer = (message.token, message.home_nonce);
        if let Some((network, candidate)) = self.candidates.iter().find(|(_, c)| c.cookie == message.cookie) {
            let (network, destination) = (*network, candidate.destination);
            // The sender has proven nothing: its claim counts only for the network that was asked for.
            let claim = Ipv6Net::new_assert(destination, LENGTH).trunc();
            if !message.prefixes.contains(&claim) {
                return Err(DirectDrop::BadPrefix);
            }
            self.check_prefixes(source, &[claim])?;
            if let Some(peer) = self.peers.get_mut(&source) {
                // The router is known already, with other prefixes.
                peer.claim(now, claim);
                if let Some(candidate) = self.candidates.get_mut(&network) {
                    // If the prefix is never bound, the long pause limits the questions.
                    (candidate.tests, candidate.retransmission) = (HomeTests::default(), home_tests());
                    candidate.next = now + CANDIDATE_HOLD * 16;
                }
                return Ok(());
            }
            self.make_room(now, claim, false)?;
            debug_assert!(self.peers.len() < MAX_PEERS);
            let Some(mut candidate) = self.candidates.remove(&network) else { return Ok(()) };
            candidate.tests.home = Some(answer);
            let mut peer = Peer::new(now, claim);
            peer.claim(now, claim);
            peer.used = Some(candidate.used);
            let step = Step::Home(candidate.tests);
            let Candidate { cookie, retransmission, next, .. } = *candidate;
            peer.exchange = Some(Exchange { step, cookie, retransmission, next });
            self.peers.insert(source, Box::new(peer));
            self.home_tests_came(now, source);
            return Ok(());
        }
        let peer = self.peers.get_mut(&source).filter(|peer| peer.awaits(message.cookie));
        let Some(Exchange { step: Step::Home(tests), .. }) = peer.and_then(|peer| peer.exchange.as_mut())
        else {
            return Err(DirectDrop::Unasked);
        };
        tests.home = Some(answer);
        self.home_tests_came(now, source);
        Ok(())
    }

    /// Takes a token for one of this router's prefixes.
    pub(super) fn take_prefix_test(
        &mut self,
        now: Time,
        destination: Ipv6Addr,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        let prefix = *message.prefixes.first().ok_or(DirectDrop::Malformed)?;
        if !prefix.contains(&destination) {
            return Err(DirectDrop::NotForUs);
        }
        let candidate = self.candidates.values_mut().find(|candidate| candidate.cookie == message.cookie);
        let mut home_address = None;
        let tests = match candidate {
            Some(candidate) => &mut candidate.tests,
            None => {
                let (home, peer) = asked(&mut self.peers, message.cookie)?;
                home_address = Some(home);
                match peer.exchange.as_mut().map(|exchange| &mut exchange.step) {
                    Some(Step::Home(tests)) => tests,
                    _ => return Err(DirectDrop::Unasked),
                }
            }
        };
        if !is_unicast_routable(message.care_of_address) {
            return Err(DirectDrop::CareOfAddress);
        }
        if !tests.note(&self.config.prefixes, prefix, message) {
            return Err(DirectDrop::BadPrefix);
        }
        if let Some(home_address) = home_address {
            self.home_tests_came(now, home_address);
        }
        Ok(())
    }

    /// Continues when all tokens of home address and prefixes have come.
    fn home_tests_came(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        let Some(Exchange { step: Step::Home(tests), .. }) = &peer.exchange else { return };
        if let Some((tokens, care_of_address)) = tests.tokens(now, &self.config.prefixes) {
            (peer.home, peer.exchange) = (Some(tokens), None);
            // The proven care-of address counts as long as the path works.
            let bound = peer.binding.as_ref().filter(|_| !peer.heartbeats.has_failed() && !peer.mute);
            peer.remote = Some(bound.map_or(care_of_address, |binding| binding.care_of_address));
            (peer.hold, peer.choice) = (now, 0);
        }
        self.look(now, home_address);
    }

    /// Takes a token for a care-of address.
    pub(super) fn take_care_of_test(
        &mut self,
        now: Time,
        (local, remote): Ends,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        let (home_address, peer) = asked(&mut self.peers, message.cookie)?;
        match peer.exchange.as_ref().map(|exchange| &exchange.step) {
            Some(Step::CareOf { care_of_address }) if *care_of_address == local => {}
            _ => return Err(DirectDrop::Unasked),
        }
        if peer.remote != Some(remote) {
            return Err(DirectDrop::CareOfAddress);
        }
        let (token, nonce) = (message.token, message.care_of_nonce);
        peer.care_of = Some(CareOfToken { care_of_address: local, token, nonce, since: now });
        (peer.exchange, peer.hold) = (None, now);
        self.look(now, home_address);
        Ok(())
    }

    /// Takes the answer to a Binding Update.
    pub(super) fn take_acknowledgement(
        &mut self,
        now: Time,
        (local, remote): Ends,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        let (home_address, peer) = asked(&mut self.peers, message.cookie)?;
        let Some(Exchange {
            step: Step::Update { care_of_address, sequence, key, first },
            retransmission,
            ..
        }) = peer.exchange.as_ref().filter(|exchange| exchange.is_update_from(local))
        else {
            return Err(DirectDrop::Unasked);
        };
        // RFC 6275 11.7.3: an acknowledgement must answer an Update that was sent, with that Update's key,
        // unless its status means that there can be no key.
        let is_about_ours = u32::from(sequence.wrapping_sub(message.sequence)) < retransmission.rounds();
        if message.status != SEQUENCE_OUT_OF_WINDOW && !is_about_ours {
            return Err(DirectDrop::Sequence);
        }
        let lacks_key = (EXPIRED_HOME_NONCE..=EXPIRED_NONCES).contains(&message.status);
        if !lacks_key && !verify(message, key) {
            return Err(DirectDrop::Authenticator);
        }
        let (care_of_address, key, first) = (*care_of_address, *key, *first);
        match message.status {
            0..128 => {
                let lifetime = lifetime_from_units(message.lifetime).min(MAX_RR_BINDING_LIFETIME);
                peer.registration =
                    Some(Registration { care_of_address, key, since: first, until: first + lifetime });
                (peer.exchange, peer.failures, peer.mute) = (None, 0, false);
                // An acknowledgement from another address says nothing about the address that packets go to.
                if peer.binding.as_ref().is_none_or(|binding| binding.care_of_address == remote) {
                    peer.heartbeats.renew();
                }
                self.counters.registered += 1;
                self.outputs.push_back(super::Output::Routes);
            }
            SEQUENCE_OUT_OF_WINDOW => {
                // RFC 6275 11.7.3: continue from the named number.
                peer.sequence = message.sequence;
                peer.exchange = None;
                self.back_off(now, home_address);
            }
            EXPIRED_HOME_NONCE..=EXPIRED_NONCES => {
                (peer.home, peer.care_of) = (None, None);
                self.back_off(now, home_address);
            }
            _ => {
                peer.reason = "it refuses";
                self.back_off(now, home_address);
            }
        }
        self.look(now, home_address);
        Ok(())
    }
}
