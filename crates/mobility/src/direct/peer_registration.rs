//! Registration of this router with another one: the tests, the Binding Update and the renewal (RFC 6275
//! 11.6, 11.7.2).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::mobility::{DirectRoute, DirectRouteKind};
use ipnet::Ipv6Net;

use super::peer::{
    CandidateNetwork, CareOfToken, CompleteHomeTests, Exchange, HomeTests, Peer, PeerRequest, Registration,
    is_token_fresh,
};
use super::session_keys::DirectEnds;
use super::tokens::{BindingManagementKey, compute_binding_key, sign_message, verify_message};
use super::{
    ASSIGNED_PREFIX_LENGTH, DirectDrop, DirectRouteState, MAX_PEERS, MAX_RR_BINDING_LIFETIME,
    UNUSED_ROUTE_LIFETIME,
};
use crate::binding_update_list::{ExchangeEvent, Transmission};
use crate::{is_unicast_routable, lifetime_from_units, lifetime_units};

/// First pause after a failed registration; it doubles up to 64 s. [`PAUSE_AFTER_CANDIDATE_FAILURE`] is the
/// first pause for a network without a known router, 30 s, which doubles up to 8 minutes.
const FIRST_PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(1);
const PAUSE_AFTER_CANDIDATE_FAILURE: Duration = Duration::from_secs(30);
/// Time for which this router looks for the mobile router of a network, after the last packet to that
/// network.
const CANDIDATE_SEARCH_TIME: Duration = Duration::from_secs(10);
/// Statuses of an acknowledgement (RFC 6275 6.1.8).
const SEQUENCE_OUT_OF_WINDOW: u8 = 135;
const EXPIRED_HOME_NONCE: u8 = 136;
const EXPIRED_NONCES: u8 = 138;

/// Returns the peer that waits for an answer with this cookie.
fn peer_awaiting_answer_with_cookie(
    peers: &mut BTreeMap<Ipv6Addr, Box<Peer>>,
    cookie: u64,
) -> Result<(Ipv6Addr, &mut Peer), DirectDrop> {
    let asked = peers.iter_mut().find(|(_, peer)| peer.awaits_answer_with_cookie(cookie));
    asked.map(|(home_address, peer)| (*home_address, &mut **peer)).ok_or(DirectDrop::Unasked)
}

impl DirectRouteState {
    /// Returns when this router sends the next Home Test Init to a network whose router is unknown; `None` if
    /// no recent packet went there.
    pub(super) fn next_network_request_at(&self, candidate: &CandidateNetwork) -> Option<Time> {
        let able = self.has_tunnel && !self.care_of_addresses.is_empty() && self.has_required_own_key();
        candidate
            .home_test_exchange
            .next_transmission()
            .filter(|next| able && *next <= candidate.last_used_at + CANDIDATE_SEARCH_TIME)
    }

    pub(super) fn send_candidate_tests(&mut self, now: Time) {
        let due = |candidate: &CandidateNetwork| {
            self.next_network_request_at(candidate).is_some_and(|at| at <= now)
        };
        let mut due: Vec<(u32, u64)> = self
            .candidate_networks
            .iter()
            .filter(|(_, candidate)| due(candidate))
            .map(|(network, candidate)| (candidate.failure_count, *network))
            .collect();
        // The network that has waited longest comes first, so networks without an answer do not delay
        // others.
        due.sort_unstable();
        for (_, network) in due {
            let may_ask = self.request_limit.has_token(now);
            let ready = self.request_limit.token_available_at(now);
            let fresh = self.rng.random_u64();
            let Some(candidate) = self.candidate_networks.get_mut(&network) else { continue };
            let is_first = candidate.home_test_exchange.retransmission.has_no_unanswered_transmission();
            if candidate.home_test_exchange.is_exhausted() {
                let next = now + PAUSE_AFTER_CANDIDATE_FAILURE * (1 << candidate.failure_count.min(4));
                candidate.failure_count = candidate.failure_count.saturating_add(1);
                candidate.home_test_exchange = Exchange::home_test(fresh, next);
            } else if is_first && !may_ask {
                candidate.home_test_exchange.schedule_transmission(ready);
            } else {
                candidate.home_test_exchange.apply_event(now, ExchangeEvent::Transmission { rivals: 1 });
                let (destination, cookie) =
                    (candidate.destination, candidate.home_test_exchange.purpose.cookie);
                if is_first {
                    let _taken = self.request_limit.try_take_token(now);
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
            public_key: self.own_key(),
            ..DirectRoute::new(DirectRouteKind::HomeTestInit)
        };
        if let Some(key) = self.key_of_peer(destination) {
            message.care_of_address =
                self.care_of_addresses.first().copied().unwrap_or(Ipv6Addr::UNSPECIFIED);
            sign_message(&mut message, &key);
        }
        self.counters.tests += 1;
        self.send_through_home_agents(destination, &message);
    }

    /// Returns the key of this router's registration with another router; `None` without such a registration.
    fn key_of_peer(&self, home_address: Ipv6Addr) -> Option<BindingManagementKey> {
        Some(self.peers.get(&home_address)?.registration.as_ref()?.key)
    }

    /// Returns whether packets go to the other router, or come from it.
    pub(super) fn is_route_used(now: Time, peer: &Peer) -> bool {
        peer.last_used_at.is_some_and(|used| now.saturating_since(used) <= UNUSED_ROUTE_LIFETIME)
            || peer.binding.as_ref().is_some_and(|binding| binding.is_route_wanted)
    }

    /// Returns the care-of address that this router registers with the peer; `None` if this router has no
    /// care-of address.
    pub(super) fn care_of_address_to_register(&self, peer: &Peer) -> Option<Ipv6Addr> {
        let count = self.care_of_addresses.len().max(1);
        self.care_of_addresses.get(peer.care_of_index % count).copied()
    }

    fn is_registration_needed(&self, now: Time, peer: &Peer) -> bool {
        let Some(local) = self.care_of_address_to_register(peer) else { return false };
        peer.heartbeats.has_failed()
            || peer.registration.as_ref().is_none_or(|registration| {
                registration.care_of_address != local || now >= registration.renew_at()
            })
    }

    /// Returns when [`Self::send_due_registration`] is due; `None` if no registration is necessary or
    /// possible now.
    pub(super) fn next_registration_at(&self, now: Time, peer: &Peer) -> Option<Time> {
        if let Some(exchange) = &peer.outstanding_exchange {
            return exchange.next_transmission();
        }
        if !DirectRouteState::is_route_used(now, peer) {
            return None;
        }
        match (self.is_registration_needed(now, peer), &peer.registration) {
            // Without a tunnel the router cannot send Home Test Inits, so the registration waits.
            (true, _) if !self.has_tunnel && self.first_missing_request(now, peer).is_none() => None,
            (true, _) => Some(peer.paused_until),
            (false, Some(registration)) if self.care_of_address_to_register(peer).is_some() => {
                Some(registration.renew_at())
            }
            (false, _) => None,
        }
    }

    /// Returns the first request that is necessary with the present tokens, and this router's care-of
    /// address; `None` if the router can send no request.
    fn first_missing_request(&self, now: Time, peer: &Peer) -> Option<(PeerRequest, Ipv6Addr)> {
        let local = self.care_of_address_to_register(peer)?;
        let home = peer
            .home_tokens
            .as_ref()
            .filter(|home| is_token_fresh(now, home.received_at) && peer.remote_care_of_address.is_some());
        let Some(home) = home else {
            let can_ask = self.has_tunnel && self.has_required_own_key();
            return can_ask.then(|| (PeerRequest::Home(HomeTests::default()), local));
        };
        let care_of = peer
            .care_of_token
            .filter(|it| it.care_of_address == local && is_token_fresh(now, it.received_at));
        let key = |it: CareOfToken| {
            compute_binding_key(home.home_token, it.care_of_token, home.prefix_tokens.iter().copied())
        };
        Some((care_of.map_or(PeerRequest::CareOf, |token| PeerRequest::Update(key(token))), local))
    }

    /// Sends the next request of a registration if it is due.
    pub(super) fn send_due_registration(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get(&home_address) else { return };
        if !DirectRouteState::is_route_used(now, peer) {
            if peer.registration.is_some() || peer.outstanding_exchange.is_some() {
                self.end_registration(now, home_address, "not used");
            }
            return;
        }
        match &peer.outstanding_exchange {
            Some(exchange) if !exchange.is_due(now) => return,
            Some(exchange) if exchange.is_exhausted() => self.give_up_registration(now, home_address),
            Some(_) | None => {}
        }
        let Some(peer) = self.peers.get(&home_address) else { return };
        if peer.outstanding_exchange.is_none() {
            if peer.paused_until > now || !self.is_registration_needed(now, peer) {
                return;
            }
            let Some((request, local)) = self.first_missing_request(now, peer) else { return };
            let exchange = Exchange::for_request(request, local, self.rng.random_u64(), now);
            if let Some(peer) = self.peers.get_mut(&home_address) {
                peer.outstanding_exchange = Some(exchange);
            }
        }
        self.send_request(now, home_address);
    }

    fn send_request(&mut self, now: Time, home_address: Ipv6Addr) {
        let registered = self.key_of_peer(home_address);
        let session = self.peers.get(&home_address).and_then(|peer| self.session_of_peer(peer));
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        let Some(exchange) = &mut peer.outstanding_exchange else { return };
        exchange.apply_event(now, ExchangeEvent::Transmission { rivals: 1 });
        let cookie = exchange.purpose.cookie;
        let remote = peer.remote_care_of_address.unwrap_or(Ipv6Addr::UNSPECIFIED);
        let care_of_address = exchange.next_care_of_address();
        match (&exchange.purpose.peer_request, care_of_address) {
            (PeerRequest::CareOf, Some(IpAddr::V6(local))) => {
                let mut message = DirectRoute {
                    cookie,
                    home_address: self.config.home_address,
                    care_of_address: local,
                    ..DirectRoute::new(DirectRouteKind::CareOfTestInit)
                };
                if let Some(key) = registered {
                    sign_message(&mut message, &key);
                }
                self.send_directly(DirectEnds { local, remote, session }, &message);
            }
            (PeerRequest::Update(key), Some(IpAddr::V6(local))) => {
                let key = *key;
                peer.sequence = peer.sequence.wrapping_add(1);
                let (sequence, care_of_address) = (peer.sequence, local.into());
                exchange.record_transmission(Transmission {
                    sequence,
                    sent_at: now,
                    timestamp: None,
                    care_of_address,
                });
                let message = DirectRoute {
                    sequence: peer.sequence,
                    lifetime: lifetime_units(MAX_RR_BINDING_LIFETIME),
                    cookie,
                    home_nonce: peer.home_tokens.as_ref().map_or(0, |home| home.nonce_index),
                    care_of_nonce: peer.care_of_token.map_or(0, |token| token.nonce_index),
                    status: u8::from(
                        peer.last_used_at
                            .is_some_and(|used| now.saturating_since(used) <= UNUSED_ROUTE_LIFETIME),
                    ),
                    ..DirectRoute::new(DirectRouteKind::BindingUpdate)
                };
                self.send_update(DirectEnds { local, remote, session }, message, &key);
            }
            // A Home Test Init needs no care-of address; it leaves from the home address.
            (PeerRequest::Home(_), _) | (_, None | Some(IpAddr::V4(_))) => {
                self.send_home_test_init(home_address, cookie);
            }
        }
    }

    fn send_update(&mut self, ends: DirectEnds, message: DirectRoute, key: &BindingManagementKey) {
        let mut message = DirectRoute {
            home_address: self.config.home_address,
            care_of_address: ends.local,
            prefixes: self.config.prefixes.clone(),
            public_key: self.own_key(),
            ..message
        };
        sign_message(&mut message, key);
        self.send_directly(ends, &message);
    }

    /// Handles a request that got no answer.
    fn give_up_registration(&mut self, now: Time, home_address: Ipv6Addr) {
        let count = self.care_of_addresses.len();
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        let Some(exchange) = peer.outstanding_exchange.take() else { return };
        if exchange.home_tests().is_none() {
            peer.care_of_token = None;
            if peer.care_of_index + 1 < count {
                // The access network of this care-of address may drop direct packets, so try the next
                // address.
                peer.care_of_index += 1;
                return;
            }
            // The other router may have moved. Its answer to a Home Test Init, which goes through the home
            // agents, has its new care-of address.
            (peer.care_of_index, peer.home_tokens, peer.are_requests_unanswered) = (0, None, true);
        }
        self.delay_next_registration(now, home_address);
    }

    fn delay_next_registration(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        peer.outstanding_exchange = None;
        peer.paused_until = now + FIRST_PAUSE_AFTER_FAILURE * (1 << peer.failure_count.min(6));
        peer.failure_count = peer.failure_count.saturating_add(1);
    }

    /// Ends this router's registration with another router, which then sends packets through the home agents.
    pub(super) fn end_registration(&mut self, now: Time, home_address: Ipv6Addr, reason: &'static str) {
        let session = self.peers.get(&home_address).and_then(|peer| self.session_of_peer(peer));
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        // The tokens that came through the home agents stay valid: with a new care-of address this router
        // needs no new ones.
        (peer.outstanding_exchange, peer.care_of_token) = (None, None);
        let registration = peer.registration.take();
        let bound =
            peer.binding.as_ref().map(|binding| binding.care_of_address).or(peer.remote_care_of_address);
        peer.sequence = peer.sequence.wrapping_add(1);
        let sequence = peer.sequence;
        if let (Some(registration), Some(remote)) = (registration, bound)
            && self.care_of_addresses.contains(&registration.care_of_address)
        {
            let message = DirectRoute { sequence, ..DirectRoute::new(DirectRouteKind::BindingUpdate) };
            let ends = DirectEnds { local: registration.care_of_address, remote, session };
            self.send_update(ends, message, &registration.key);
        }
        self.set_route_direct(now, home_address, false, reason);
    }

    /// Handles a Home Test: the token for the home address, and the care-of address of the sender.
    pub(super) fn handle_home_test(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        if destination != self.config.home_address || source != message.home_address {
            return Err(DirectDrop::NotForUs);
        }
        if let Some((network, candidate)) =
            self.candidate_networks.iter().find(|(_, c)| c.awaits_answer_with_cookie(message.cookie))
        {
            let (network, destination) = (*network, candidate.destination);
            // The sender has proven nothing yet, so it can claim only the network for which this router
            // asked.
            let claim = Ipv6Net::new_assert(destination, ASSIGNED_PREFIX_LENGTH).trunc();
            if !message.prefixes.contains(&claim) {
                return Err(DirectDrop::BadPrefix);
            }
            self.check_prefixes(source, &[claim])?;
            if let Some(peer) = self.peers.get_mut(&source) {
                // This router already knows the sender by other prefixes, so it only adds the claim.
                peer.record_prefix_claim(now, claim);
                if let Some(candidate) = self.candidate_networks.get_mut(&network) {
                    // If the router never proves that it has this prefix, the long pause limits further
                    // requests.
                    candidate.home_test_exchange =
                        Exchange::home_test(message.cookie, now + PAUSE_AFTER_CANDIDATE_FAILURE * 16);
                }
                return Ok(());
            }
            self.make_room_for_peer(now, claim, false)?;
            debug_assert!(self.peers.len() < MAX_PEERS);
            let Some(candidate) = self.candidate_networks.remove(&network) else { return Ok(()) };
            let mut peer = Peer::new(now, claim);
            peer.record_prefix_claim(now, claim);
            peer.last_used_at = Some(candidate.last_used_at);
            peer.outstanding_exchange = Some(candidate.home_test_exchange);
            self.peers.insert(source, Box::new(peer));
        }
        let key = self.key_of_new_session(message);
        let peer = self.peers.get_mut(&source).filter(|peer| peer.awaits_answer_with_cookie(message.cookie));
        let exchange = peer.and_then(|peer| peer.outstanding_exchange.as_mut());
        let tests = exchange.and_then(Exchange::home_tests_mut).ok_or(DirectDrop::Unasked)?;
        if let Err(reason) = key {
            self.handle_missing_key(now, source);
            return Err(reason);
        }
        tests.record_home_test(message);
        self.handle_complete_home_tests(now, source);
        Ok(())
    }

    /// Handles an answer without a key, although this router demands one.
    fn handle_missing_key(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        if !std::mem::replace(&mut peer.lacks_session_key, true) {
            let message = format!(
                "no direct route to the mobile router {home_address}: it has no key for an encrypted route, \
                 or direct_encryption = \"off\""
            );
            self.outputs.push_back(super::Output::Event(crate::Event::Warning { message }));
        }
        peer.failure_count = u32::MAX;
        self.delay_next_registration(now, home_address);
        self.check_peer(now, home_address);
    }

    /// Handles a Prefix Test: the token for one of this router's prefixes.
    pub(super) fn handle_prefix_test(
        &mut self,
        now: Time,
        destination: Ipv6Addr,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        let prefix = *message.prefixes.first().ok_or(DirectDrop::Malformed)?;
        if !prefix.contains(&destination) {
            return Err(DirectDrop::NotForUs);
        }
        let candidate = self
            .candidate_networks
            .values_mut()
            .find(|candidate| candidate.awaits_answer_with_cookie(message.cookie));
        let mut home_address = None;
        let exchange = match candidate {
            Some(candidate) => Some(&mut candidate.home_test_exchange),
            None => {
                let (home, peer) = peer_awaiting_answer_with_cookie(&mut self.peers, message.cookie)?;
                home_address = Some(home);
                peer.outstanding_exchange.as_mut()
            }
        };
        let tests = exchange.and_then(Exchange::home_tests_mut).ok_or(DirectDrop::Unasked)?;
        if !is_unicast_routable(message.care_of_address) {
            return Err(DirectDrop::CareOfAddress);
        }
        if !tests.record_prefix_test(&self.config.prefixes, prefix, message) {
            return Err(DirectDrop::BadPrefix);
        }
        if let Some(home_address) = home_address {
            self.handle_complete_home_tests(now, home_address);
        }
        Ok(())
    }

    /// Sends the next request if the tokens of the home address and of all prefixes have arrived.
    fn handle_complete_home_tests(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(peer) = self.peers.get_mut(&home_address) else { return };
        let Some(tests) = peer.outstanding_exchange.as_ref().and_then(Exchange::home_tests) else { return };
        let tests = tests.received_tokens(now, &self.config.prefixes);
        let mut learned_key = None;
        if let Some(CompleteHomeTests { tokens, care_of_address, public_key }) = tests {
            (peer.home_tokens, peer.outstanding_exchange) = (Some(tokens), None);
            // As long as the path to it works, prefer the care-of address that the other router has proven by
            // its binding.
            let bound = peer
                .binding
                .as_ref()
                .filter(|_| !peer.heartbeats.has_failed() && !peer.are_requests_unanswered);
            peer.remote_care_of_address =
                Some(bound.map_or(care_of_address, |binding| binding.care_of_address));
            if self.config.requires_sessions {
                peer.remote_key = bound.map_or(public_key, |binding| binding.public_key);
                (learned_key, peer.lacks_session_key) = (peer.remote_key, false);
            }
            (peer.paused_until, peer.care_of_index) = (now, 0);
        }
        learned_key.into_iter().for_each(|key| self.accept_sessions_of(now, key));
        self.check_peer(now, home_address);
    }

    /// Handles a Care-of Test: the token for a care-of address.
    pub(super) fn handle_care_of_test(
        &mut self,
        now: Time,
        ends: DirectEnds,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        let DirectEnds { local, remote, .. } = ends;
        let (home_address, peer) = peer_awaiting_answer_with_cookie(&mut self.peers, message.cookie)?;
        self.session_keys.check_session(peer.remote_key, ends)?;
        let asked =
            peer.outstanding_exchange.as_ref().filter(|exchange| exchange.uses_care_of_address(local));
        if !asked.is_some_and(|exchange| matches!(exchange.purpose.peer_request, PeerRequest::CareOf)) {
            return Err(DirectDrop::Unasked);
        }
        if peer.remote_care_of_address != Some(remote) {
            return Err(DirectDrop::CareOfAddress);
        }
        let (token, nonce) = (message.keygen_token, message.care_of_nonce);
        peer.care_of_token = Some(CareOfToken {
            care_of_address: local,
            care_of_token: token,
            nonce_index: nonce,
            received_at: now,
        });
        (peer.outstanding_exchange, peer.paused_until) = (None, now);
        self.check_peer(now, home_address);
        Ok(())
    }

    /// Handles the answer to a Binding Update.
    pub(super) fn handle_acknowledgement(
        &mut self,
        now: Time,
        ends: DirectEnds,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        let DirectEnds { local, remote, .. } = ends;
        let (home_address, peer) = peer_awaiting_answer_with_cookie(&mut self.peers, message.cookie)?;
        self.session_keys.check_session(peer.remote_key, ends)?;
        let asked =
            peer.outstanding_exchange.as_ref().filter(|exchange| exchange.uses_care_of_address(local));
        let Some((exchange, PeerRequest::Update(key))) = asked.map(|it| (it, &it.purpose.peer_request))
        else {
            return Err(DirectDrop::Unasked);
        };
        // RFC 6275 11.7.3: an acknowledgement must have the sequence number and key of a Binding Update that
        // this router sent. An acknowledgement whose status says that the other router has no key needs no
        // authenticator.
        if message.status != SEQUENCE_OUT_OF_WINDOW && exchange.find_transmission(message.sequence).is_none()
        {
            return Err(DirectDrop::Sequence);
        }
        let lacks_session_key = (EXPIRED_HOME_NONCE..=EXPIRED_NONCES).contains(&message.status);
        if !lacks_session_key && !verify_message(message, key) {
            return Err(DirectDrop::Authenticator);
        }
        let (key, sent_at) = (*key, exchange.retransmission.first_sent_at().unwrap_or(now));
        match message.status {
            0..128 => {
                let lifetime = lifetime_from_units(message.lifetime).min(MAX_RR_BINDING_LIFETIME);
                let expires = sent_at + lifetime;
                peer.registration =
                    Some(Registration { care_of_address: local, key, sent_at, expires_at: expires });
                (peer.outstanding_exchange, peer.failure_count, peer.are_requests_unanswered) =
                    (None, 0, false);
                // The acknowledgement shows that the path works only if it came from the care-of address in
                // the other router's binding.
                if peer.binding.as_ref().is_none_or(|binding| binding.care_of_address == remote) {
                    peer.heartbeats.assume_working();
                }
                self.counters.accepted_own_updates += 1;
                self.outputs.push_back(super::Output::Routes);
            }
            SEQUENCE_OUT_OF_WINDOW => {
                // RFC 6275 11.7.3: the next Binding Update uses a number after the one in the
                // acknowledgement.
                peer.sequence = message.sequence;
                peer.outstanding_exchange = None;
                self.delay_next_registration(now, home_address);
            }
            EXPIRED_HOME_NONCE..=EXPIRED_NONCES => {
                (peer.home_tokens, peer.care_of_token) = (None, None);
                self.delay_next_registration(now, home_address);
            }
            _ => {
                peer.state_reason = "it refuses";
                self.delay_next_registration(now, home_address);
            }
        }
        self.check_peer(now, home_address);
        Ok(())
    }
}
