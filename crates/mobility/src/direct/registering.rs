//! Registration of this router with another one: the tests, the Binding Update and the renewal (RFC 6275
//! 11.6, 11.7.2).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mobility::{DirectRoute, DirectRouteKind};
use ipnet::Ipv6Net;

use super::liveness::Ends;
use super::peer::{
    CandidateNetwork, CareOfToken, Exchange, HomeTests, Peer, Registration, Request, is_fresh,
};
use super::tokens::{Key, key, sign, verify};
use super::{Direct, DirectDrop, IDLE, LENGTH, MAX_PEERS, MAX_RR_BINDING_LIFETIME};
use crate::binding_update_list::{Event, Transmission};
use crate::{is_unicast_routable, lifetime_from_units, lifetime_units};

/// First pause after a failed registration; it doubles up to 64 s. [`CANDIDATE_HOLD`] is the first pause for
/// a network without a known router, 30 s, which doubles up to 8 minutes.
const HOLD: Duration = Duration::from_secs(1);
const CANDIDATE_HOLD: Duration = Duration::from_secs(30);
/// Time for which this router looks for the mobile router of a network, after the last packet to that
/// network.
const LATELY: Duration = Duration::from_secs(10);
/// Statuses of an acknowledgement (RFC 6275 6.1.8).
const SEQUENCE_OUT_OF_WINDOW: u8 = 135;
const EXPIRED_HOME_NONCE: u8 = 136;
const EXPIRED_NONCES: u8 = 138;

/// Returns the peer that waits for an answer with this cookie.
fn asked(
    peers: &mut BTreeMap<Ipv6Addr, Box<Peer>>,
    cookie: u64,
) -> Result<(Ipv6Addr, &mut Peer), DirectDrop> {
    let asked = peers.iter_mut().find(|(_, peer)| peer.awaits(cookie));
    asked.map(|(home_address, peer)| (*home_address, &mut **peer)).ok_or(DirectDrop::Unasked)
}

impl Direct {
    /// Returns when this router asks for the router of a network; `None` if no recent packet went there.
    pub(super) fn due(&self, candidate: &CandidateNetwork) -> Option<Time> {
        let able = self.has_tunnel && !self.care_of_addresses.is_empty();
        candidate.exchange.next_transmission().filter(|next| able && *next <= candidate.used + LATELY)
    }

    pub(super) fn ask_candidates(&mut self, now: Time) {
        let due = |candidate: &CandidateNetwork| self.due(candidate).is_some_and(|at| at <= now);
        let mut due: Vec<(u32, u64)> = self
            .candidates
            .iter()
            .filter(|(_, candidate)| due(candidate))
            .map(|(network, candidate)| (candidate.failures, *network))
            .collect();
        // The network that has waited longest comes first, so networks without an answer do not delay
        // others.
        due.sort_unstable();
        for (_, network) in due {
            let may_ask = self.questions.has_token(now);
            let ready = self.questions.token_available_at(now);
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

    /// Sends a Home Test Init. If this router is registered with the router at `destination`, the message
    /// contains this router's care-of address, authenticated by the key. Otherwise the message contains no
    /// care-of address, because the destination has proven nothing yet.
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

    /// Returns the key of this router's registration with another router; `None` without such a registration.
    fn key_at(&self, home_address: Ipv6Addr) -> Option<Key> {
        Some(self.peers.get(&home_address)?.registration.as_ref()?.key)
    }

    /// Returns whether packets go to or from this router.
    fn is_wanted(now: Time, peer: &Peer) -> bool {
        peer.used.is_some_and(|used| now.saturating_since(used) <= IDLE)
            || peer.binding.as_ref().is_some_and(|binding| binding.is_wanted)
    }

    /// Returns the care-of address that this router registers with the peer.
    pub(super) fn choice(&self, peer: &Peer) -> Option<Ipv6Addr> {
        let count = self.care_of_addresses.len().max(1);
        self.care_of_addresses.get(peer.care_of_index % count).copied()
    }

    fn is_needed(&self, now: Time, peer: &Peer) -> bool {
        let Some(local) = self.choice(peer) else { return false };
        peer.heartbeats.has_failed()
            || peer.registration.as_ref().is_none_or(|registration| {
                registration.care_of_address != local || now >= registration.renew_at()
            })
    }

    /// Returns when [`Self::register`] is due; `None` if no registration is necessary or possible now.
    pub(super) fn registering_due(&self, now: Time, peer: &Peer) -> Option<Time> {
        if let Some(exchange) = &peer.exchange {
            return exchange.next_transmission();
        }
        if !Direct::is_wanted(now, peer) {
            return None;
        }
        match (self.is_needed(now, peer), &peer.registration) {
            // Without a tunnel the router cannot send Home Test Inits, so the registration waits.
            (true, _) if !self.has_tunnel && self.first_request(now, peer).is_none() => None,
            (true, _) => Some(peer.hold_until),
            (false, Some(registration)) if self.choice(peer).is_some() => Some(registration.renew_at()),
            (false, _) => None,
        }
    }

    /// Returns the first request that is necessary with the present tokens, and this router's care-of
    /// address; `None` if the router can send no request.
    fn first_request(&self, now: Time, peer: &Peer) -> Option<(Request, Ipv6Addr)> {
        let local = self.choice(peer)?;
        let home = peer.home.as_ref().filter(|home| is_fresh(now, home.received_at) && peer.remote.is_some());
        let Some(home) = home else {
            return self.has_tunnel.then(|| (Request::Home(HomeTests::default()), local));
        };
        let care_of = peer.care_of.filter(|it| it.care_of_address == local && is_fresh(now, it.received_at));
        let key = |it: CareOfToken| key(home.home, it.token, home.prefixes.iter().copied());
        Some((care_of.map_or(Request::CareOf, |token| Request::Update(key(token))), local))
    }

    /// Sends the next request of a registration if it is due.
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
            if peer.hold_until > now || !self.is_needed(now, peer) {
                return;
            }
            let Some((request, local)) = self.first_request(now, peer) else { return };
            let exchange = Exchange::of_request(request, local, self.rng.u64(), now);
            if let Some(peer) = self.peers.get_mut(&home_address) {
                peer.exchange = Some(exchange);
            }
        }
        self.send_request(now, home_address);
    }

    fn send_request(&mut self, now: Time, home_address: Ipv6Addr) {
        let registered = self.key_at(home_address);
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        let Some(exchange) = &mut peer.exchange else { return };
        exchange.apply(now, Event::Transmission { rivals: 1 });
        let cookie = exchange.purpose.cookie;
        let remote = peer.remote.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let care_of_address = exchange.next_care_of_address();
        match (&exchange.purpose.request, care_of_address) {
            (Request::CareOf, Some(IpAddr::V6(local))) => {
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
            (Request::Update(key), Some(IpAddr::V6(local))) => {
                let key = *key;
                peer.sequence = peer.sequence.wrapping_add(1);
                let (sequence, care_of_address) = (peer.sequence, local.into());
                exchange.record(Transmission { sequence, at: now, timestamp: None, care_of_address });
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
            // A Home Test Init needs no care-of address; it leaves from the home address.
            (Request::Home(_), _) | (_, None | Some(IpAddr::V4(_))) => {
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

    /// Handles a request that got no answer.
    fn give_up(&mut self, now: Time, home_address: Ipv6Addr) {
        let count = self.care_of_addresses.len();
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        let Some(exchange) = peer.exchange.take() else { return };
        if exchange.home_tests().is_none() {
            peer.care_of = None;
            if peer.care_of_index + 1 < count {
                // The access network of this care-of address may drop direct packets, so try the next
                // address.
                peer.care_of_index += 1;
                return;
            }
            // The other router may have moved. A Home Test Init through the home agents makes it name its new
            // care-of address.
            (peer.care_of_index, peer.home, peer.is_unanswered) = (0, None, true);
        }
        self.back_off(now, home_address);
    }

    fn back_off(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        peer.exchange = None;
        peer.hold_until = now + HOLD * (1 << peer.failures.min(6));
        peer.failures = peer.failures.saturating_add(1);
    }

    /// Ends this router's registration with another router, which then sends packets through the home agents.
    pub(super) fn end(&mut self, now: Time, home_address: Ipv6Addr, reason: &'static str) {
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        // The tokens that came through the home agents stay valid: with a new care-of address this router
        // needs no new ones.
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

    /// Handles a Home Test: the token for the home address, and the care-of address of the sender.
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
        let answer = (message.keygen_token, message.home_nonce);
        if let Some((network, candidate)) = self.candidates.iter().find(|(_, c)| c.awaits(message.cookie)) {
            let (network, destination) = (*network, candidate.destination);
            // The sender has proven nothing yet, so it can claim only the network for which this router
            // asked.
            let claim = Ipv6Net::new_assert(destination, LENGTH).trunc();
            if !message.prefixes.contains(&claim) {
                return Err(DirectDrop::BadPrefix);
            }
            self.check_prefixes(source, &[claim])?;
            if let Some(peer) = self.peers.get_mut(&source) {
                // This router already knows the sender by other prefixes, so it only adds the claim.
                peer.claim(now, claim);
                if let Some(candidate) = self.candidates.get_mut(&network) {
                    // If the router never proves that it has this prefix, the long pause limits further
                    // requests.
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

    /// Handles a Prefix Test: the token for one of this router's prefixes.
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
        if !tests.record(&self.config.prefixes, prefix, message) {
            return Err(DirectDrop::BadPrefix);
        }
        if let Some(home_address) = home_address {
            self.home_tests_came(now, home_address);
        }
        Ok(())
    }

    /// Sends the next request if the tokens of the home address and of all prefixes have arrived.
    fn home_tests_came(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        let Some(tests) = peer.exchange.as_ref().and_then(Exchange::home_tests) else { return };
        if let Some((tokens, care_of_address)) = tests.tokens(now, &self.config.prefixes) {
            (peer.home, peer.exchange) = (Some(tokens), None);
            // The proven care-of address is preferred as long as its path works.
            let bound =
                peer.binding.as_ref().filter(|_| !peer.heartbeats.has_failed() && !peer.is_unanswered);
            peer.remote = Some(bound.map_or(care_of_address, |binding| binding.care_of_address));
            (peer.hold_until, peer.care_of_index) = (now, 0);
        }
        self.look(now, home_address);
    }

    /// Handles a Care-of Test: the token for a care-of address.
    pub(super) fn take_care_of_test(
        &mut self,
        now: Time,
        (local, remote): Ends,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        let (home_address, peer) = asked(&mut self.peers, message.cookie)?;
        let asked = peer.exchange.as_ref().filter(|exchange| exchange.is_from(local));
        if !asked.is_some_and(|exchange| matches!(exchange.purpose.request, Request::CareOf)) {
            return Err(DirectDrop::Unasked);
        }
        if peer.remote != Some(remote) {
            return Err(DirectDrop::CareOfAddress);
        }
        let (token, nonce) = (message.keygen_token, message.care_of_nonce);
        peer.care_of = Some(CareOfToken { care_of_address: local, token, nonce, received_at: now });
        (peer.exchange, peer.hold_until) = (None, now);
        self.look(now, home_address);
        Ok(())
    }

    /// Handles the answer to a Binding Update.
    pub(super) fn take_acknowledgement(
        &mut self,
        now: Time,
        (local, remote): Ends,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        let (home_address, peer) = asked(&mut self.peers, message.cookie)?;
        let asked = peer.exchange.as_ref().filter(|exchange| exchange.is_from(local));
        let Some((exchange, Request::Update(key))) = asked.map(|it| (it, &it.purpose.request)) else {
            return Err(DirectDrop::Unasked);
        };
        // RFC 6275 11.7.3: an acknowledgement must have the sequence number and key of a Binding Update that
        // this router sent. An acknowledgement whose status says that the other router has no key needs no
        // authenticator.
        if message.status != SEQUENCE_OUT_OF_WINDOW && exchange.find(message.sequence).is_none() {
            return Err(DirectDrop::Sequence);
        }
        let lacks_key = (EXPIRED_HOME_NONCE..=EXPIRED_NONCES).contains(&message.status);
        if !lacks_key && !verify(message, key) {
            return Err(DirectDrop::Authenticator);
        }
        let (key, sent_at) = (*key, exchange.retransmission.started().unwrap_or(now));
        match message.status {
            0..128 => {
                let lifetime = lifetime_from_units(message.lifetime).min(MAX_RR_BINDING_LIFETIME);
                let expires = sent_at + lifetime;
                peer.registration = Some(Registration { care_of_address: local, key, sent_at, expires });
                (peer.exchange, peer.failures, peer.is_unanswered) = (None, 0, false);
                // An acknowledgement from another address does not show that packets reach the bound
                // address.
                if peer.binding.as_ref().is_none_or(|binding| binding.care_of_address == remote) {
                    peer.heartbeats.renew();
                }
                self.counters.registered += 1;
                self.outputs.push_back(super::Output::Routes);
            }
            SEQUENCE_OUT_OF_WINDOW => {
                // RFC 6275 11.7.3: the next Binding Update uses a number after the one in the
                // acknowledgement.
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
