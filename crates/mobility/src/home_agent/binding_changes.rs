//! Applies the result of the validation of a Binding Update: bindings begin, move and end (RFC 6275 10.3.1
//! and 10.3.2, RFC 5648 6.2).

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Time, WallTime, mapped};
use carnet_wire::mobility::binding_status::BindingStatus;

use super::acknowledgements::AcknowledgementContent;
use super::binding::{Binding, BindingState, CareOfAddressAge, FormerPath, NewBinding};
use super::care_of_test::TESTED_ADDRESS_LIFETIME;
use super::flows::{self, FlowAnswers};
use super::replay_state::ReplayState;
use super::request::BindingUpdateRequest;
use super::update_checks::{Registration, UpdateVerdict, judge_request};
use super::{HomeAgent, HomeAgentTimer};
use crate::sequence::{MAX_USED_NUMBERS, USED_NUMBERS_WARNING, is_later};
use crate::{
    Authentication, Event, MobilityDrop, MobilityMessage, OLD_PATH_GRACE, Output, ReplayProtection, is_newer,
    lifetime_from_units, lifetime_units,
};

/// Duration of duplicate address detection: one probe and one `RetransTimer` (RFC 4862 5.4, RFC 4861 10).
const DAD_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for which the state of a de-registered node is kept: `MAX_DELETE_BCE_TIMEOUT` (RFC 6275 12).
const MAX_DELETE_BCE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of registrations of one node that wait for duplicate address detection.
const MAX_TESTED_REGISTRATIONS: usize = super::MAX_BINDINGS;

/// A registration that waits for duplicate address detection.
#[derive(Debug, Clone)]
pub(super) struct UntestedRegistration {
    pub request: BindingUpdateRequest,
    pub registration: Registration,
}

impl UntestedRegistration {
    fn bids(&self) -> impl Iterator<Item = Option<u16>> {
        self.registration.bindings.iter().map(|binding| binding.bid)
    }
}

impl HomeAgent {
    pub(super) fn handle_binding_update(
        &mut self,
        now: Time,
        wall: WallTime,
        request: BindingUpdateRequest,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        let home_address = request.home_address;
        self.notice_times.last_update_times = Some((now, wall));
        let Some(node) = self.config.node(home_address) else {
            self.log_unanswered_update(now, &request, octets, MobilityDrop::Unauthorized);
            // RFC 6275 10.3.1: the home agent answers an update for a home address outside its home
            // network with status 132. It does not answer an update for an unassigned address inside its home
            // network.
            if request.home_registration
                && !self.serves_address(home_address)
                && self.unknown_source_limits.try_take_token(now)
            {
                self.send_acknowledgement(
                    &request,
                    BindingStatus::NOT_HOME_SUBNET,
                    &AcknowledgementContent::with_nothing_granted(&request),
                );
                return Err(MobilityDrop::Refused);
            }
            return Err(MobilityDrop::Unauthorized);
        };
        let replay = self.cache.replay_state(home_address);
        match judge_request(&self.config, node, &replay, &self.cache, wall, &request, octets) {
            UpdateVerdict::Ignore(reason) => {
                self.log_unanswered_update(now, &request, octets, reason);
                Err(reason)
            }
            UpdateVerdict::Reject { status, reason, sequence, timestamp, statuses } => {
                let from_signed = request.comes_from_signed_address();
                let is_authentic = node.authentication.detects_forgery();
                if reason == MobilityDrop::AuthenticationFailed && !from_signed {
                    self.log_unanswered_update(now, &request, octets, reason);
                    return Err(reason);
                }
                // Count only updates that are not old and come from the care-of address that the MAC covers.
                // Other updates may be an attacker's replays, which must not use up the limit of the node.
                if is_authentic && from_signed && reason == MobilityDrop::Refused {
                    self.node_update_limits.count_update(now, home_address);
                }
                let allowed = if is_authentic || reason == MobilityDrop::AuthenticationFailed {
                    let limits = self.limits_by_node.entry(home_address).or_default();
                    let limit = match reason {
                        MobilityDrop::AuthenticationFailed => &mut limits.unauthentic_update_limit,
                        _ if from_signed => &mut limits.refusal_limit,
                        _ => &mut limits.refusal_limit_to_other_addresses,
                    };
                    limit.try_take_token(now)
                } else {
                    self.unknown_source_limits.try_take_token(now)
                };
                if !allowed {
                    return Err(MobilityDrop::RateLimited);
                }
                match status {
                    BindingStatus::SEQUENCE_OUT_OF_WINDOW => self.report_refusal_because(
                        &request,
                        status,
                        format!("old number {}: the last one accepted is {sequence}", request.sequence),
                    ),
                    BindingStatus::AUTHENTICATION_FAILED => self.report_refusal_because(
                        &request,
                        status,
                        format!("wrong MAC under SPI {}", request.spi.unwrap_or_default()),
                    ),
                    _ => self.report_refusal(&request, status),
                }
                if status == BindingStatus::MESSAGE_ID_REQUIRED {
                    self.report_timestamp_demand(now, &request);
                }
                let answer = AcknowledgementContent {
                    sequence,
                    timestamp,
                    statuses,
                    ..AcknowledgementContent::default()
                };
                self.send_acknowledgement(&request, status, &answer);
                Err(reason)
            }
            UpdateVerdict::Deregister { bids, status, statuses } => {
                self.node_update_limits.count_update(now, home_address);
                self.store_replay_state(&request);
                let flows = self.deregister_bindings(now, &request, bids.as_deref());
                let answer = AcknowledgementContent {
                    statuses,
                    flow_answers: flows,
                    ..AcknowledgementContent::with_nothing_granted(&request)
                };
                self.send_acknowledgement(&request, status, &answer);
                Ok(())
            }
            UpdateVerdict::Register(mut registration) => {
                self.node_update_limits.count_update(now, home_address);
                self.store_replay_state(&request);
                if !self.may_register_while_draining(now, home_address, &mut registration.lifetime) {
                    // The node may not register now, because it is being sent away (RFC 5142 5.3) or
                    // revoked (RFC 5846 7).
                    let status = BindingStatus::PROHIBITED;
                    self.report_refusal(&request, status);
                    // The update is authentic, so the home agent stores its sequence number: a replay
                    // after a restart must have no effect.
                    self.outputs.push_back(Output::Persist(home_address));
                    self.send_acknowledgement(
                        &request,
                        status,
                        &AcknowledgementContent::with_nothing_granted(&request),
                    );
                    return Err(MobilityDrop::Refused);
                }
                self.register_or_test(now, request, registration);
                Ok(())
            }
        }
    }

    /// Drops a Binding Update if its authentication does not match the config, or if its source has used up
    /// its limit.
    pub(super) fn check_admission(
        &mut self,
        now: Time,
        message: &MobilityMessage<'_>,
        request: &BindingUpdateRequest,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        let Some(node) = self.config.node(request.home_address) else { return Ok(()) };
        // RFC 6275 11.7.1: ESP does not protect the IPv6 source address, so an option must name the
        // care-of address.
        let named = !request.has_home_address_option
            || request.names_care_of_address()
            || request.is_deregistration();
        let required = matches!(node.authentication, Authentication::Ipsec | Authentication::Session(_));
        let has_key = node.authentication.signing_association().is_some();
        let admitted = node.authentication.check_ipsec_protection(
            message.is_ipsec_protected && named && message.tunnel_ends.is_none(),
            message.session,
        );
        if admitted.is_err() && required {
            self.log_unanswered_update(now, request, octets, MobilityDrop::NotProtected);
        }
        admitted?;
        if !self.node_update_limits.may_send_update(now, request.home_address) {
            return Err(MobilityDrop::Share);
        }
        if has_key && self.is_old_update(request) && !self.may_answer_refusal(now, request) {
            return Err(MobilityDrop::RateLimited);
        }
        // The limit bounds the cost of verification. An update of a node without a key is not verified, so it
        // does not count.
        if has_key && !self.comes_from_bound_address(request) {
            let source = match message.tunnel_ends {
                Some((_, node)) => node.ipv4().map(|address| address.to_ipv6_mapped()),
                None => Some(request.source),
            };
            if !self.unbound_source_limits.allow_verification(now, source.unwrap_or(request.source)) {
                return Err(MobilityDrop::Flood);
            }
        }
        Ok(())
    }

    /// Returns whether an update comes from a care-of address of its node's bindings.
    fn comes_from_bound_address(&self, request: &BindingUpdateRequest) -> bool {
        let source = request.tunnel_ends.map_or(request.source.into(), |(_, node)| node);
        self.cache.has_binding_at(request.home_address, source)
    }

    /// Returns whether an update is old by RFC 6275 9.5.1, whatever key signed it.
    fn is_old_update(&self, request: &BindingUpdateRequest) -> bool {
        let last = self.cache.replay_state(request.home_address).sequence;
        last.is_some_and(|last| !is_newer(request.sequence, last))
    }

    /// Returns whether the node would get an answer to a refused update. Without an answer the result of the
    /// verification is not needed. So the home agent does not verify replays, of which an attacker may have
    /// very many.
    fn may_answer_refusal(&self, now: Time, request: &BindingUpdateRequest) -> bool {
        self.limits_by_node.get(&request.home_address).is_none_or(|limits| {
            match request.comes_from_signed_address() {
                true => limits.refusal_limit.has_token(now),
                false => limits.refusal_limit_to_other_addresses.has_token(now),
            }
        })
    }

    /// Ends the registrations of a home address, because duplicate address detection found another node with
    /// this address (RFC 6275 10.3.1).
    pub(super) fn handle_duplicate_address(&mut self, target: Ipv6Addr) {
        let home_address = self.registrations_under_test.keys().copied().find(|&home_address| {
            home_address == target
                || self
                    .cache
                    .all_bindings_of(home_address)
                    .any(|binding| binding.link_local_address() == Some(target))
        });
        if let Some(home_address) = home_address {
            self.timers.stop_timer(HomeAgentTimer::Dad(home_address));
            let status = BindingStatus::DUPLICATE_ADDRESS;
            for UntestedRegistration { request, .. } in self.stop_care_of_tests(home_address) {
                self.report_refusal(&request, status);
                self.outputs.push_back(Output::Persist(home_address));
                self.send_acknowledgement(
                    &request,
                    status,
                    &AcknowledgementContent::with_nothing_granted(&request),
                );
            }
        }
    }

    /// Reports that a Binding Update was refused.
    pub(super) fn report_refusal(&mut self, request: &BindingUpdateRequest, status: BindingStatus) {
        self.report_refusal_because(request, status, status.meaning().into());
    }

    fn report_refusal_because(
        &mut self,
        request: &BindingUpdateRequest,
        status: BindingStatus,
        reason: String,
    ) {
        self.outputs.push_back(Output::Event(Event::BindingRefused {
            home_address: request.home_address,
            care_of_address: request.sender_endpoint(),
            status: status.0,
            reason,
        }));
    }

    /// Reports to the operator that a node must send timestamps because its key has used up its sequence
    /// numbers.
    fn report_timestamp_demand(&mut self, now: Time, request: &BindingUpdateRequest) {
        let Some(node) = self.config.node(request.home_address) else { return };
        let Some(association) = node.authentication.association_of(request.spi) else { return };
        let numbers =
            self.cache.used_sequence_numbers(request.home_address, &node.authentication, request.spi);
        // Report only the first demand: if the count is already above the maximum, the node has sent
        // timestamps before.
        let is_first = association.replay == ReplayProtection::Sequence && numbers <= MAX_USED_NUMBERS;
        if is_first
            && self.unanswered_update_log.may_log_line(now, request.home_address, MobilityDrop::Timestamp)
        {
            let message = format!(
                "{} has to send timestamps from now on (status 145): the key of its SPI {} has used its \
                 {MAX_USED_NUMBERS} sequence numbers, after which recorded Binding Updates would be new \
                 again. A node that sends no timestamps (RFC 4285 6) needs a new key",
                request.home_address, association.spi
            );
            self.outputs.push_back(Output::Event(Event::Warning { message }));
        }
    }

    /// Returns the home addresses of nodes whose key has used at least three quarters of its sequence
    /// numbers. Omits nodes that send timestamps when the home agent asks for them.
    pub fn nodes_needing_new_key(&self) -> impl Iterator<Item = Ipv6Addr> {
        let keys = self.config.nodes.iter().flat_map(|node| {
            let associations = node.authentication.associations().iter();
            associations.map(move |association| (node, association))
        });
        let worn = keys.filter(|(node, association)| {
            let numbers = || {
                self.cache.used_sequence_numbers(
                    node.home_address,
                    &node.authentication,
                    Some(association.spi),
                )
            };
            association.replay == ReplayProtection::Sequence
                && (USED_NUMBERS_WARNING..=MAX_USED_NUMBERS).contains(&numbers())
        });
        worn.map(|(node, _)| node.home_address)
    }

    /// Stores the replay protection state of a node that has a key.
    fn store_replay_state(&mut self, request: &BindingUpdateRequest) {
        let home_address = request.home_address;
        let Some(node) = self.config.node(home_address) else { return };
        let Some(association) = node.authentication.association_of(request.spi) else { return };
        let has_several = node.authentication.has_several_keys();
        let other_key = node.authentication.fingerprint_of_other_key(request.spi);
        if let Some(node) = self.cache.node_or_new(home_address) {
            let before = node.used_sequence_numbers(other_key);
            node.count_sequence_number(other_key, request.sequence);
            let last = node.replay_state().timestamp;
            // Never replace the stored timestamp by an older one, which `replay = "sequence"` accepts in an
            // update.
            let timestamp =
                request.timestamp.filter(|new| last.is_none_or(|last| is_later(*new, last))).or(last);
            node.set_replay_state(ReplayState { sequence: Some(request.sequence), timestamp });
            let numbers = node.used_sequence_numbers(other_key);
            if before < USED_NUMBERS_WARNING
                && numbers >= USED_NUMBERS_WARNING
                && request.timestamp.is_none()
                && association.replay == ReplayProtection::Sequence
            {
                let left = MAX_USED_NUMBERS.saturating_sub(numbers);
                let message = format!(
                    "the key of SPI {} of {home_address} has {left} of {MAX_USED_NUMBERS} sequence numbers \
                     left; after them the home agent accepts its Binding Updates with timestamps only \
                     (RFC 4285 6), which carnet's mobile router sends when it is told to. A node that sends \
                     none needs a new key before that",
                    association.spi
                );
                self.outputs.push_back(Output::Event(Event::Warning { message }));
            }
        }
        if let Some(spi) = request.spi.filter(|_| has_several) {
            self.last_spi_by_node.insert(home_address, spi);
        }
    }

    fn register_or_test(&mut self, now: Time, request: BindingUpdateRequest, mut registration: Registration) {
        let home_address = request.home_address;
        registration.lifetime = lifetime_from_units(lifetime_units(registration.lifetime));
        let known = self.cache.is_bound(home_address);
        // Test a home address only if it is inside the prefix of a home link with carrier (RFC 4887 5.3). A
        // link that has just come up can be tested at once: the probe needs no address of the home agent.
        let elsewhere = !self.config.home_prefix.contains(&home_address);
        if known || elsewhere || self.proxy_nd.home_link.as_ref().is_none_or(|link| !link.is_running()) {
            self.accept_registration(now, &request, &registration);
            if !known {
                self.announce_address(now, home_address);
            }
            return;
        }
        // RFC 6275 10.3.1: duplicate address detection runs before the first acknowledgement, never on a
        // refresh. One test serves all bindings of the home address.
        let link_local = self
            .new_bindings(now, &request, &registration, BindingState::Testing)
            .first()
            .and_then(Binding::link_local_address);
        let first = !self.registrations_under_test.contains_key(&home_address);
        if registration.replaces_all_bindings {
            self.stop_care_of_tests(home_address);
        }
        for binding in self.new_bindings(now, &request, &registration, BindingState::Testing) {
            self.cache.insert(&binding);
        }
        if let Some(node) = self.cache.node_mut(home_address) {
            node.sequence = Some(request.sequence);
        }
        let tested = UntestedRegistration { request, registration };
        let waiting = self.registrations_under_test.entry(home_address).or_default();
        // Replace a waiting update with the same identifiers: the new one is its retransmission, and the
        // acknowledgement must have the new sequence number.
        waiting.retain(|other| !other.bids().eq(tested.bids()));
        if waiting.len() < MAX_TESTED_REGISTRATIONS {
            waiting.push(tested);
        }
        if first {
            self.timers.set_deadline(HomeAgentTimer::Dad(home_address), now + DAD_TIMEOUT);
            self.timers.stop_timer(HomeAgentTimer::Forget(home_address));
            if let Some(link) = &self.proxy_nd.home_link {
                for target in [Some(home_address), link_local].into_iter().flatten() {
                    self.outputs.extend(link.build_dad_probe(target).map(Output::Link));
                }
            }
        }
    }

    /// Stops duplicate address detection for a home address. Removes the waiting registrations and returns
    /// them.
    pub(super) fn stop_care_of_tests(&mut self, home_address: Ipv6Addr) -> Vec<UntestedRegistration> {
        let waiting = self.registrations_under_test.remove(&home_address).unwrap_or_default();
        let untried: Vec<Option<u16>> = self
            .cache
            .all_bindings_of(home_address)
            .filter(|binding| !binding.is_valid())
            .map(|b| b.bid)
            .collect();
        for bid in untried {
            self.cache.remove(home_address, bid);
        }
        if let Some(node) = self.cache.node_mut(home_address)
            && node.is_unbound()
        {
            node.sequence = None;
        }
        self.cache.remove_empty_state(home_address);
        waiting
    }

    /// Creates the bindings of a registration and acknowledges it.
    pub(super) fn accept_registration(
        &mut self,
        now: Time,
        request: &BindingUpdateRequest,
        registration: &Registration,
    ) {
        let flows = self.commit_registration(now, request, registration);
        let answer = AcknowledgementContent {
            lifetime: registration.lifetime,
            statuses: registration.statuses.clone(),
            nat_detection_option: registration.nat_detection_option,
            flow_answers: flows,
            ipv4_answers: registration.ipv4_answers.clone(),
            timestamp: request
                .timestamp
                .or_else(|| self.notice_times.timestamp_for_node(now, &self.config, request)),
            ..AcknowledgementContent::with_nothing_granted(request)
        };
        self.send_acknowledgement(request, registration.status, &answer);
        for registered in &registration.bindings {
            let (context, _, tests) = self.split_context(now);
            tests.begin_test(context, request.home_address, registered.bid);
        }
    }

    fn new_bindings(
        &self,
        now: Time,
        request: &BindingUpdateRequest,
        registration: &Registration,
        state: BindingState,
    ) -> Vec<Binding> {
        let has_test = self.config.node(request.home_address).is_some_and(|node| node.care_of_test);
        let is_tested = |care_of_address| {
            !has_test || self.cache.is_care_of_tested(now, request.home_address, care_of_address)
        };
        let new = |registered: &NewBinding| Binding {
            home_address: request.home_address,
            bid: registered.bid,
            priority: registered.priority,
            care_of_address: registered.tunnel_ends.1,
            care_of_address_age: CareOfAddressAge::beginning_now(now),
            agent: registered.tunnel_ends.0,
            mobile_router: request.mobile_router,
            link_local: request.link_local,
            prefixes: registration.prefixes.clone(),
            sequence: request.sequence,
            lifetime: registration.lifetime,
            expires_at: now + registration.lifetime,
            state,
            is_care_of_tested: is_tested(registered.tunnel_ends.1),
        };
        registration.bindings.iter().map(new).collect()
    }

    /// Creates or renews the bindings of a registration. A renewal without other changes does not report a
    /// change of forwarding.
    fn commit_registration(
        &mut self,
        now: Time,
        request: &BindingUpdateRequest,
        registration: &Registration,
    ) -> FlowAnswers {
        let home_address = request.home_address;
        let mut events = Vec::new();
        // If the node has flows, the home agent always reports a change, because it does not compare old
        // and new flows.
        let has_flows = !request.flow_requests.is_empty() || !self.cache.flows(home_address).is_empty();
        let mut is_renewal = !has_flows;
        if registration.replaces_all_bindings {
            let kept: Vec<Option<u16>> = registration.bindings.iter().map(|binding| binding.bid).collect();
            let replaced: Vec<Option<u16>> =
                self.cache.bids(home_address).filter(|bid| !kept.contains(bid)).collect();
            for bid in replaced {
                is_renewal = false;
                self.end_binding(now, home_address, bid);
                let reason = "a later registration replaced it".into();
                events.push(Event::BindingRemoved { home_address, bid, reason });
            }
        }
        is_renewal &= *self.cache.prefixes(home_address) == *registration.prefixes;
        for mut binding in self.new_bindings(now, request, registration, BindingState::Valid) {
            let old = self.cache.get(home_address, binding.bid).filter(Binding::is_valid);
            let address = binding.care_of_address.address();
            if let Some(old) = old.as_ref().filter(|old| old.care_of_address.address() == address) {
                binding.care_of_address_age = old.care_of_address_age;
            }
            is_renewal &= old.as_ref().is_some_and(|old| old.forwards_same_as(&binding));
            let change = match &old {
                None => "created",
                Some(old) if old.tunnel_ends() != binding.tunnel_ends() => {
                    self.accept_former_path(now, old);
                    "moved"
                }
                Some(_) => "refreshed",
            };
            let (prefixes, ipv4_prefixes) = mapped::split_by_family(binding.prefixes.iter().copied());
            events.push(Event::Binding {
                home_address,
                care_of_address: binding.care_of_address,
                bid: binding.bid,
                prefixes,
                ipv4_prefixes,
                lifetime_s: u32::try_from(binding.lifetime.as_secs()).unwrap_or(u32::MAX),
                change: change.into(),
            });
            // The sequence number, flags and prefixes of this binding now apply to all bindings of the node.
            self.cache.insert(&binding);
        }
        is_renewal &= self.relays.remove(&home_address).is_none();
        self.timers.stop_timer(HomeAgentTimer::Relay(home_address));
        self.timers.stop_timer(HomeAgentTimer::Forget(home_address));
        if !self.cache.former_paths(home_address).is_empty() {
            let current: Vec<_> =
                self.cache.all_bindings_of(home_address).map(|binding| binding.tunnel_ends()).collect();
            let is_left = |path: &FormerPath| !current.contains(&(path.agent, path.care_of_address));
            is_renewal &=
                !self.cache.node_mut(home_address).is_some_and(|node| node.retain_former_paths(is_left));
        }
        let flows = flows::update_flows(&mut self.cache, request);
        if !is_renewal {
            self.outputs.push_back(Output::Forwarding(home_address));
        }
        self.outputs.push_back(Output::Persist(home_address));
        self.outputs.extend(events.into_iter().map(Output::Event));
        flows
    }

    /// Accepts packets from the former path of a binding for the grace period.
    fn accept_former_path(&mut self, now: Time, binding: &Binding) {
        let &Binding { home_address, agent, care_of_address, is_care_of_tested, .. } = binding;
        let until = now + OLD_PATH_GRACE;
        let has_test = self.config.node(home_address).is_some_and(|node| node.care_of_test);
        let Some(node) = self.cache.node_or_new(home_address) else { return };
        node.add_former_path(FormerPath {
            agent,
            care_of_address,
            accept_packets_until: until,
            is_care_of_tested,
        });
        if has_test && is_care_of_tested {
            node.record_tested_address(now, care_of_address, now + TESTED_ADDRESS_LIFETIME);
        }
        let first = node.grace_period_ends_at().unwrap_or(until);
        self.timers.set_deadline(HomeAgentTimer::Grace(home_address), first);
    }

    /// Removes a binding. If it was valid, the home agent still accepts packets from its care-of address for
    /// the grace period.
    pub(super) fn end_binding(&mut self, now: Time, home_address: Ipv6Addr, bid: Option<u16>) {
        if let Some(binding) = self.cache.remove(home_address, bid)
            && binding.is_valid()
        {
            self.accept_former_path(now, &binding);
        }
    }

    /// Ends the bindings with these identifiers; all bindings if `bids` is `None`.
    fn deregister_bindings(
        &mut self,
        now: Time,
        request: &BindingUpdateRequest,
        bids: Option<&[u16]>,
    ) -> FlowAnswers {
        let home_address = request.home_address;
        let ending: Vec<Option<u16>> = self
            .cache
            .all_bindings_of(home_address)
            .map(|binding| binding.bid)
            .filter(|bid| bids.is_none_or(|bids| bid.is_some_and(|bid| bids.contains(&bid))))
            .collect();
        let mut events = Vec::new();
        if bids.is_none()
            && let Some(node) = self.cache.node_mut(home_address)
        {
            // The home agent no longer accepts packets from paths that the node left before.
            node.retain_former_paths(|_| false);
        }
        for bid in ending {
            // A first registration whose home address is still being tested ends without an event, because
            // it was never valid.
            if self.cache.get(home_address, bid).is_some_and(|binding| binding.is_valid()) {
                let reason = "the node de-registered".into();
                events.push(Event::BindingRemoved { home_address, bid, reason });
            }
            self.end_binding(now, home_address, bid);
            if let Some(waiting) = self.registrations_under_test.get_mut(&home_address) {
                for tested in waiting.iter_mut() {
                    tested.registration.bindings.retain(|binding| binding.bid != bid);
                }
                waiting.retain(|tested| !tested.registration.bindings.is_empty());
            }
        }
        if let Some(node) = self.cache.node_or_new(home_address) {
            node.sequence = Some(request.sequence);
        }
        let flows = if self.remove_state_if_unbound(now, home_address) {
            self.handle_node_departure(now, home_address);
            FlowAnswers::default()
        } else {
            flows::update_flows(&mut self.cache, request)
        };
        self.outputs.push_back(Output::Forwarding(home_address));
        self.outputs.push_back(Output::Persist(home_address));
        self.outputs.extend(events.into_iter().map(Output::Event));
        flows
    }

    /// Removes the shared state of a node if the node has no binding. Returns whether it did so.
    pub(super) fn remove_state_if_unbound(&mut self, now: Time, home_address: Ipv6Addr) -> bool {
        if let Some(node) = self.cache.node_mut(home_address) {
            if !node.is_unbound() {
                return false;
            }
            // RFC 6089 5.3.3: the end of the last binding means "deleting all bindings, including all flow
            // bindings".
            node.set_flows(Vec::new());
        }
        self.registrations_under_test.remove(&home_address);
        self.timers.stop_timer(HomeAgentTimer::Dad(home_address));
        self.proxy_nd.pending_announcements.remove(&home_address);
        self.timers.stop_timer(HomeAgentTimer::Announce(home_address));
        self.timers.set_deadline(HomeAgentTimer::Forget(home_address), now + MAX_DELETE_BCE_TIMEOUT);
        true
    }

    /// Ends a binding whose lifetime is over.
    pub(super) fn expire_binding(&mut self, now: Time, home_address: Ipv6Addr, bid: Option<u16>) {
        if self.cache.get(home_address, bid).is_none_or(|binding| !binding.is_valid()) {
            return;
        }
        self.cache.remove(home_address, bid);
        if let Some(node) = self.cache.node_mut(home_address)
            && node.is_unbound()
        {
            node.sequence = None;
            node.retain_former_paths(|_| false);
            node.set_flows(Vec::new());
            self.timers.stop_timer(HomeAgentTimer::Grace(home_address));
            self.handle_node_departure(now, home_address);
        }
        self.cache.remove_empty_state(home_address);
        self.outputs.push_back(Output::Forwarding(home_address));
        self.outputs.push_back(Output::Persist(home_address));
        let reason = "its lifetime ended".into();
        self.outputs.push_back(Output::Event(Event::BindingRemoved { home_address, bid, reason }));
    }

    /// Ends the grace period of former care-of addresses.
    pub(super) fn end_grace_period(&mut self, now: Time, home_address: Ipv6Addr) {
        let Some(node) = self.cache.node_mut(home_address) else { return };
        node.retain_former_paths(|path| path.accept_packets_until > now);
        if let Some(next) = node.grace_period_ends_at() {
            self.timers.set_deadline(HomeAgentTimer::Grace(home_address), next);
        }
        self.cache.remove_empty_state(home_address);
        self.outputs.push_back(Output::Forwarding(home_address));
    }
}
