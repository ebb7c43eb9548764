//! Binding Updates: what is in them and how often they leave (RFC 6275 11.7.1 and 11.8, RFC 3963 5.2).
//!
//! Every transmission has a new sequence number and, where the security association wants one, a greater
//! timestamp than all before (RFC 4285 6).

use std::time::Duration;

use carnet_base::{Time, WallTime};
use carnet_wire::mobility::{BindingUpdateFlags, Builder, ControlPacket, MobilityOption};

use super::binding_update_list::{Exchange, Purpose, Sent};
use super::{MobileRouter, RegistrationMode, Timer};
use crate::sequence::is_later;
use crate::{Event, HOP_LIMIT, MAX_UPDATE_RATE, Output, ReplayProtection, lifetime_units};

/// After so many Binding Updates without answer the operator is told.
const SILENT_AFTER: usize = 4;

impl MobileRouter {
    /// Sends the outstanding Binding Update, with a new sequence number, and sets the timer for the next
    /// time. Not more often than `MAX_UPDATE_RATE` (RFC 6275 11.8). Over another uplink instead when this one has
    /// brought no answers.
    pub(super) fn transmit(&mut self, now: Time, wall: WallTime) {
        if self.is_uplink_silent(now) {
            return self.demote(now, wall);
        }
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
        if exchange.sent.len() == SILENT_AFTER && exchange.purpose == Purpose::Register {
            let message = format!(
                "no valid acknowledgement from the home agent {} over {} after {SILENT_AFTER} Binding Updates",
                self.config.home_agent, self.uplinks[exchange.uplink].config.interface
            );
            self.outputs.push_back(Output::Event(Event::Warning { message }));
        }
        if exchange.single {
            self.timers.stop(Timer::Retransmit);
        } else {
            self.timers.set(Timer::Retransmit, now + wait);
        }
        self.exchange = Some(exchange);
        // The forwarding that the Binding Update itself needs (its source address's uplink) comes first.
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        self.outputs.push_back(Output::Persist);
        self.outputs.push_back(Output::Packet(packet));
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

    /// The NTP timestamp for a Message-ID option, where the security association asks for one. Greater than
    /// every one before (RFC 4285 6), also at the same instant or when the clock was set back a little.
    fn timestamp(&mut self, wall: WallTime) -> Option<u64> {
        self.replay_window()?;
        let clock = self.clock(wall).to_ntp();
        let least = self.newest_timestamp.map_or(clock, |newest| newest.wrapping_add(1));
        let timestamp = if is_later(clock, least) { clock } else { least };
        self.newest_timestamp = Some(timestamp);
        Some(timestamp)
    }

    /// How far the home agent's clock may be from ours, where timestamps are in use.
    pub(super) fn replay_window(&self) -> Option<Duration> {
        match self.config.authentication.association()?.replay {
            ReplayProtection::Timestamp { window } => Some(window),
            ReplayProtection::Sequence => None,
        }
    }

    /// The home agent's clock, as far as we know.
    pub(super) fn clock(&self, wall: WallTime) -> WallTime {
        let nanos = i128::from(wall.as_unix_nanos()) + self.clock_offset;
        WallTime::from_unix_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }
}
