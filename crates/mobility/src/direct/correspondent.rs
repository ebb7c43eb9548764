//! The other router's binding at this router: answers to its tests, and its Binding Updates (RFC 6275 5.2.5,
//! 9.4, 9.5).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{RateLimiter, Time};
use carnet_wire::mobility::direct_route::AUTHENTICATOR_LEN;
use carnet_wire::mobility::{DirectRoute, DirectRouteKind};
use ipnet::Ipv6Net;

use super::peer::{Binding, Peer};
use super::session_keys::DirectEnds;
use super::tokens::{BindingManagementKey, TestRequester, TokenSecret, sign_message, verify_message};
use super::{ASSIGNED_PREFIX_LENGTH, DirectDrop, DirectRouteState, MAX_RR_BINDING_LIFETIME, Output};
use crate::{OLD_PATH_GRACE, is_newer, is_unicast_routable, lifetime_from_units, lifetime_units};

/// Time for which an attacker could replay a Binding Update: `MAX_NONCE_LIFETIME` (RFC 6275 9.5.1, 12).
const REPLAYABLE_TIME: Duration = Duration::from_secs(240);
/// Statuses of a Binding Acknowledgement (RFC 6275 6.1.8).
const STATUS_UNSPECIFIED: u8 = 128;
const INSUFFICIENT_RESOURCES: u8 = 130;
const SEQUENCE_OUT_OF_WINDOW: u8 = 135;
const EXPIRED_HOME_NONCE: u8 = 136;
const EXPIRED_CARE_OF_NONCE: u8 = 137;
const EXPIRED_NONCES: u8 = 138;

impl DirectRouteState {
    /// Returns whether a message is authenticated by the key of its sender's binding, so that it comes from
    /// that router.
    fn is_authenticated_by_key(&self, message: &DirectRoute) -> bool {
        let binding = self.peers.get(&message.home_address).and_then(|peer| peer.binding.as_ref());
        let binding = binding.filter(|_| message.authenticator != [0; AUTHENTICATOR_LEN]);
        binding.is_some_and(|binding| binding.authenticating_key(message).is_some())
    }

    /// Counts `packets` answers. A router with a binding here (`bound`) has its own limit. All other sources,
    /// which may use any name, share one limit.
    fn allow_test_answers(
        &mut self,
        now: Time,
        bound: Option<Ipv6Addr>,
        packets: usize,
    ) -> Result<(), DirectDrop> {
        let bound = bound.and_then(|home_address| self.peers.get_mut(&home_address));
        let share = bound.map_or(&mut self.answer_limit, |peer| &mut peer.test_answer_limit);
        // Allow all `packets` answers or none, because a part of the tokens would be useless.
        if !share.try_take_tokens(now, packets as u32) {
            return Err(DirectDrop::RateLimited);
        }
        self.counters.answered_tests += packets as u64;
        Ok(())
    }

    /// Returns the limit of Binding Updates with the home address of a peer and a wrong authenticator.
    /// Updates from the peer's own care-of address and updates from other addresses have separate limits.
    fn forgery_limit(&mut self, home_address: Ipv6Addr, source: Ipv6Addr) -> &mut RateLimiter {
        let bound = self.peers.get_mut(&home_address);
        let bound = bound.filter(|peer| {
            peer.binding.as_ref().is_some_and(|binding| binding.accepts_care_of_address(source))
        });
        bound.map_or(&mut self.forgery_limit, |peer| &mut peer.forged_update_limit)
    }

    /// Computes the key of a Binding Update, and verifies the authenticator, if the limit permits it. Eight
    /// prefixes need twenty keyed hashes, and any source can cause this work. So after many wrong
    /// authenticators this router verifies no more for a while (RFC 6275 15.4.5).
    fn check_authenticator(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        update: &DirectRoute,
        key: impl FnOnce(&TokenSecret) -> BindingManagementKey,
    ) -> Result<BindingManagementKey, DirectDrop> {
        if !self.forgery_limit(update.home_address, source).has_token(now) {
            return Err(DirectDrop::RateLimited);
        }
        let key = key(&self.token_secret);
        if !verify_message(update, &key) {
            self.forgery_limit(update.home_address, source).try_take_token(now);
            return Err(DirectDrop::Authenticator);
        }
        Ok(key)
    }

    /// Answers a Home Test Init. Sends a Home Test to the sender's home address, and a Prefix Test to an
    /// address in each of its prefixes. These messages have a token each, and go through the home agents.
    ///
    /// A Prefix Test also contains this router's care-of address, because it goes only into one of the
    /// configured networks. A Home Test does not, because any node may have sent the request. Of this
    /// router's prefixes a Home Test names only the one that has the destination of the request.
    pub(super) fn answer_home_test_init(
        &mut self,
        now: Time,
        source: Ipv6Addr,
        destination: Ipv6Addr,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        let is_ours = destination == self.config.home_address
            || self.config.prefixes.iter().any(|prefix| prefix.contains(&destination));
        let can_answer = self.has_tunnel && self.has_required_own_key();
        let Some(care_of_address) = self.care_of_address_to_disclose(source).filter(|_| can_answer) else {
            return Err(DirectDrop::NotForUs);
        };
        if !is_ours {
            return Err(DirectDrop::NotForUs);
        }
        if source != message.home_address {
            return Err(DirectDrop::HomeAddress);
        }
        self.check_prefixes(source, &message.prefixes)?;
        let public_key = self.key_of_new_session(message)?;
        let bound = self.is_authenticated_by_key(message).then_some(source);
        self.allow_test_answers(now, bound, 1 + message.prefixes.len())?;
        let hint = message.care_of_address;
        if let Some(peer) = bound.and_then(|bound| self.peers.get_mut(&bound))
            && (peer.remote_care_of_address.is_none()
                || peer.heartbeats.has_failed()
                || peer.are_requests_unanswered)
            && is_unicast_routable(hint)
        {
            // Use the unproven care-of address only as the destination of this router's own test. The test
            // discloses this router's care-of address to the node there.
            peer.remote_care_of_address = Some(hint);
        }
        public_key.into_iter().for_each(|key| self.accept_sessions_of(now, key));
        let asker = TestRequester { home_address: source, public_key: public_key.as_ref() };
        let nonce = self.token_secret.current_nonce(now);
        let answer = DirectRoute {
            cookie: message.cookie,
            home_nonce: nonce.nonce_index(),
            home_address: self.config.home_address,
            public_key: self.own_key(),
            ..DirectRoute::new(DirectRouteKind::HomeTest)
        };
        let asked_at = Ipv6Net::new_assert(destination, ASSIGNED_PREFIX_LENGTH).trunc();
        let asked_at = self.config.prefixes.iter().copied().filter(|prefix| *prefix == asked_at);
        let home = DirectRoute {
            keygen_token: self.token_secret.home_token(nonce, asker),
            prefixes: asked_at.collect(),
            ..answer.clone()
        };
        self.send_through_home_agents(source, &home);
        for prefix in &message.prefixes {
            let test = DirectRoute {
                kind: DirectRouteKind::PrefixTest,
                keygen_token: self.token_secret.prefix_token(nonce, asker, *prefix),
                care_of_address,
                prefixes: vec![*prefix],
                ..answer.clone()
            };
            let destination = self.random_address(*prefix);
            self.send_through_home_agents(destination, &test);
        }
        Ok(())
    }

    /// Returns the care-of address of this router that its messages to another router contain. It is the
    /// registered address if its path works, otherwise the address that this router tries next. Returns
    /// `None` without a care-of address.
    fn care_of_address_to_disclose(&self, home_address: Ipv6Addr) -> Option<Ipv6Addr> {
        let Some(peer) = self.peers.get(&home_address) else {
            return self.care_of_addresses.first().copied();
        };
        let registered =
            self.path_of_peer(peer).filter(|_| !peer.heartbeats.has_failed()).map(|(local, _)| local);
        registered.or_else(|| self.care_of_address_to_register(peer))
    }

    /// Returns an unpredictable address of a prefix.
    fn random_address(&mut self, prefix: Ipv6Net) -> Ipv6Addr {
        let random = (u128::from(self.rng.random_u64()) << 64) | u128::from(self.rng.random_u64());
        Ipv6Addr::from(u128::from(prefix.network()) | (random & u128::from(prefix.hostmask())))
    }

    /// Answers a Care-of Test Init: sends a token to the care-of address.
    pub(super) fn answer_care_of_test_init(
        &mut self,
        now: Time,
        ends: DirectEnds,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        self.check_care_of_address(ends.remote, message)?;
        let bound = self.is_authenticated_by_key(message).then_some(message.home_address);
        self.allow_test_answers(now, bound, 1)?;
        let nonce = self.token_secret.current_nonce(now);
        let test = DirectRoute {
            cookie: message.cookie,
            keygen_token: self.token_secret.care_of_token(nonce, ends.remote),
            care_of_nonce: nonce.nonce_index(),
            care_of_address: ends.local,
            ..DirectRoute::new(DirectRouteKind::CareOfTest)
        };
        self.send_directly(ends, &test);
        Ok(())
    }

    /// Checks that a care-of address is the source of the message and in no mobile network. A care-of address
    /// in a mobile network could make packets loop.
    fn check_care_of_address(&self, source: Ipv6Addr, message: &DirectRoute) -> Result<(), DirectDrop> {
        let mut networks = self.config.prefixes.iter().chain(&message.prefixes);
        let is_good = message.care_of_address == source
            && is_unicast_routable(source)
            && !self.care_of_addresses.contains(&source)
            && !networks.any(|network| network.contains(&source));
        is_good.then_some(()).ok_or(DirectDrop::CareOfAddress)
    }

    pub(super) fn handle_binding_update(
        &mut self,
        now: Time,
        ends: DirectEnds,
        message: &DirectRoute,
    ) -> Result<(), DirectDrop> {
        self.check_care_of_address(ends.remote, message)?;
        let public_key = self.key_of_new_session(message)?;
        // The session proves that the sender has the key, and the authenticator that the key belongs to the
        // prefixes.
        if public_key.and_then(|key| self.session_keys.session_of(key)) != ends.session {
            return Err(DirectDrop::NotInSession);
        }
        let home_address = message.home_address;
        let known = self.peers.get(&home_address);
        let bound = known.and_then(|peer| peer.binding.as_ref());
        let heard = known
            .and_then(|peer| peer.last_sequence)
            .or_else(|| self.removed_sequence_numbers.find_sequence_number(now, home_address));
        let old = heard.filter(|(last, _)| !is_newer(message.sequence, *last));
        if message.lifetime == 0 {
            // A router that has the key may end its binding, even if its tokens have expired.
            let key = bound
                .map(|binding| binding.authenticating_key(message).unwrap_or(binding.key))
                .ok_or(DirectDrop::Unasked)?;
            self.check_authenticator(now, ends.remote, message, |_| key)?;
            if old.is_some() {
                return Err(DirectDrop::Sequence);
            }
            // Output the event before the binding is removed, because the event lists the prefixes of the
            // binding.
            self.set_route_direct(now, home_address, false, "it de-registered");
            if let Some(peer) = self.peers.get_mut(&home_address) {
                (peer.binding, peer.last_sequence) = (None, Some((message.sequence, now + REPLAYABLE_TIME)));
                peer.next_check_at = now;
            }
            self.outputs.push_back(Output::Routes);
            self.send_acknowledgement(ends, message, 0, Duration::ZERO, Some(&key));
            self.check_peer(now, home_address);
            return Ok(());
        }
        let nonces = (
            self.token_secret.valid_nonce(now, message.home_nonce),
            self.token_secret.valid_nonce(now, message.care_of_nonce),
        );
        let (home, care_of) = match nonces {
            (Some(home), Some(care_of)) => (home, care_of),
            expired => {
                let status = match expired {
                    (None, Some(_)) => EXPIRED_HOME_NONCE,
                    (Some(_), _) => EXPIRED_CARE_OF_NONCE,
                    (None, None) => EXPIRED_NONCES,
                };
                // RFC 6275 9.5.1: there is no key yet, so the answer has no authenticator, and the limit
                // for unauthenticated sources applies.
                self.allow_test_answers(now, None, 1)?;
                self.send_acknowledgement(ends, message, status, Duration::ZERO, None);
                return Err(DirectDrop::Nonce);
            }
        };
        // A route in the clear ignores the key of the sender, so its tokens do not depend on the key.
        let update = DirectRoute { public_key, ..message.clone() };
        let key = self.check_authenticator(now, ends.remote, message, |secret| {
            secret.key_of_update(&update, home, care_of)
        })?;
        if let Some((last, _)) = old {
            let refused = DirectRoute { sequence: last, ..message.clone() };
            self.send_acknowledgement(ends, &refused, SEQUENCE_OUT_OF_WINDOW, Duration::ZERO, Some(&key));
            return Err(DirectDrop::Sequence);
        }
        if let Err(reason) = self.check_prefixes(home_address, &message.prefixes) {
            self.send_acknowledgement(ends, message, STATUS_UNSPECIFIED, Duration::ZERO, Some(&key));
            return Err(reason);
        }
        // `first` succeeds, because an update with an empty list was refused before.
        let network = *message.prefixes.first().ok_or(DirectDrop::BadPrefix)?;
        if !self.peers.contains_key(&home_address)
            && let Err(reason) = self.make_room_for_peer(now, network, true)
        {
            self.send_acknowledgement(ends, message, INSUFFICIENT_RESOURCES, Duration::ZERO, Some(&key));
            return Err(reason);
        }
        let lifetime = lifetime_from_units(message.lifetime).min(MAX_RR_BINDING_LIFETIME);
        let peer = self.peers.entry(home_address).or_insert_with(|| Box::new(Peer::new(now, network)));
        peer.network_address = network.network();
        let before = peer.binding.take();
        let moved = before.as_ref().is_none_or(|before| before.care_of_address != ends.remote);
        let former_key = before.as_ref().and_then(|before| match before.key == key {
            true => before.former_key,
            false => Some(before.key),
        });
        let previous = match before {
            Some(before) if moved => Some((before.care_of_address, now + OLD_PATH_GRACE)),
            Some(before) => before.former_care_of_address,
            None => None,
        };
        peer.binding = Some(Binding {
            care_of_address: ends.remote,
            former_care_of_address: previous,
            prefixes: message.prefixes.clone(),
            public_key,
            key,
            former_key,
            expires_at: now + lifetime,
            is_route_wanted: message.status & 1 != 0,
        });
        peer.last_sequence = Some((message.sequence, now + lifetime + REPLAYABLE_TIME));
        (peer.remote_care_of_address, peer.are_requests_unanswered) = (Some(ends.remote), false);
        (peer.remote_key, peer.lacks_session_key) = (public_key, false);
        if moved || peer.heartbeats.has_failed() {
            peer.heartbeats.assume_working();
            // Earlier failures concerned another path, so they no longer delay tests.
            (peer.paused_until, peer.failure_count) = (now, 0);
        }
        for (other, peer) in &mut self.peers {
            if *other != home_address {
                peer.remove_proven_claims(&message.prefixes);
            }
        }
        self.counters.accepted_peer_updates += 1;
        // Change the data path before the answer leaves, because the other router may send packets as soon as
        // it has the answer.
        self.outputs.push_back(Output::Routes);
        self.send_acknowledgement(ends, message, 0, lifetime, Some(&key));
        self.check_peer(now, home_address);
        Ok(())
    }

    fn send_acknowledgement(
        &mut self,
        ends: DirectEnds,
        update: &DirectRoute,
        status: u8,
        lifetime: Duration,
        key: Option<&BindingManagementKey>,
    ) {
        let mut message = DirectRoute {
            sequence: update.sequence,
            lifetime: lifetime_units(lifetime),
            cookie: update.cookie,
            status,
            home_address: update.home_address,
            care_of_address: update.care_of_address,
            ..DirectRoute::new(DirectRouteKind::BindingAcknowledgement)
        };
        if let Some(key) = key {
            sign_message(&mut message, key);
        }
        self.send_directly(ends, &message);
    }
}
