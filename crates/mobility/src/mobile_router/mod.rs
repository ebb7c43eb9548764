//! The mobile router (RFC 6275 section 11, RFC 3963 section 5), without I/O.
//!
//! Uplinks come and go; the best attached one is the *target*. When the registered care-of address is not
//! the target's, a Binding Update goes out from there. The *path*, the care-of address that traffic leaves
//! from, follows by make before break:
//!
//! * while the uplink of the registered care-of address lives, it carries the traffic until the home agent
//!   has acknowledged the new one;
//! * when that uplink is gone, traffic follows the Binding Update over the new path at once: whatever
//!   arrives behind it is accepted;
//! * without any registration nothing is sent (RFC 3963 5.3).
//!
//! Packets from the home agent are accepted at every care-of address that the router still has.
//!
//! On the home link the router de-registers and routes without tunnel. A Binding Error or Binding Refresh
//! Request from the home agent, neither of which is authenticated, makes it register again, at most once a
//! second, and changes nothing else. While traffic waits and the home agent is silent, a Binding Update goes
//! out at least every [`DEMAND_INTERVAL`]; without traffic the back-off reaches `MAX_BINDACK_TIMEOUT`.
//!
//! Left out: several care-of addresses at once (RFC 5648), home agent discovery, the K and L flags.

mod binding_update_list;
mod uplink;

use std::collections::VecDeque;
use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Interface, LinkMessage, RateLimiter, Rng, Time, TimerTable, WallTime};
use carnet_wire::mobility::status::Status;
use carnet_wire::mobility::{
    BindingAcknowledgement, BindingError, BindingUpdateFlags, Builder, ControlPacket, Message, MobilityOption,
};
use carnet_wire::{icmpv6, nd};
use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

pub use binding_update_list::Registration;
use binding_update_list::{Exchange, MAX_BINDACK_TIMEOUT, Purpose, Remedy, Sent, refresh_after, remedy};
pub use uplink::{Attachment, Uplink, UplinkConfig};

use crate::home_agent::ND_HOP_LIMIT;
use crate::{
    Authentication, Event, HOP_LIMIT, MAX_UPDATE_RATE, MobilityDrop, MobilityMessage, OLD_PATH_GRACE, Output,
    ReplayProtection, is_newer, lifetime_from_units, lifetime_units,
};

/// An uplink that has just come back must stay up this long before a working one is given up for it.
const SETTLING_TIME: Duration = Duration::from_secs(1);
/// At least this often a Binding Update goes out while packets wait for a registration.
pub const DEMAND_INTERVAL: Duration = Duration::from_secs(2);
/// Unauthenticated hints (Binding Error, Binding Refresh Request) are followed at most this often.
const HINT_INTERVAL: Duration = Duration::from_secs(1);
/// Statuses 135 and 144 are answered at once this often in an exchange; then the back-off applies.
const MAX_CORRECTIONS: u32 = 3;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Whether Binding Updates name the prefixes (RFC 3963 5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegistrationMode {
    /// They do.
    Explicit,
    /// The home agent knows them.
    Implicit,
}

/// What the operator says about the mobile router.
#[derive(Debug, Clone)]
pub struct MobileRouterConfig {
    /// Its home address.
    pub home_address: Ipv6Addr,
    /// The home prefix: an uplink with an address in it is on the home link.
    pub home_prefix: Ipv6Net,
    /// The home agent.
    pub home_agent: Ipv6Addr,
    /// The mobile network prefixes.
    pub prefixes: Vec<Ipv6Net>,
    /// Explicit or implicit.
    pub mode: RegistrationMode,
    /// The lifetime that is asked for.
    pub lifetime: Duration,
    /// How the home agent knows our messages.
    pub authentication: Authentication,
    /// The uplinks.
    pub uplinks: Vec<UplinkConfig>,
}

/// What has to survive a restart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSequence {
    /// The last sequence number sent.
    pub sequence: u16,
}

/// Where the router stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// No uplink can be used.
    Disconnected,
    /// Nothing is registered yet; a Binding Update is on its way.
    Registering,
    /// Registered.
    Registered,
    /// On the home link.
    Home,
    /// The home agent refused for good.
    Refused(Status),
    /// De-registered on request.
    Stopped,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// When the outstanding Binding Update is sent again.
    Retransmit,
    /// When the registration is to be renewed.
    Refresh,
    /// When the registration ends.
    Expire,
    /// When a preferred uplink has been up long enough.
    Settle,
    /// When the old path is closed.
    Grace,
    /// When routers on an uplink are solicited again.
    Solicit(usize),
}

/// The mobile router. See the module documentation for how it decides.
#[derive(Debug)]
pub struct MobileRouter {
    config: MobileRouterConfig,
    uplinks: Vec<Uplink>,
    /// The operator's choice.
    forced: Option<usize>,
    /// The uplink that is registered or being registered.
    target: Option<usize>,
    registration: Option<Registration>,
    /// A Binding Update for another care-of address was given up unanswered: the home agent may have heard
    /// it, so that what we take for registered may not be.
    doubtful: bool,
    exchange: Option<Exchange>,
    refused: Option<Status>,
    at_home: bool,
    stopping: bool,
    /// Care-of address given up, and until when packets to it are still accepted.
    previous: Option<(Ipv6Addr, Time)>,
    /// The uplink that events have reported as carrying traffic.
    reported_path: Option<usize>,
    sequence: u16,
    /// The home agent's clock less ours, learnt from status 144, in nanoseconds.
    clock_offset: i128,
    /// The greatest NTP timestamp sent, and the greatest acknowledged.
    newest_timestamp: u64,
    acknowledged_timestamp: u64,
    sent_at: VecDeque<Time>,
    hints: RateLimiter,
    timers: TimerTable<Timer>,
    outputs: VecDeque<Output>,
}

impl MobileRouter {
    /// A router that knows nothing of its interfaces yet. The first sequence number is random, so that a
    /// restart without stored state seldom needs a round of status 135.
    pub fn new(config: MobileRouterConfig, rng: &mut Rng) -> Self {
        MobileRouter {
            uplinks: config.uplinks.iter().cloned().map(Uplink::new).collect(),
            config,
            forced: None,
            target: None,
            registration: None,
            doubtful: false,
            exchange: None,
            refused: None,
            at_home: false,
            stopping: false,
            previous: None,
            reported_path: None,
            sequence: rng.u16(),
            clock_offset: 0,
            newest_timestamp: 0,
            acknowledged_timestamp: 0,
            sent_at: VecDeque::new(),
            hints: RateLimiter::new(1, HINT_INTERVAL),
            timers: TimerTable::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Its configuration.
    pub fn config(&self) -> &MobileRouterConfig {
        &self.config
    }

    /// Its uplinks, in the order of the configuration.
    pub fn uplinks(&self) -> &[Uplink] {
        &self.uplinks
    }

    /// The registration that the home agent acknowledged last, while it lasts.
    pub fn registration(&self) -> Option<&Registration> {
        self.registration.as_ref()
    }

    /// Where the router stands.
    pub fn state(&self) -> State {
        if self.stopping {
            State::Stopped
        } else if let Some(status) = self.refused {
            State::Refused(status)
        } else if self.at_home {
            State::Home
        } else if self.registration.is_some() {
            State::Registered
        } else if self.target.is_some() {
            State::Registering
        } else {
            State::Disconnected
        }
    }

    /// The care-of address that traffic leaves from; see the module documentation.
    pub fn path(&self) -> Option<Ipv6Addr> {
        if self.at_home || self.stopping || self.refused.is_some() {
            return None;
        }
        let registered = self.registration?.care_of_address;
        if self.uplinks.iter().any(|u| u.care_of_address() == Some(registered)) {
            return Some(registered);
        }
        match &self.exchange {
            Some(exchange) if exchange.purpose == Purpose::Register && !exchange.sent.is_empty() => {
                Some(exchange.care_of_address)
            }
            _ => None,
        }
    }

    /// The uplink that carries traffic now: the path's, or the one on the home link.
    pub fn active_uplink(&self) -> Option<usize> {
        if self.at_home {
            return self.target;
        }
        let path = self.path()?;
        self.uplinks.iter().position(|u| u.care_of_address() == Some(path))
    }

    /// The uplink that the operator chose, while the choice stands.
    pub fn forced_uplink(&self) -> Option<&Uplink> {
        self.forced.and_then(|forced| self.uplinks.get(forced))
    }

    /// The uplink on the home link while the router is at home.
    pub fn home_uplink(&self) -> Option<&Uplink> {
        self.target.filter(|_| self.at_home).and_then(|target| self.uplinks.get(target))
    }

    /// Every care-of address at which packets from the home agent are accepted, with the uplink's index.
    pub fn accepted_care_of_addresses(&self) -> Vec<(Ipv6Addr, usize)> {
        let mut accepted: Vec<(Ipv6Addr, usize)> = self
            .uplinks
            .iter()
            .enumerate()
            .filter_map(|(index, uplink)| Some((uplink.care_of_address()?, index)))
            .collect();
        if let Some((previous, _)) = self.previous
            && !accepted.iter().any(|(address, _)| *address == previous)
            && let Some(index) = self.uplinks.iter().position(|u| u.has_address(previous))
        {
            accepted.push((previous, index));
        }
        accepted
    }

    /// Whether the mobile network prefixes may be advertised: not after the home agent called them invalid
    /// or somebody else's (RFC 3963 5.4.2).
    pub fn may_advertise(&self) -> bool {
        !matches!(self.refused, Some(Status::INVALID_PREFIX | Status::NOT_AUTHORIZED_FOR_PREFIX))
    }

    /// True when a de-registration that [`Self::handle_shutdown`] began is over, or none was needed.
    pub fn is_quiescent(&self) -> bool {
        self.exchange.is_none()
    }

    /// The next thing to be done. To be called until it returns `None` after every `handle_*`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When [`Self::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.next_deadline()
    }

    /// What has to survive a restart.
    pub fn stored(&self) -> StoredSequence {
        StoredSequence { sequence: self.sequence }
    }

    /// Takes back what [`Self::stored`] gave.
    pub fn restore(&mut self, stored: StoredSequence) {
        self.sequence = stored.sequence;
    }

    /// Takes over what `old`, the same router under an earlier configuration, had reached, so that traffic
    /// goes on while the new configuration is registered. Uplinks are told again afterwards.
    pub fn adopt(&mut self, now: Time, old: &MobileRouter) {
        self.sequence = old.sequence;
        self.clock_offset = old.clock_offset;
        self.sent_at.clone_from(&old.sent_at);
        self.forced = old.forced_uplink().and_then(|forced| {
            self.uplinks.iter().position(|u| u.config.interface == forced.config.interface)
        });
        let same_home = self.config.home_address == old.config.home_address
            && self.config.home_agent == old.config.home_agent;
        if same_home && let Some(registration) = old.registration.filter(|r| r.expires > now) {
            self.registration = Some(registration);
            self.timers.set(Timer::Expire, registration.expires);
            // The prefixes, the lifetime or the key may be others now.
            self.timers.set(Timer::Refresh, now);
        }
    }

    /// Takes over the state of an interface.
    pub fn handle_interface(&mut self, now: Time, wall: WallTime, interface: &Interface) {
        let Some(index) = self.uplinks.iter().position(|u| u.config.interface == interface.name) else {
            return;
        };
        let before = self.uplinks[index].attachment;
        let came_up = self.uplinks[index].handle_interface(interface.clone(), &self.config);
        if came_up {
            self.solicit(now, index);
        }
        self.attachment_changed(now, wall, index, before);
    }

    /// An interface has vanished.
    pub fn handle_interface_gone(&mut self, now: Time, wall: WallTime, name: &str) {
        let Some(index) = self.uplinks.iter().position(|u| u.config.interface == name) else { return };
        let before = self.uplinks[index].attachment;
        self.uplinks[index].handle_gone();
        self.timers.stop(Timer::Solicit(index));
        self.attachment_changed(now, wall, index, before);
    }

    /// Handles an ICMPv6 message heard on an uplink: Router Advertisements hasten movement detection.
    ///
    /// # Errors
    /// Why it had no effect.
    pub fn handle_link_message(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &LinkMessage,
    ) -> Result<(), MobilityDrop> {
        let Some(index) = self.uplinks.iter().position(|u| u.config.interface == message.interface) else {
            return Ok(());
        };
        if message.message.first() != Some(&icmpv6::types::ROUTER_ADVERTISEMENT) {
            return Ok(());
        }
        // RFC 4861 6.1.2.
        if message.hop_limit != ND_HOP_LIMIT || !message.source.is_unicast_link_local() {
            return Err(MobilityDrop::NeighborDiscovery);
        }
        icmpv6::verify(message.source, message.destination, &message.message)
            .map_err(|_| MobilityDrop::BadChecksum)?;
        let before = self.uplinks[index].attachment;
        if self.uplinks[index].handle_router_advertisement(message, &self.config) {
            self.attachment_changed(now, wall, index, before);
        }
        Ok(())
    }

    /// The operator wants this uplink and no other; `None` ends the wish. It also ends a refusal.
    ///
    /// # Errors
    /// When there is no such uplink, in words for the operator.
    pub fn handle_handover(&mut self, now: Time, wall: WallTime, uplink: Option<&str>) -> Result<(), String> {
        self.forced = match uplink {
            None => None,
            Some(name) => {
                Some(self.uplinks.iter().position(|u| u.config.interface == name).ok_or_else(|| {
                    let names: Vec<&str> = self.uplinks.iter().map(|u| u.config.interface.as_str()).collect();
                    format!("no uplink is called {name}, expected one of: {}", names.join(", "))
                })?)
            }
        };
        if self.refused.take().is_some() {
            self.outputs.push_back(Output::Forwarding(self.config.home_address));
        }
        let reason = if uplink.is_some() { "the operator asked for it" } else { "automatic choice again" };
        self.evaluate(now, wall, reason);
        Ok(())
    }

    /// The station is about to stop: de-registers if anything is registered.
    pub fn handle_shutdown(&mut self, now: Time, wall: WallTime) {
        let path = self.path();
        self.stopping = true;
        for timer in [Timer::Refresh, Timer::Expire, Timer::Settle] {
            self.timers.stop(timer);
        }
        self.registration = None;
        match self.exchange.take() {
            // One that is under way is seen through.
            Some(exchange) if exchange.purpose == Purpose::Deregister => self.exchange = Some(exchange),
            exchange => {
                self.timers.stop(Timer::Retransmit);
                // What was sent and not answered yet may have been accepted.
                let sent = exchange.filter(|e| !e.sent.is_empty()).map(|e| e.care_of_address);
                let position =
                    |address| self.uplinks.iter().position(|u| u.care_of_address() == Some(address));
                if let Some(care_of_address) = path.or(sent)
                    && let Some(uplink) = position(care_of_address)
                {
                    self.exchange = Some(Exchange::new(Purpose::Deregister, uplink, care_of_address, false));
                    self.transmit(now, wall);
                }
            }
        }
        self.forwarding_changed("the station stops");
    }

    /// Handles a packet with a Mobility Header that came to one of our addresses.
    ///
    /// # Errors
    /// Why the message had no effect.
    pub fn handle_message(
        &mut self,
        now: Time,
        wall: WallTime,
        message: MobilityMessage<'_>,
    ) -> Result<(), MobilityDrop> {
        if message.source != self.config.home_agent {
            return Err(MobilityDrop::WrongParty);
        }
        let header = message.header().map_err(MobilityDrop::from)?;
        match header.message().map_err(|_| MobilityDrop::Malformed)? {
            Message::BindingAcknowledgement(acknowledgement) => {
                self.acknowledged(now, wall, &message, &acknowledgement, header.octets())
            }
            Message::BindingError(error) => {
                // RFC 6275 11.3.6: status 2 is about a kind of message, and none of ours is optional.
                if error.status != BindingError::UNKNOWN_BINDING {
                    return Err(MobilityDrop::Unexpected);
                }
                // carnet sends the home address of the binding that it misses.
                if error.home_address != self.config.home_address && !error.home_address.is_unspecified() {
                    return Err(MobilityDrop::WrongParty);
                }
                self.hint(now, wall)
            }
            Message::BindingRefreshRequest(_) => self.hint(now, wall),
            _ => Err(MobilityDrop::UnknownType),
        }
    }

    /// A packet waits that cannot be tunnelled because nothing is registered.
    pub fn handle_demand(&mut self, now: Time, wall: WallTime) {
        let Some(exchange) = self.exchange.as_mut().filter(|e| e.purpose == Purpose::Register) else {
            return;
        };
        let due = !exchange.held
            && exchange.last_sent().is_some_and(|at| now.saturating_since(at) >= DEMAND_INTERVAL);
        if due {
            self.transmit(now, wall);
        }
    }

    /// Serves the timers that have run out.
    pub fn handle_timeout(&mut self, now: Time, wall: WallTime) {
        while let Some(timer) = self.timers.pop_expired(now) {
            match timer {
                Timer::Retransmit => {
                    let given_up = self.stopping
                        && self.exchange.as_ref().is_some_and(|e| e.sent.len() >= MAX_UPDATE_RATE);
                    if given_up {
                        self.exchange = None;
                    } else {
                        self.transmit(now, wall);
                    }
                }
                Timer::Refresh => self.refresh(now, wall),
                Timer::Expire => {
                    self.registration = None;
                    self.outputs.push_back(Output::Event(Event::Deregistered {
                        reason: "the lifetime ended without an acknowledgement from the home agent".into(),
                    }));
                    self.forwarding_changed("the registration ended");
                }
                Timer::Settle => self.evaluate(now, wall, "a preferred uplink is back"),
                Timer::Grace => {
                    self.previous = None;
                    self.outputs.push_back(Output::Forwarding(self.config.home_address));
                }
                Timer::Solicit(index) => self.solicit(now, index),
            }
        }
    }

    fn solicit(&mut self, now: Time, index: usize) {
        if let Some((message, again)) = self.uplinks.get_mut(index).and_then(Uplink::solicit) {
            self.outputs.push_back(Output::Link(message));
            self.timers.set(Timer::Solicit(index), now + again);
        }
    }

    fn attachment_changed(&mut self, now: Time, wall: WallTime, index: usize, before: Attachment) {
        let after = self.uplinks[index].attachment;
        if before == after {
            return;
        }
        if let Attachment::Foreign { care_of_address, .. } = before
            && self.uplinks[index].care_of_address() != Some(care_of_address)
            && self.registration.is_some_and(|r| r.care_of_address == care_of_address)
        {
            self.retire(now, care_of_address);
        }
        let reason = match (before, after) {
            (Attachment::Down(_), _) => {
                // Not at the very start: then there is nothing better to stay with.
                self.uplinks[index].settles_at = now + SETTLING_TIME;
                "an uplink came up"
            }
            (_, Attachment::Down(reason)) => reason,
            _ => "the care-of address changed",
        };
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        self.evaluate(now, wall, reason);
    }

    /// The uplink to be registered: the operator's, else the home link, else the best by priority. An
    /// attached current one is kept against an equal, and against one that has only just come back.
    fn choose(&mut self, now: Time) -> Option<usize> {
        let usable = |index: &usize| !matches!(self.uplinks[*index].attachment, Attachment::Down(_));
        if let Some(forced) = self.forced.filter(usable) {
            return Some(forced);
        }
        let current = self.target.filter(usable);
        let rank = |index: &usize| {
            let uplink = &self.uplinks[*index];
            let foreign = !matches!(uplink.attachment, Attachment::Home { .. });
            (foreign, uplink.config.priority, Some(*index) != current, *index)
        };
        let best = (0..self.uplinks.len()).filter(usable).min_by_key(rank)?;
        match current {
            Some(current) if current != best && self.uplinks[best].settles_at > now => {
                self.timers.set(Timer::Settle, self.uplinks[best].settles_at);
                Some(current)
            }
            _ => Some(best),
        }
    }

    /// Brings what is registered in line with what is attached.
    fn evaluate(&mut self, now: Time, wall: WallTime, reason: &str) {
        if self.stopping {
            return;
        }
        self.target = self.choose(now);
        let Some(target) = self.target else {
            self.at_home = false;
            self.abandon();
            self.timers.stop(Timer::Retransmit);
            self.timers.stop(Timer::Refresh);
            self.forwarding_changed(reason);
            return;
        };
        match self.uplinks[target].attachment {
            Attachment::Home { .. } => self.go_home(now, wall, target),
            Attachment::Foreign { care_of_address, .. } => {
                self.at_home = false;
                self.register(now, wall, target, care_of_address);
            }
            Attachment::Down(_) => {}
        }
        self.forwarding_changed(reason);
    }

    /// Registers `care_of_address` unless it is registered or under way already.
    fn register(&mut self, now: Time, wall: WallTime, uplink: usize, care_of_address: Ipv6Addr) {
        if self.refused.is_some() {
            // Nothing is registered any more; a de-registration under way follows to where we are.
            if let Some(exchange) = &self.exchange
                && exchange.care_of_address != care_of_address
            {
                self.exchange = Some(Exchange::new(Purpose::Deregister, uplink, care_of_address, false));
                self.transmit(now, wall);
            }
            return;
        }
        let under_way = self.exchange.as_ref().is_some_and(|e| {
            e.purpose == Purpose::Register && e.care_of_address == care_of_address && e.uplink == uplink
        });
        if under_way {
            return;
        }
        let registered = self.registration.is_some_and(|r| r.care_of_address == care_of_address);
        self.abandon();
        if registered && !self.doubtful {
            self.timers.stop(Timer::Retransmit);
            if self.timers.get(Timer::Refresh).is_none() {
                // It was stopped while no uplink could be used.
                let after =
                    self.registration.map_or(now, |r| r.expires - r.lifetime + refresh_after(r.lifetime));
                self.timers.set(Timer::Refresh, after.max(now));
            }
            return;
        }
        self.timers.stop(Timer::Refresh);
        let first = self.registration.is_none();
        self.exchange = Some(Exchange::new(Purpose::Register, uplink, care_of_address, first));
        self.transmit(now, wall);
    }

    /// Gives up what is under way.
    fn abandon(&mut self) {
        if let Some(exchange) = self.exchange.take() {
            let other = self.registration.is_some_and(|r| r.care_of_address != exchange.care_of_address);
            self.doubtful |= exchange.purpose == Purpose::Register && !exchange.sent.is_empty() && other;
        }
    }

    /// RFC 6275 11.5.5, RFC 3963 5.8: on the home link the binding is deleted, from the home address.
    fn go_home(&mut self, now: Time, wall: WallTime, uplink: usize) {
        let was_home = std::mem::replace(&mut self.at_home, true);
        if was_home && self.registration.is_none() {
            return;
        }
        self.unregister();
        // Also without a registration that we know of: one from before a restart may live on.
        self.exchange = Some(Exchange::new(Purpose::Deregister, uplink, self.config.home_address, false));
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        self.outputs.push_back(Output::Event(Event::AtHome {
            interface: self.uplinks[uplink].config.interface.clone(),
        }));
        self.transmit(now, wall);
    }

    fn refresh(&mut self, now: Time, wall: WallTime) {
        if self.exchange.is_some() || self.refused.is_some() || self.stopping {
            return;
        }
        let Some(target) = self.target else { return };
        if let Attachment::Foreign { care_of_address, .. } = self.uplinks[target].attachment {
            self.exchange = Some(Exchange::new(Purpose::Register, target, care_of_address, false));
            self.transmit(now, wall);
        }
    }

    /// An unauthenticated hint that the home agent misses our binding.
    fn hint(&mut self, now: Time, wall: WallTime) -> Result<(), MobilityDrop> {
        if self.at_home || self.stopping || self.refused.is_some() {
            return Err(MobilityDrop::Unexpected);
        }
        if !self.hints.allow(now) {
            return Err(MobilityDrop::RateLimited);
        }
        match self.exchange.as_ref().map(Exchange::last_sent) {
            None => self.refresh(now, wall),
            // The answer to what was just sent may be on its way.
            Some(_) if self.exchange.as_ref().is_some_and(|e| e.held) => {}
            Some(last) if last.is_none_or(|at| now.saturating_since(at) >= HINT_INTERVAL) => {
                self.transmit(now, wall);
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Sends the outstanding Binding Update, with a new sequence number, and sets the timer for the next
    /// time. Not more often than `MAX_UPDATE_RATE` (RFC 6275 11.8).
    fn transmit(&mut self, now: Time, wall: WallTime) {
        let Some(mut exchange) = self.exchange.take() else { return };
        let second = Duration::from_secs(1);
        while self.sent_at.front().is_some_and(|at| now.saturating_since(*at) >= second) {
            self.sent_at.pop_front();
        }
        if self.sent_at.len() >= MAX_UPDATE_RATE {
            let next = self.sent_at.front().map_or(now, |at| *at + second);
            self.timers.set(Timer::Retransmit, next);
            self.exchange = Some(exchange);
            return;
        }
        self.sent_at.push_back(now);
        self.sequence = self.sequence.wrapping_add(1);
        let timestamp = self.timestamp(wall);
        let sent = Sent { sequence: self.sequence, at: now, timestamp };
        let packet = self.binding_update(&exchange, sent);
        let wait = exchange.transmitted(sent);
        self.timers.set(Timer::Retransmit, now + wait);
        self.exchange = Some(exchange);
        // The forwarding that the Binding Update itself needs (its source address's uplink) comes first.
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        self.outputs.push_back(Output::Persist);
        self.outputs.push_back(Output::Packet(packet));
    }

    /// The NTP timestamp for a Message-ID option, where the security association asks for one. Greater than
    /// every one before (RFC 4285 6), also at the same instant or when the clock was set back a little.
    fn timestamp(&mut self, wall: WallTime) -> Option<u64> {
        self.replay_window()?;
        self.newest_timestamp = self.clock(wall).to_ntp().max(self.newest_timestamp.saturating_add(1));
        Some(self.newest_timestamp)
    }

    /// How far the home agent's clock may be from ours, where timestamps are in use.
    fn replay_window(&self) -> Option<Duration> {
        match self.config.authentication.association()?.replay {
            ReplayProtection::Timestamp { window } => Some(window),
            ReplayProtection::Sequence => None,
        }
    }

    /// The home agent's clock, as far as we know.
    fn clock(&self, wall: WallTime) -> WallTime {
        let nanos = i128::from(wall.as_unix_nanos()) + self.clock_offset;
        WallTime::from_unix_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// Builds a Binding Update (RFC 6275 11.7.1, RFC 3963 5.2, RFC 4285 5.1).
    fn binding_update(&self, exchange: &Exchange, sent: Sent) -> Vec<u8> {
        let config = &self.config;
        let from_home = exchange.care_of_address == config.home_address;
        let register = exchange.purpose == Purpose::Register;
        let flags = BindingUpdateFlags {
            acknowledge: true,
            home_registration: true,
            mobile_router: true,
            ..BindingUpdateFlags::default()
        };
        let lifetime = if register { lifetime_units(config.lifetime) } else { 0 };
        let mut builder = Builder::binding_update(sent.sequence, flags, lifetime);
        if !from_home {
            builder = builder.option(&MobilityOption::AlternateCareOfAddress(exchange.care_of_address));
        }
        if register && config.mode == RegistrationMode::Explicit {
            for prefix in &config.prefixes {
                builder = builder.option(&MobilityOption::MobileNetworkPrefix {
                    prefix: prefix.network(),
                    prefix_length: prefix.prefix_len(),
                });
            }
        }
        if let Some(timestamp) = sent.timestamp {
            builder = builder.option(&MobilityOption::MessageIdentifier(timestamp));
        }
        let association = config.authentication.association();
        if let Some(association) = association {
            builder = builder.option(&association.blank_option());
        }
        let mut mobility_header = builder.finish();
        if let Some(association) = association {
            association.sign(&mut mobility_header, exchange.care_of_address, config.home_address);
        }
        ControlPacket {
            source: exchange.care_of_address,
            destination: config.home_agent,
            hop_limit: HOP_LIMIT,
            home_address: (!from_home).then_some(config.home_address),
            routing_home_address: None,
            mobility_header: &mut mobility_header,
        }
        .emit()
    }

    /// Handles a Binding Acknowledgement (RFC 6275 11.7.3, RFC 3963 5.3 and 5.4).
    fn acknowledged(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        acknowledgement: &BindingAcknowledgement<'_>,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        let Some(exchange) = self.exchange.clone() else { return Err(MobilityDrop::Unexpected) };
        // RFC 6275 6.4: away from home it bears our home address in a type 2 routing header.
        let at_home_address = message.destination == self.config.home_address;
        if !at_home_address && message.routing_home_address != Some(self.config.home_address) {
            return Err(MobilityDrop::WrongParty);
        }
        if let Some(association) = self.config.authentication.association() {
            association.verify(octets, exchange.care_of_address, self.config.home_address)?;
        }
        let status = Status(acknowledgement.status);
        if status == Status::SEQUENCE_OUT_OF_WINDOW {
            return self.sequence_error(now, wall, exchange, acknowledgement.sequence);
        }
        let sent = exchange.find(acknowledgement.sequence).ok_or(MobilityDrop::Unexpected)?;
        let timestamp = acknowledgement.options.iter().find_map(|option| match option {
            Ok(MobilityOption::MessageIdentifier(timestamp)) => Some(timestamp),
            _ => None,
        });
        if status == Status::ID_MISMATCH {
            self.learn_clock(wall, sent.timestamp, timestamp);
            return self.correct(now, wall, exchange);
        }
        if sent.timestamp.is_some() && sent.timestamp != timestamp {
            return Err(MobilityDrop::Timestamp);
        }
        if !status.is_rejection() {
            self.acknowledged_timestamp = timestamp.unwrap_or(0).max(self.acknowledged_timestamp);
        }
        if exchange.purpose == Purpose::Deregister {
            self.deregistered(now, wall, status);
            return Ok(());
        }
        if status.is_rejection() {
            self.rejected(now, wall, exchange, status);
            return Ok(());
        }
        if !acknowledgement.mobile_router {
            // RFC 3963 5.3: it took us for a mere mobile node; de-register and do not come back.
            self.refused = Some(Status::MOBILE_ROUTER_NOT_PERMITTED);
            self.unregister();
            self.outputs.push_back(Output::Event(Event::Rejected {
                status: status.0,
                reason: "the home agent does not support mobile routers (no R flag in its acknowledgement)"
                    .into(),
            }));
            self.exchange =
                Some(Exchange::new(Purpose::Deregister, exchange.uplink, exchange.care_of_address, false));
            self.transmit(now, wall);
            self.forwarding_changed("the home agent does not support mobile routers");
            return Ok(());
        }
        if acknowledgement.lifetime == 0 {
            // RFC 6275 11.7.3: nothing remains, so nothing is registered. It need not be so for ever.
            self.unregister();
            self.hold(now, MAX_BINDACK_TIMEOUT);
            self.forwarding_changed("the home agent granted no lifetime");
            return Ok(());
        }
        self.accept(now, &exchange, sent, acknowledgement);
        Ok(())
    }

    /// Nothing is registered any more.
    fn unregister(&mut self) {
        self.registration = None;
        self.timers.stop(Timer::Refresh);
        self.timers.stop(Timer::Expire);
    }

    /// The exchange goes on, but not before `after` has passed.
    fn hold(&mut self, now: Time, after: Duration) {
        if let Some(exchange) = &mut self.exchange {
            exchange.held = true;
            self.timers.set(Timer::Retransmit, now + after);
        }
    }

    fn accept(
        &mut self,
        now: Time,
        exchange: &Exchange,
        sent: Sent,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) {
        // Not more than was asked for, and counted from when it was asked for.
        let lifetime = lifetime_from_units(acknowledgement.lifetime).min(self.config.lifetime);
        let registration = Registration {
            care_of_address: exchange.care_of_address,
            lifetime,
            expires: sent.at + lifetime,
            sequence: sent.sequence,
        };
        let before = self.registration.replace(registration);
        if let Some(before) = before
            && before.care_of_address != registration.care_of_address
        {
            self.retire(now, before.care_of_address);
        }
        self.exchange = None;
        self.doubtful = false;
        self.timers.stop(Timer::Retransmit);
        let advised = acknowledgement.options.iter().find_map(|option| match option {
            Ok(MobilityOption::BindingRefreshAdvice(units)) => Some(lifetime_from_units(units)),
            _ => None,
        });
        let after = advised
            .filter(|advice| *advice < lifetime && !advice.is_zero())
            .unwrap_or(lifetime)
            .min(refresh_after(lifetime));
        self.timers.set(Timer::Refresh, sent.at + after);
        self.timers.set(Timer::Expire, registration.expires);
        let latency = now.saturating_since(exchange.started.unwrap_or(now));
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        self.outputs.push_back(Output::Event(Event::Registered {
            home_agent: self.config.home_agent,
            care_of_address: registration.care_of_address,
            uplink: self.uplinks[exchange.uplink].config.interface.clone(),
            latency_us: u64::try_from(latency.as_micros()).unwrap_or(u64::MAX),
            lifetime_s: u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX),
            refresh: before.is_some_and(|b| b.care_of_address == registration.care_of_address),
        }));
        self.forwarding_changed("the home agent acknowledged it");
    }

    /// Status 135: the next number after the one that the home agent names, at once but not for ever.
    fn sequence_error(
        &mut self,
        now: Time,
        wall: WallTime,
        exchange: Exchange,
        last: u16,
    ) -> Result<(), MobilityDrop> {
        // A number that the last transmission has passed already: a duplicate, or a late answer.
        if exchange.sent.is_empty() || is_newer(self.sequence, last) {
            return Err(MobilityDrop::Unexpected);
        }
        self.sequence = last;
        self.correct(now, wall, exchange)
    }

    /// What the home agent objected to has been corrected: tries again at once, but not for ever.
    fn correct(&mut self, now: Time, wall: WallTime, mut exchange: Exchange) -> Result<(), MobilityDrop> {
        exchange.corrections += 1;
        let patient = exchange.corrections <= MAX_CORRECTIONS;
        self.exchange = Some(exchange);
        if !patient {
            return Err(MobilityDrop::RateLimited);
        }
        self.transmit(now, wall);
        Ok(())
    }

    /// Status 144: the home agent's clock is the one that counts (RFC 4285 6). It names its time to a second;
    /// when that is close enough to what was sent, the timestamp was only older than another one, and the
    /// clock is right.
    fn learn_clock(&mut self, wall: WallTime, sent: Option<u64>, told: Option<u64>) {
        let date = |timestamp: Option<u64>| timestamp.and_then(WallTime::from_ntp);
        let (Some(window), Some(ours), Some(theirs)) = (self.replay_window(), date(sent), date(told)) else {
            return;
        };
        if theirs.distance(ours) + Duration::from_secs(1) > window {
            self.clock_offset = i128::from(theirs.as_unix_nanos()) - i128::from(wall.as_unix_nanos());
            self.newest_timestamp = self.acknowledged_timestamp;
        }
    }

    fn rejected(&mut self, now: Time, wall: WallTime, exchange: Exchange, status: Status) {
        let action = remedy(status);
        let what = match action {
            Remedy::Retry(after) => format!("trying again in {} s", after.as_secs()),
            Remedy::StartOver => "de-registering first".into(),
            Remedy::GiveUp => "giving up until a restart or a `carnet handover`".into(),
        };
        self.outputs.push_back(Output::Event(Event::Rejected {
            status: status.0,
            reason: format!("{}; {what}", status.meaning()),
        }));
        match action {
            Remedy::Retry(after) => self.hold(now, after),
            Remedy::StartOver => {
                self.unregister();
                self.exchange = Some(Exchange::new(
                    Purpose::Deregister,
                    exchange.uplink,
                    exchange.care_of_address,
                    false,
                ));
                self.transmit(now, wall);
            }
            Remedy::GiveUp => {
                // RFC 3963 5.4: the home agent did not create (or keep) a binding on our behalf.
                self.refused = Some(status);
                self.unregister();
                self.exchange = None;
                self.timers.stop(Timer::Retransmit);
            }
        }
        self.forwarding_changed("the home agent refused");
    }

    /// A de-registration was answered; 133 means that there was nothing to end.
    fn deregistered(&mut self, now: Time, wall: WallTime, status: Status) {
        if status.is_rejection() && status != Status::NOT_HOME_AGENT {
            self.outputs.push_back(Output::Event(Event::Rejected {
                status: status.0,
                reason: format!("de-registration: {}", status.meaning()),
            }));
            if self.at_home && !self.stopping {
                // The home agent goes on defending the home address, which is not ours yet.
                self.hold(now, MAX_BINDACK_TIMEOUT);
                return;
            }
        }
        self.exchange = None;
        self.timers.stop(Timer::Retransmit);
        if self.at_home {
            self.announce_home();
        } else if !self.stopping && self.refused.is_none() {
            self.evaluate(now, wall, "registering anew");
        }
    }

    /// RFC 6275 11.5.5: tells the home link that the home address is here again.
    fn announce_home(&mut self) {
        let Some(uplink) = self.home_uplink() else { return };
        let advertisement = nd::NeighborAdvertisement {
            target: self.config.home_address,
            router: true,
            solicited: false,
            override_: true,
            target_link_address: uplink.link_address(),
        };
        let mut message = advertisement.emit();
        icmpv6::set_checksum(&mut message, self.config.home_address, ALL_NODES);
        let message = LinkMessage {
            interface: uplink.config.interface.clone(),
            source: self.config.home_address,
            destination: ALL_NODES,
            hop_limit: ND_HOP_LIMIT,
            peer: None,
            message,
        };
        self.outputs.push_back(Output::Link(message));
    }

    /// Packets to `care_of_address` that are on their way are still welcome for a while.
    fn retire(&mut self, now: Time, care_of_address: Ipv6Addr) {
        self.previous = Some((care_of_address, now + OLD_PATH_GRACE));
        self.timers.set(Timer::Grace, now + OLD_PATH_GRACE);
    }

    /// Asks for the forwarding to be computed anew, and reports when traffic moved.
    fn forwarding_changed(&mut self, reason: &str) {
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        let active = self.active_uplink();
        if active != self.reported_path {
            let name = |index: usize| {
                self.uplinks.get(index).map(|u| u.config.interface.clone()).unwrap_or_default()
            };
            self.outputs.push_back(Output::Event(Event::Handover {
                from: self.reported_path.map(name),
                to: active.map(name),
                reason: reason.to_string(),
            }));
            self.reported_path = active;
        }
    }
}
