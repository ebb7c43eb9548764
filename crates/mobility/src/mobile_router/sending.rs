//! Binding Updates: what is in them and how often they leave (RFC 6275 11.7.1 and 11.8, RFC 3963 5.2).
//!
//! Every transmission has a new sequence number and, where the security association wants one, a greater
//! timestamp than all before (RFC 4285 6).
//!
//! All bindings of a home address share the sequence number (RFC 5648 4.1), and the home agent refuses a
//! number that is not greater than the last one (RFC 6275 9.5.1). Uplinks have different delays: two Binding
//! Updates that leave by two uplinks at once may arrive in the other order. So at most one is outstanding:
//! the next one leaves once the home agent has answered, once the first has had the time to arrive, or at
//! once if the first left by an uplink that is gone or silent, because traffic must not wait for it.

use std::net::{IpAddr, Ipv6Addr, SocketAddrV4};
use std::time::Duration;

use carnet_base::{Endpoint, Time, WallTime};
use carnet_wire::mobility::{BindingUpdateFlags, Builder, ControlPacket, MobilityOption};

use super::{MobileRouter, Registration, RegistrationMode, Timer};
use crate::binding_update_list::{CONNECTION_ATTEMPT_DELAY, Exchange, Outstanding, Purpose, Sent};
use crate::security::DEFAULT_WINDOW;
use crate::sequence::is_later;
use crate::{Event, HOP_LIMIT, MAX_UPDATE_RATE, Output, ReplayProtection, UDP_PORT, lifetime_units};

/// A minute in nanoseconds.
const MINUTE: u64 = 60_000_000_000;
/// After so many Binding Updates without answer the operator is told.
pub(super) const SILENT_AFTER: usize = 4;

/// A care-of address as it is authenticated and compared: an IPv4 one as IPv4-mapped.
pub(super) fn mapped(care_of_address: IpAddr) -> Ipv6Addr {
    match care_of_address {
        IpAddr::V6(address) => address,
        IpAddr::V4(address) => address.to_ipv6_mapped(),
    }
}

impl MobileRouter {
    /// Sends the outstanding Binding Update, with a new sequence number, and sets the timer for the next
    /// time. Not more often than `MAX_UPDATE_RATE` (RFC 6275 11.8). Over another uplink instead when this one
    /// has brought no answers.
    pub(super) fn transmit(&mut self, now: Time, wall: WallTime) {
        if self.is_uplink_silent(now) {
            return self.demote(now, wall);
        }
        let Some(mut exchange) = self.list.exchange.take() else { return };
        if let Some(next) = self.next_update_allowed(now) {
            self.timers.set(Timer::Retransmit, next);
            self.list.exchange = Some(exchange);
            self.list.is_waiting = self.overtaking_until(now).is_some();
            return;
        }
        self.list.is_waiting = false;
        if exchange.purpose == Purpose::Register && exchange.unanswered > 0 {
            // What worked a while ago is silent now: all there is joins the race.
            for address in self.uplinks[exchange.uplink].care_of_addresses() {
                if !exchange.care_of_addresses.contains(&address) {
                    exchange.care_of_addresses.push(address);
                }
            }
        }
        let Some(care_of_address) = exchange.next_care_of_address() else { return };
        let via = (exchange.uplink, care_of_address);
        let (sequence, timestamp) = self.number_update(now, wall, via, mapped(care_of_address));
        let sent = Sent { sequence, at: now, timestamp, care_of_address };
        let output = self.binding_update(&exchange, sent);
        let wait = exchange.transmitted(sent);
        if self.is_full(exchange.uplink) {
            exchange.timeout = exchange.timeout.min(super::registering::FULL_TIMEOUT);
        }
        if exchange.sent.len() == SILENT_AFTER && exchange.purpose == Purpose::Register {
            self.warn_of_silence(exchange.uplink);
        }
        if exchange.single {
            self.timers.stop(Timer::Retransmit);
        } else {
            self.timers.set(Timer::Retransmit, now + wait);
        }
        self.update_sent(now, exchange.uplink);
        self.list.exchange = Some(exchange);
        self.send_update(output);
    }

    /// [`SILENT_AFTER`] Binding Updates over an uplink have brought nothing. The cause is told apart at the
    /// home agent only: it says nothing to whom it does not know.
    pub(super) fn warn_of_silence(&mut self, uplink: usize) {
        let config = &self.config;
        let name = self.uplinks.get(uplink).map_or("?", |uplink| uplink.config.interface.as_str());
        let unknown = match self.numbers.authentication.association() {
            Some(association) => {
                format!("the home address {} or the SPI {}", config.home_address, association.spi)
            }
            None => format!("the home address {}", config.home_address),
        };
        let message = format!(
            "no valid acknowledgement from the home agent {} over {name} after {SILENT_AFTER} Binding Updates: it \
             cannot be reached that way, or does not know {unknown}, which its log tells",
            config.home_agent
        );
        self.outputs.push_back(Output::Event(Event::Warning { message }));
    }

    /// When the next Binding Update may leave, if not now: not more often than RFC 6275 11.7.1 has it, and
    /// behind the outstanding one.
    pub(super) fn next_update_allowed(&mut self, now: Time) -> Option<Time> {
        self.update_rate_limit(now).max(self.overtaking_until(now))
    }

    /// Until when a Binding Update could arrive before the outstanding one; `None` if it cannot now.
    fn overtaking_until(&self, now: Time) -> Option<Time> {
        let Outstanding { at, via: (uplink, address), .. } = self.list.outstanding?;
        let link = self.uplinks.get(uplink)?;
        let at_home = self.home.at_home && address == IpAddr::V6(self.config.home_address);
        if !(at_home || link.has_care_of_address(address)) || self.is_silent(uplink) {
            return None;
        }
        let arrived = at + self.answer_time(uplink).unwrap_or_default().max(CONNECTION_ATTEMPT_DELAY);
        (arrived > now).then_some(arrived)
    }

    /// An acknowledgement has answered the outstanding Binding Update: what waited for that leaves now.
    pub(super) fn update_answered(&mut self, now: Time, wall: WallTime) {
        if self.is_multiple() {
            self.reconcile(now, wall);
        } else if std::mem::take(&mut self.list.is_waiting) && self.list.exchange.is_some() {
            self.transmit(now, wall);
        }
    }

    fn update_rate_limit(&mut self, now: Time) -> Option<Time> {
        let second = Duration::from_secs(1);
        while self.numbers.sent_at.front().is_some_and(|at| now.saturating_since(*at) >= second) {
            self.numbers.sent_at.pop_front();
        }
        let first = self.numbers.sent_at.front()?;
        (self.numbers.sent_at.len() >= MAX_UPDATE_RATE).then_some(*first + second)
    }

    /// The sequence number and timestamp of a Binding Update that leaves now from `via`. All bindings share
    /// the number (RFC 5648 4.1).
    pub(super) fn number_update(
        &mut self,
        now: Time,
        wall: WallTime,
        via: (usize, IpAddr),
        authenticated: Ipv6Addr,
    ) -> (u16, Option<u64>) {
        self.numbers.sent_at.push_back(now);
        // A start without stored state goes on from the minutes of the clock: two starts are as many numbers
        // apart as minutes. A random number would use up the key's 2^15 numbers (RFC 6275 15.3) in a few
        // starts.
        if !self.numbers.is_numbered {
            self.numbers.sequence = (wall.as_unix_nanos() / MINUTE) as u16;
            self.numbers.is_numbered = true;
        }
        self.numbers.sequence = self.numbers.sequence.wrapping_add(1);
        self.list.outstanding =
            Some(Outstanding { sequence: self.numbers.sequence, at: now, via, authenticated });
        (self.numbers.sequence, self.timestamp(wall))
    }

    /// The forwarding that the Binding Update itself needs (its source address's uplink) comes first.
    pub(super) fn send_update(&mut self, update: Output) {
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        self.outputs.push_back(Output::Persist(self.config.home_address));
        self.outputs.push_back(update);
    }

    /// Builds a Binding Update (RFC 6275 11.7.1, RFC 3963 5.2, RFC 4285 5.1, RFC 5555 4.4.2).
    fn binding_update(&self, exchange: &Exchange, sent: Sent) -> Output {
        let config = &self.config;
        let from_home = sent.care_of_address == IpAddr::V6(config.home_address);
        let register = exchange.purpose == Purpose::Register;
        let flags = BindingUpdateFlags {
            acknowledge: true,
            home_registration: true,
            mobile_router: config.is_router(),
            force_udp: sent.care_of_address.is_ipv4() && self.forces_udp(exchange.uplink),
            ..BindingUpdateFlags::default()
        };
        let lifetime = if register { lifetime_units(config.lifetime) } else { 0 };
        let mut builder = Builder::binding_update(sent.sequence, flags, lifetime);
        match sent.care_of_address {
            _ if from_home => {}
            IpAddr::V6(address) => {
                builder = builder.option(&MobilityOption::AlternateCareOfAddress(address));
            }
            IpAddr::V4(address) => {
                builder = builder.option(&MobilityOption::Ipv4CareOfAddress(address));
            }
        }
        if register {
            builder = self.add_prefixes(builder);
        }
        let authenticated = mapped(sent.care_of_address);
        let mut mobility_header = self.finish_authenticated(builder, sent.timestamp, authenticated);
        self.control_packet(exchange.uplink, sent.care_of_address, &mut mobility_header)
    }

    /// The prefixes, where Binding Updates name them.
    pub(super) fn add_prefixes(&self, mut builder: Builder) -> Builder {
        if self.config.mode == RegistrationMode::Explicit {
            for prefix in &self.config.prefixes {
                builder = builder.option(&MobilityOption::MobileNetworkPrefix {
                    prefix: prefix.network(),
                    prefix_length: prefix.prefix_len(),
                });
            }
        }
        builder
    }

    /// Adds what authenticates a Binding Update for this care-of address; an IPv4 one counts as IPv4-mapped.
    pub(super) fn finish_authenticated(
        &self,
        mut builder: Builder,
        timestamp: Option<u64>,
        care_of_address: Ipv6Addr,
    ) -> Vec<u8> {
        if let Some(timestamp) = timestamp {
            builder = builder.option(&MobilityOption::MessageIdentifier(timestamp));
        }
        let Some(association) = self.numbers.authentication.association() else { return builder.finish() };
        let mut mobility_header = builder.option(&association.blank_option()).finish();
        association.sign(&mut mobility_header, care_of_address, self.config.home_address);
        mobility_header
    }

    /// A Mobility Header message on its way from a care-of address to the home agent: inside UDP from an IPv4
    /// one (RFC 5555 4.1), where the packet itself bears the home address.
    pub(super) fn control_packet(
        &self,
        uplink: usize,
        care_of_address: IpAddr,
        mobility_header: &mut [u8],
    ) -> Output {
        self.packet(uplink, care_of_address, true, mobility_header)
    }

    /// A Heartbeat, which takes the way that data takes.
    pub(super) fn heartbeat_packet(
        &self,
        uplink: usize,
        registration: Registration,
        mobility_header: &mut [u8],
    ) -> Output {
        self.packet(uplink, registration.care_of_address, registration.udp, mobility_header)
    }

    fn packet(
        &self,
        uplink: usize,
        care_of_address: IpAddr,
        udp: bool,
        mobility_header: &mut [u8],
    ) -> Output {
        let config = &self.config;
        let away = care_of_address != IpAddr::V6(config.home_address);
        let (source, home_address) = match care_of_address {
            IpAddr::V6(address) => (address, away.then_some(config.home_address)),
            IpAddr::V4(_) => (config.home_address, None),
        };
        let packet = ControlPacket {
            source,
            destination: config.home_agent,
            hop_limit: HOP_LIMIT,
            home_address,
            routing_home_address: None,
            mobility_header,
        }
        .emit();
        match self.ends(uplink, care_of_address, udp) {
            Some((Endpoint::Ipv6(_), _)) | None => Output::Packet(packet),
            Some((local, remote)) => Output::Encapsulated { local, remote, packet },
        }
    }

    /// The two ends of the tunnel from a care-of address of an uplink; `None` for an IPv4 one when the home
    /// agent has no IPv4 address.
    pub(super) fn ends(
        &self,
        uplink: usize,
        care_of_address: IpAddr,
        udp: bool,
    ) -> Option<(Endpoint, Endpoint)> {
        let socket = |address, port| Endpoint::Udp(SocketAddrV4::new(address, port));
        let port = self.uplinks.get(uplink).map_or(UDP_PORT, |uplink| uplink.udp_port);
        match care_of_address {
            IpAddr::V6(address) => Some((Endpoint::Ipv6(address), Endpoint::Ipv6(self.config.home_agent))),
            IpAddr::V4(address) => {
                let agent = self.config.home_agent_ipv4?;
                if udp {
                    Some((socket(address, port), socket(agent, UDP_PORT)))
                } else {
                    Some((Endpoint::Ipv4(address), Endpoint::Ipv4(agent)))
                }
            }
        }
    }

    /// Whether the home agent is asked to use UDP also without a NAT (RFC 5555 4.4.1).
    pub(super) fn forces_udp(&self, uplink: usize) -> bool {
        self.config.force_udp || self.uplinks.get(uplink).is_some_and(|uplink| uplink.needs_udp)
    }

    /// The NTP timestamp for a Message-ID option, where the security association asks for one. Greater than
    /// every one before (RFC 4285 6), also at the same instant or when the clock was set back a little.
    fn timestamp(&mut self, wall: WallTime) -> Option<u64> {
        self.replay_window()?;
        let clock = self.clock(wall).to_ntp();
        let least = self.numbers.newest_timestamp.map_or(clock, |newest| newest.wrapping_add(1));
        let timestamp = if is_later(clock, least) { clock } else { least };
        self.numbers.newest_timestamp = Some(timestamp);
        Some(timestamp)
    }

    /// How far the home agent's clock may be from ours, where timestamps are in use.
    pub(super) fn replay_window(&self) -> Option<Duration> {
        match self.numbers.authentication.association()?.replay {
            ReplayProtection::Timestamp { window } => Some(window),
            ReplayProtection::Sequence => self.numbers.timestamps_demanded.then_some(DEFAULT_WINDOW),
        }
    }

    /// The home agent's clock, as far as we know.
    pub(super) fn clock(&self, wall: WallTime) -> WallTime {
        let nanos = i128::from(wall.as_unix_nanos()) + self.numbers.clock_offset;
        WallTime::from_unix_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}
