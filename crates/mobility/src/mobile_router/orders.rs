//! What the home agent orders unasked: to go to another one (Home Agent Switch, RFC 5142 6), to give bindings
//! up (Binding Revocation, RFC 5846 10).
//!
//! Both move or end traffic, so both have to be authentic: where there is a shared key, by RFC 4285's option,
//! whose MAC covers the address that the message was sent to in place of a care-of address, and by a
//! Message-ID option that is greater than in any before (remembered across restarts) and near to the home
//! agent's time ([`super::notices`]). Without a key there is nothing to check but the addresses; then a
//! switch leads to home agents only that our own operator has named (see [`crate::agents`]).

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{Endpoint, Time, WallTime};
use carnet_wire::mobility::options::Options;
use carnet_wire::mobility::revocation::revocation_status;
use carnet_wire::mobility::status::Status;
use carnet_wire::mobility::{
    BindingRevocation, Builder, HomeAgentSwitch, MobilityOption, RevocationFlags, RevocationKind,
};

use super::{MobileRouter, Notices, Registration};
use crate::{Authentication, Event, MobilityDrop, MobilityMessage, Output};

/// Home agents of one Home Agent Switch message that are looked at.
const MAX_ALTERNATIVES: usize = 16;

/// How long an indication of a revocation is answered again: the home agent repeats it after one and two
/// seconds.
const REPETITIONS: Duration = Duration::from_secs(10);

/// A revocation that has been acknowledged; the acknowledgement may be lost.
#[derive(Debug, Clone)]
pub(super) struct Answered {
    sequence: u16,
    /// Our end of the way that it came, and that way.
    came_to: Endpoint,
    by: (usize, Registration),
    status: u8,
    until: Time,
}

impl Answered {
    /// Whether an indication is the same once more.
    fn is_of(&self, message: &MobilityMessage<'_>, revocation: &BindingRevocation<'_>) -> bool {
        self.sequence == revocation.sequence && self.came_to == came_to(message)
    }
}

/// Our end of the way that a message has come.
fn came_to(message: &MobilityMessage<'_>) -> Endpoint {
    message.outer.map_or(Endpoint::Ipv6(message.destination), |(local, _)| local)
}

/// The home agent wants us to leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switch {
    /// Where to, the first to be tried first; empty: that is ours to find out.
    pub to: Vec<Ipv6Addr>,
    /// Whether it was certainly our home agent that said so.
    pub authenticated: bool,
}

/// Orders of the home agent. The notices are one value for all home agents of this router, because these
/// share a key. RFC 4285's authenticator does not cover which of them has sent a message. Else a recorded
/// notice of one could be played in the name of another.
#[derive(Debug, Default)]
pub(super) struct Orders {
    pub(super) switch: Option<Switch>,
    /// When the home agent last ordered something, by its clock.
    pub(super) notices: Notices,
    pub(super) last_revocation: Option<Answered>,
}

impl MobileRouter {
    /// What a Home Agent Switch message has ordered since this was asked last.
    pub fn take_switch(&mut self) -> Option<Switch> {
        self.orders.switch.take()
    }

    /// RFC 5142 6.1.
    pub(super) fn switch_ordered(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        switch: &HomeAgentSwitch<'_>,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        self.way_of(message).ok_or(MobilityDrop::Unexpected)?;
        let authenticated = self.verify_notice(now, wall, message, switch.options, octets)?;
        let to = switch.addresses().take(MAX_ALTERNATIVES).collect();
        self.orders.switch = Some(Switch { to, authenticated });
        Ok(())
    }

    /// RFC 5846 10.
    pub(super) fn revocation_ordered(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        revocation: &BindingRevocation<'_>,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        let RevocationKind::Indication { .. } = revocation.kind else {
            return Err(MobilityDrop::UnknownType);
        };
        // "its Binding Update List contains an entry for that Home Address"; or it did, and our answer was
        // lost.
        let answered =
            self.orders.last_revocation.as_ref().filter(|it| it.until > now && it.is_of(message, revocation));
        let answered = answered.cloned();
        let (uplink, registration) =
            self.way_of(message).or(answered.as_ref().map(|it| it.by)).ok_or(MobilityDrop::Unexpected)?;
        self.verify_notice(now, wall, message, revocation.options, octets)?;
        if let Some(Answered { by, status, .. }) = answered {
            self.acknowledge_revocation(by, revocation, status);
            return Ok(());
        }
        let RevocationFlags { proxy, ipv4_only, global } = revocation.flags;
        let mut named = Vec::new();
        let mut ipv4_home = false;
        for option in revocation.options.iter() {
            match option {
                Ok(MobilityOption::BindingIdentifier { bid, .. }) => named.push(bid),
                Ok(MobilityOption::Ipv4HomeAddress { .. }) => ipv4_home = true,
                _ => {}
            }
        }
        let known =
            |bid: &u16| self.list.bindings.iter().any(|binding| binding.bid == *bid && binding.is_known());
        let status = if proxy {
            revocation_status::PROXY_NOT_SUPPORTED
        } else if global {
            revocation_status::GLOBAL_NOT_AUTHORIZED
        } else if ipv4_only && !ipv4_home {
            revocation_status::IPV4_HOME_ADDRESS_REQUIRED
        } else if ipv4_only || (!named.is_empty() && !named.iter().any(known)) {
            revocation_status::NO_BINDING
        } else if named.iter().all(known) {
            revocation_status::SUCCESS
        } else {
            revocation_status::PARTIAL_SUCCESS
        };
        let by = (uplink, registration);
        let (sequence, came_to) = (revocation.sequence, came_to(message));
        let until = now + REPETITIONS;
        self.orders.last_revocation = Some(Answered { sequence, came_to, by, status, until });
        self.acknowledge_revocation(by, revocation, status);
        if status < 128 {
            self.revoked(now, &named);
        }
        Ok(())
    }

    /// By the way by which the indication has come.
    fn acknowledge_revocation(
        &mut self,
        (uplink, registration): (usize, Registration),
        revocation: &BindingRevocation<'_>,
        status: u8,
    ) {
        let kind = RevocationKind::Acknowledgement { status };
        let builder = Builder::binding_revocation(kind, revocation.sequence, revocation.flags);
        // As the home agent does it: in place of the care-of address the one that the message leaves from.
        let source = match registration.care_of_address {
            IpAddr::V6(address) => address,
            IpAddr::V4(_) => self.config.home_address,
        };
        let mut mobility_header = self.finish_authenticated(builder, None, source);
        let output = self.heartbeat_packet(uplink, registration, &mut mobility_header);
        self.outputs.push_back(output);
    }

    /// The bindings with these identifiers end, or all. The home agent is asked again after a long while,
    /// like one that has refused; with some bindings left, for what is gone.
    fn revoked(&mut self, now: Time, bids: &[u16]) {
        let all = bids.is_empty()
            || self.list.bindings.iter().filter(|b| b.registration.is_some()).all(|b| bids.contains(&b.bid));
        let what = if all { "the service" } else { "some bindings" };
        self.outputs.push_back(Output::Event(Event::Deregistered {
            reason: format!("the home agent {} has revoked {what}", self.config.home_agent),
        }));
        if all {
            self.list.exchange = None;
            self.timers.stop(super::Timer::Retransmit);
            self.clear_bindings(now);
            // The home agent's operator has decided this: no short pauses.
            self.refusals.pause = Some(super::REFUSED_INTERVAL);
            self.refuse(now, Status::PROHIBITED);
        } else {
            for index in 0..self.list.bindings.len() {
                if bids.contains(&self.list.bindings[index].bid) {
                    if let Some(registration) = self.list.bindings[index].registration.take() {
                        self.retire(now, registration.care_of_address);
                    }
                    self.hold_binding(now, index, super::REFUSED_INTERVAL);
                }
            }
            self.timers.set(super::Timer::Bindings, now);
        }
        self.forwarding_changed("the home agent revoked a binding");
    }

    /// The registration by whose path a message of the home agent has come to us, and to nobody else (RFC
    /// 6275 6.4).
    fn way_of(&self, message: &MobilityMessage<'_>) -> Option<(usize, Registration)> {
        let home_address = self.config.home_address;
        if message.destination != home_address && message.routing_home_address != Some(home_address) {
            return None;
        }
        let came_to = came_to(message);
        let paths = (0..self.uplinks.len()).filter_map(|uplink| Some((uplink, self.heartbeat_path(uplink)?)));
        let mut by = paths.filter(|(uplink, registration)| self.local_end(*uplink, registration) == came_to);
        by.next()
    }

    /// Checks what keeps strangers and recordings out; true when there is something to check.
    fn verify_notice(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        options: Options<'_>,
        octets: &[u8],
    ) -> Result<bool, MobilityDrop> {
        if self.numbers.authentication == Authentication::Ipsec {
            // It has been admitted; what was recorded the kernel refuses (RFC 4303 3.4.3).
            return Ok(true);
        }
        if self.numbers.authentication.association().is_none() {
            return Ok(false);
        }
        self.numbers.authentication.verify(octets, message.destination, self.config.home_address)?;
        let time = options.iter().find_map(|option| match option {
            Ok(MobilityOption::MessageIdentifier(time)) => Some(time),
            _ => None,
        });
        let time = time.ok_or(MobilityDrop::Timestamp)?;
        let clock = self.replay_window().map(|window| (self.clock(wall), window));
        if !self.orders.notices.accept(now, time, clock) {
            return Err(MobilityDrop::Timestamp);
        }
        self.outputs.push_back(Output::Persist(self.config.home_address));
        Ok(true)
    }

    /// Why the home agent has said no for the moment, while nothing is registered with it.
    pub fn setback(&self) -> Option<Status> {
        self.refusals.setback.filter(|_| !self.has_registration())
    }

    /// Whether anything is registered.
    pub fn has_registration(&self) -> bool {
        self.list.registration.is_some()
            || self.list.bindings.iter().any(|binding| binding.registration.is_some())
    }

    /// The uplinks that are registered and answer.
    pub fn living_uplinks(&self) -> impl Iterator<Item = usize> {
        (0..self.uplinks.len())
            .filter(|&uplink| self.heartbeat_path(uplink).is_some() && !self.is_silent(uplink))
    }

    /// Whether the home agent owes us an answer that is late: nothing is registered although there is an
    /// uplink, or no uplink that is registered brings answers any more.
    pub fn is_unanswered(&self) -> bool {
        if self.stopping
            || self.home.at_home
            || self.uplinks.target.is_none()
            || self.refusals.status.is_some()
        {
            return false;
        }
        let given_up = self
            .list
            .exchange
            .as_ref()
            .is_some_and(|exchange| exchange.unanswered >= super::demotion::UNANSWERED);
        self.living_uplinks().next().is_none() || given_up
    }
}
