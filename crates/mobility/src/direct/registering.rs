//! Registration of this router with another one: the tests, the Binding Update, and the renewal (RFC 6275
//! 11.6, 11.7.2).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mobility::{DirectRoute, DirectRouteKind};
use ipnet::Ipv6Net;

use super::liveness::Ends;
use super::peer::{Candidate, CareOfToken, Exchange, HomeTests, Peer, Registration, Step, is_fresh};
use super::tokens::{Key, key, sign, verify};
use super::{Direct, DirectDrop, IDLE, LENGTH, MAX_PEERS, MAX_RR_BINDING_LIFETIME};
use crate::binding_update_list::{Event, Sent};
use crate::{is_unicast_routable, lifetime_from_units, lifetime_units};

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
        candidate.exchange.next().filter(|next| able && *next <= candidate.used + LATELY)
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
            let is_first = candidate.exchange.retransmission.is_fresh();
            if candidate.exchange.is_exhausted() {
                let next = now + CANDIDATE_HOLD * (1 << candidate.failures.min(4));
                candidate.failures = candidate.failures.saturating_add(1);
                candidate.exchange = Exchange::home_test(fresh, next);
            } else if is_first && !may_ask {
                candidate.exchange.schedule(ready);
            } else {
                candidate.exchange.apply(now, Event::Transmission { rivals: 1 });
                let (destination, cookie) = (candidate.destination, candidate.exchange.purpose.cookie);
                if is_first {
                    let _taken = self.questions.allow(now);
                }
                self.send_home_test_init(destination, cookie);
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
                registration.care_of_address != local || now >= registration.renew_at()
            })
    }

    /// Returns when [`Self::register`] is due.
    pub(super) fn registering_due(&self, now: Time, peer: &Peer) -> Option<Time> {
        if let Some(exchange) = &peer.exchange {
            return exchange.next();
        }
        if !Direct::is_wanted(now, peer) {
            return None;
        }
        match (self.is_needed(now, peer), &peer.registration) {
            // The registration continues when there is a tunnel.
            (true, _) if !self.has_tunnel && self.first_step(now, peer).is_none() => None,
            (true, _) => Some(peer.hold),
            (false, Some(registration)) if self.choice(peer).is_some() => Some(registration.renew_at()),
            (false, _) => None,
        }
    }

    /// Returns the first step that the existing tokens need, and this router's care-of address.
    fn first_step(&self, now: Time, peer: &Peer) -> Option<(Step, Ipv6Addr)> {
        let local = self.choice(peer)?;
        let home = peer.home.as_ref().filter(|home| is_fresh(now, home.since) && peer.remote.is_some());
        let Some(home) = home else {
            return self.has_tunnel.then(|| (Step::Home(HomeTests::default()), local));
        };
        let care_of = peer.care_of.filter(|it| it.care_of_address == local && is_fresh(now, it.since));
        let key = |it: CareOfToken| key(home.home, it.token, home.prefixes.iter().copied());
        Some((care_of.map_or(Step::CareOf, |token| Step::Update(key(token))), local))
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
            Some(exchange) if !exchange.is_due(now) => return,
            Some(exchange) if exchange.is_exhausted() => self.give_up(now, home_address),
            Some(_) | None => {}
        }
        let Some(peer) = self.peers.get(&home_address) else { return };
        if peer.exchange.is_none() {
            if peer.hold > now || !self.is_needed(now, peer) {
                return;
            }
            let Some((step, local)) = self.first_step(now, peer) else { return };
            let exchange = Exchange::of_step(step, local, self.rng.u64(), now);
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
        exchange.apply(now, Event::Transmission { rivals: 1 });
        let cookie = exchange.purpose.cookie;
        let remote = peer.remote.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let care_of_address = exchange.next_care_of_address();
        match (&exchange.purpose.step, care_of_address) {
            (Step::CareOf, Some(IpAddr::V6(local))) => {
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
            (Step::Update(key), Some(IpAddr::V6(local))) => {
                let key = *key;
                peer.sequence = peer.sequence.wrapping_add(1);
                let (sequence, care_of_address) = (peer.sequence, local.into());
                exchange.record(Sent { sequence, at: now, timestamp: None, care_of_address });
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
            // A Home Test Init has no care-of address.
            (Step::Home(_), _) | (_, None | Some(IpAddr::V4(_))) => {
                self.send_home_test_init(home_address, cookie);
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
        if exchange.home_tests().is_none() {
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
        if let Some((network, candidate)) = self.candidates.iter().find(|(_, c)| c.awaits(message.cookie)) {
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
                    candidate.exchange = Exchange::home_test(message.cookie, now + CANDIDATE_HOLD * 16);
                }
                return Ok(());
            }
            self.make_room(now, claim, false)?;
            debug_assert!(self.peers.len() < MAX_PEERS);
            let Some(candidate) = self.candidates.remove(&network) else { return Ok(()) };
            let mut peer = Peer::new(now, claim);
            peer.claim(now, claim);
            peer.used = Some(candidate.used);
            peer.exchange = Some(candidate.exchange);
            self.peers.insert(source, Box::new(peer));
        }
        let peer = self.peers.get_mut(&source).filter(|peer| peer.awaits(message.cookie));
        let exchange = peer.and_then(|peer| peer.exchange.as_mut());
        exchange.and_then(Exchange::home_tests_mut).ok_or(DirectDrop::Unasked)?.home = Some(answer);
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
        let candidate = self.candidates.values_mut().find(|candidate| candidate.awaits(message.cookie));
        let mut home_address = None;
        let exchange = match candidate {
            Some(candidate) => Some(&mut candidate.exchange),
            None => {
                let (home, peer) = asked(&mut self.peers, message.cookie)?;
                home_address = Some(home);
                peer.exchange.as_mut()
            }
        };
        let tests = exchange.and_then(Exchange::home_tests_mut).ok_or(DirectDrop::Unasked)?;
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
        let Some(tests) = peer.exchange.as_ref().and_then(Exchange::home_tests) else { return };
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
        let asked = peer.exchange.as_ref().filter(|exchange| exchange.is_from(local));
        if !asked.is_some_and(|exchange| matches!(exchange.purpose.step, Step::CareOf)) {
            return Err(DirectDrop::Unasked);
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
        let asked = peer.exchange.as_ref().filter(|exchange| exchange.is_from(local));
        let Some((exchange, Step::Update(key))) = asked.map(|it| (it, &it.purpose.step)) else {
            return Err(DirectDrop::Unasked);
        };
        // RFC 6275 11.7.3: an acknowledgement must answer an Update that was sent, with that Update's key,
        // unless its status means that there can be no key.
        if message.status != SEQUENCE_OUT_OF_WINDOW && exchange.find(message.sequence).is_none() {
            return Err(DirectDrop::Sequence);
        }
        let lacks_key = (EXPIRED_HOME_NONCE..=EXPIRED_NONCES).contains(&message.status);
        if !lacks_key && !verify(message, key) {
            return Err(DirectDrop::Authenticator);
        }
        let (key, since) = (*key, exchange.retransmission.started().unwrap_or(now));
        match message.status {
            0..128 => {
                let lifetime = lifetime_from_units(message.lifetime).min(MAX_RR_BINDING_LIFETIME);
                let until = since + lifetime;
                peer.registration = Some(Registration { care_of_address: local, key, since, until });
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
