//! What the home agent says: Binding Acknowledgements (RFC 6275 11.7.3, RFC 3963 5.3 and 5.4).
//!
//! An answer that corrects us (status 135 names the sequence number, 144 the time) is followed at once, a few
//! times. One that refuses for now puts the exchange on hold. One that says no to what we are stops the
//! service (RFC 3963 5.4); from then on a single Binding Update asks again every [`REFUSED_INTERVAL`], so
//! that a router whose home agent has been put right comes back without anybody's help. After status 129 and
//! 131 to 133, which a home agent may send while it starts, the pauses begin with seconds and double up to
//! that interval. One whose Binding Update is accepted after all (somebody else has sent another one with its
//! number, and what that was told came first) asks at once.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use carnet_base::{LinkMessage, Time, WallTime};
use carnet_wire::mobility::options::NO_KEEPALIVE;
use carnet_wire::mobility::status::Status;
use carnet_wire::mobility::{BindingAcknowledgement, MobilityOption};
use carnet_wire::{icmpv6, nd};

use super::sending::mapped;
use super::{
    Contradicted, Hints, KNOWN_REFUSAL_PAUSE, MobileRouter, REFUSED_INTERVAL, Registration, Timer,
    UNKNOWN_REFUSAL_PAUSE,
};
use crate::binding_update_list::{
    Exchange, MAX_BINDACK_TIMEOUT, Purpose, Remedy, Sent, refresh_after, remedy,
};
use crate::home_agent::ND_HOP_LIMIT;
use crate::{Event, MobilityDrop, MobilityMessage, Output, is_newer, lifetime_from_units};

/// Statuses 135 and 144 are answered at once this often in an exchange; then the back-off applies.
const MAX_CORRECTIONS: u32 = 3;

impl MobileRouter {
    /// Handles a Binding Acknowledgement, and sends what has waited for it.
    pub(super) fn acknowledged(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        acknowledgement: &BindingAcknowledgement<'_>,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        let answered = self.list.outstanding.filter(|outstanding| {
            let home_address = self.config.home_address;
            outstanding.sequence == acknowledgement.sequence
                && Status(acknowledgement.status) != Status::SEQUENCE_OUT_OF_WINDOW
                && self.numbers.authentication.verify(octets, outstanding.authenticated, home_address).is_ok()
        });
        if answered.is_some() {
            self.list.outstanding = None;
        }
        let result = self.take_acknowledgement(now, wall, message, acknowledgement, octets);
        if answered.is_some() {
            self.update_answered(now, wall);
        }
        result
    }

    /// Handles a Binding Acknowledgement (RFC 6275 11.7.3, RFC 3963 5.3 and 5.4).
    fn take_acknowledgement(
        &mut self,
        now: Time,
        wall: WallTime,
        message: &MobilityMessage<'_>,
        acknowledgement: &BindingAcknowledgement<'_>,
        octets: &[u8],
    ) -> Result<(), MobilityDrop> {
        // RFC 6275 6.4: away from home it bears our home address in a type 2 routing header.
        let at_home_address = message.destination == self.config.home_address;
        if !at_home_address && message.routing_home_address != Some(self.config.home_address) {
            return Err(MobilityDrop::WrongParty);
        }
        if let Some(contradicted) =
            self.refusals.contradicted.filter(|it| it.sequence == acknowledgement.sequence)
            && !Status(acknowledgement.status).is_rejection()
        {
            self.verify_acknowledgement(now, octets, contradicted.authenticated)?;
            self.end_refusal();
            self.evaluate(now, wall, "the home agent accepted what it had refused");
            return Ok(());
        }
        if self.answers_bindings(acknowledgement) {
            return self.bindings_acknowledged(now, wall, acknowledgement, octets);
        }
        let Some(mut exchange) = self.list.exchange.clone() else { return Err(MobilityDrop::Unexpected) };
        let sequence = self.answered_sequence(acknowledgement).ok_or(MobilityDrop::Unexpected)?;
        let sent = exchange.find(sequence).ok_or(MobilityDrop::Unexpected)?;
        self.verify_acknowledgement(now, octets, mapped(sent.care_of_address))?;
        let status = Status(acknowledgement.status);
        if status == Status::SEQUENCE_OUT_OF_WINDOW {
            return self.sequence_error(now, wall, exchange, acknowledgement.sequence);
        }
        exchange.answered();
        self.list.exchange = Some(exchange.clone());
        let timestamp = acknowledgement.options.iter().find_map(|option| match option {
            Ok(MobilityOption::MessageIdentifier(timestamp)) => Some(timestamp),
            _ => None,
        });
        if status == Status::ID_MISMATCH {
            self.learn_clock(wall, sent.timestamp, timestamp);
            return self.correct(now, wall, exchange);
        }
        if status == Status::MESSAGE_ID_REQUIRED && self.take_up_timestamps() {
            return self.correct(now, wall, exchange);
        }
        if sent.timestamp.is_some() && sent.timestamp != timestamp {
            return Err(MobilityDrop::Timestamp);
        }
        if exchange.single {
            // What comes now is a new answer; the refusal may be repeated in it.
            self.end_refusal();
            self.list.exchange = Some(Exchange { single: false, ..exchange.clone() });
        }
        if !status.is_rejection() {
            let registers = exchange.purpose == Purpose::Register;
            self.timestamp_acknowledged(sent.at, sent.timestamp, timestamp, registers);
        }
        if exchange.purpose == Purpose::Deregister {
            self.deregistered(now, wall, status);
            return Ok(());
        }
        if status.is_rejection() {
            self.rejected(now, wall, exchange, sent, status);
            return Ok(());
        }
        if self.taken_for_a_host(acknowledgement) {
            self.not_a_mobile_router(now, wall, exchange.uplink, sent.care_of_address);
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
        // What was sent later about the other care-of address of the race is undone.
        let overtaken = exchange.sent.iter().any(|other| {
            other.care_of_address != sent.care_of_address && is_newer(other.sequence, sent.sequence)
        });
        if overtaken {
            self.refresh(now, wall);
        }
        Ok(())
    }

    /// Checks the MAC of an acknowledgement, where there is to be one. The operator is told what is wrong
    /// with it; of keys only if no Binding Update of ours explains the MAC. One that answers an older Binding
    /// Update has the MAC for another care-of address, and is late, not wrong.
    pub(super) fn verify_acknowledgement(
        &mut self,
        now: Time,
        octets: &[u8],
        care_of_address: Ipv6Addr,
    ) -> Result<(), MobilityDrop> {
        let home_address = self.config.home_address;
        let verified = self.numbers.authentication.verify(octets, care_of_address, home_address);
        if let Err(reason) = verified
            && self.refusals.key_warnings.allow(now)
            && !self
                .own_addresses()
                .any(|own| self.numbers.authentication.verify(octets, own, home_address).is_ok())
        {
            let spi = self.numbers.authentication.association().map_or(0, |association| association.spi);
            let agent = self.config.home_agent;
            let what = match reason {
                MobilityDrop::AuthenticationMissing => {
                    "has no authentication option: does the home agent have a key for this router?"
                        .to_string()
                }
                MobilityDrop::UnknownSpi => format!("has an unknown SPI, expected {spi}"),
                MobilityDrop::AuthenticationFailed => {
                    format!("has a wrong MAC: do both ends have the same key for SPI {spi}?")
                }
                other => format!("cannot be verified ({other})"),
            };
            let message = format!("an acknowledgement from the home agent {agent} {what}");
            self.refusals.key_trouble = Some(what);
            self.outputs.push_back(Output::Event(Event::Warning { message }));
        }
        verified
    }

    /// Every address that an acknowledgement to us may be authenticated with.
    fn own_addresses(&self) -> impl Iterator<Item = Ipv6Addr> {
        let current = self.accepted_care_of_addresses().into_iter().map(|(address, _)| mapped(address));
        let previous = self.list.previous.iter().map(|(address, _)| mapped(*address));
        let updates = self.list.updates.iter().map(|update| update.authenticated);
        let sent = self.list.exchange.iter().flat_map(|exchange| &exchange.sent);
        let sent = sent.map(|sent| mapped(sent.care_of_address));
        current.chain(previous).chain(updates).chain(sent).chain([self.config.home_address])
    }

    /// Whether the home agent accepted a mobile router as a mere mobile node (RFC 3963 5.3).
    pub(super) fn taken_for_a_host(&self, acknowledgement: &BindingAcknowledgement<'_>) -> bool {
        self.config.is_router() && !acknowledgement.mobile_router
    }

    /// RFC 3963 5.3: it took us for a mere mobile node; de-register and do not come back.
    pub(super) fn not_a_mobile_router(
        &mut self,
        now: Time,
        wall: WallTime,
        uplink: usize,
        care_of_address: IpAddr,
    ) {
        self.clear_bindings(now);
        self.refuse(now, Status::MOBILE_ROUTER_NOT_PERMITTED);
        self.outputs.push_back(Output::Event(Event::Rejected {
            status: Status::ACCEPTED.0,
            reason: "the home agent does not support mobile routers (no R flag in its acknowledgement)"
                .into(),
        }));
        self.deregister_from(now, wall, uplink, care_of_address);
        self.forwarding_changed("the home agent does not support mobile routers");
    }

    /// Ends everything that the home agent has of us.
    pub(super) fn deregister_from(
        &mut self,
        now: Time,
        wall: WallTime,
        uplink: usize,
        care_of_address: IpAddr,
    ) {
        self.list.exchange = Some(Exchange::new(Purpose::Deregister, uplink, vec![care_of_address], false));
        self.transmit(now, wall);
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
            uplink: exchange.uplink,
            care_of_address: sent.care_of_address,
            since: now,
            udp: self.takes_udp(exchange.uplink, sent.care_of_address, acknowledgement),
            lifetime,
            expires: sent.at + lifetime,
            sequence: sent.sequence,
        };
        let registration = registration.after(self.list.registration.as_ref());
        let before = self.list.registration.replace(registration);
        if let Some(before) = before
            && before.care_of_address != registration.care_of_address
        {
            self.retire(now, before.care_of_address);
        }
        if before.is_none_or(|b| b.care_of_address != registration.care_of_address) {
            self.hints = Hints::default();
        }
        self.list.exchange = None;
        self.refusals.setback = None;
        self.registration_acknowledged();
        self.list.doubtful = false;
        // A plain binding replaces all (RFC 5648 6.2).
        self.clear_bindings(now);
        self.timers.stop(Timer::Retransmit);
        self.race_decided(now, exchange.uplink, &exchange.sent, sent);
        let advised = acknowledgement.options.iter().find_map(|option| match option {
            Ok(MobilityOption::BindingRefreshAdvice(units)) => Some(lifetime_from_units(units)),
            _ => None,
        });
        let after = advised
            .filter(|advice| *advice < lifetime && !advice.is_zero())
            .unwrap_or(lifetime)
            .min(refresh_after(lifetime, self.is_full(exchange.uplink)));
        self.timers.set(Timer::Refresh, sent.at + after);
        self.timers.set(Timer::Expire, registration.expires);
        let latency = now.saturating_since(exchange.started.unwrap_or(now));
        self.outputs.push_back(Output::Forwarding(self.config.home_address));
        self.outputs.push_back(Output::Event(Event::Registered {
            home_agent: self.config.home_agent,
            care_of_address: self.local_end(exchange.uplink, &registration),
            bid: None,
            uplink: self.uplinks[exchange.uplink].config.interface.clone(),
            latency_us: u64::try_from(latency.as_micros()).unwrap_or(u64::MAX),
            lifetime_s: u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX),
            refresh: before.is_some_and(|b| b.care_of_address == registration.care_of_address),
        }));
        self.rehabilitate(exchange.uplink);
        let same = before.is_some_and(|b| b.care_of_address == registration.care_of_address);
        self.path_registered(now, exchange.uplink, registration, same);
        self.list.back_off = None;
        let reason = self.reason_to_move(now);
        self.forwarding_changed(&reason);
    }

    /// The first care-of address of a race that brings an answer wins (RFC 8305 5); those tried before it are
    /// not tried first again on this network.
    fn race_decided(&mut self, now: Time, index: usize, all: &[Sent], winner: Sent) {
        let Some(uplink) = self.uplinks.get_mut(index) else { return };
        let before = all.iter().filter(|sent| !is_newer(sent.sequence, winner.sequence));
        uplink.race_decided(now, winner.care_of_address, before.map(|sent| sent.care_of_address));
        self.watch_candidates(now, index);
    }

    /// Whether data goes in UDP, which is for an IPv4 care-of address only: behind a NAT, or when either side
    /// wants it so (RFC 5555 4.2, 3.2.2). The option is there also without a NAT; then its refresh time is
    /// all ones.
    pub(super) fn takes_udp(
        &self,
        uplink: usize,
        care_of_address: IpAddr,
        acknowledgement: &BindingAcknowledgement<'_>,
    ) -> bool {
        let told = acknowledgement.options.iter().any(|option| {
            matches!(
                option,
                Ok(MobilityOption::NatDetection { force_udp, refresh }) if force_udp || refresh != NO_KEEPALIVE
            )
        });
        care_of_address.is_ipv4() && (told || self.forces_udp(uplink))
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
        if is_newer(self.numbers.sequence, last) {
            return Err(MobilityDrop::Unexpected);
        }
        self.numbers.sequence = last;
        self.list.outstanding = None;
        let mut exchange = exchange;
        exchange.answered();
        self.correct(now, wall, exchange)
    }

    /// What the home agent objected to has been corrected: tries again at once, but not for ever.
    fn correct(&mut self, now: Time, wall: WallTime, mut exchange: Exchange) -> Result<(), MobilityDrop> {
        exchange.corrections += 1;
        let patient = exchange.corrections <= MAX_CORRECTIONS;
        self.list.exchange = Some(exchange);
        if !patient {
            return Err(MobilityDrop::RateLimited);
        }
        self.transmit(now, wall);
        Ok(())
    }

    /// Status 145 (RFC 4285 6): from now on Binding Updates have timestamps, if they had none before.
    pub(super) fn take_up_timestamps(&mut self) -> bool {
        let can = self.numbers.authentication.association().is_some() && self.replay_window().is_none();
        self.numbers.timestamps_demanded |= can;
        can
    }

    /// Status 144: the home agent's clock is the one that counts (RFC 4285 6). It names its time to a second;
    /// when that is close enough to what was sent, the timestamp was only older than another one, and the
    /// clock is right.
    pub(super) fn learn_clock(&mut self, wall: WallTime, sent: Option<u64>, told: Option<u64>) {
        let clock = self.clock(wall);
        let date = |timestamp: Option<u64>| Some(WallTime::from_ntp(timestamp?, clock));
        let (Some(window), Some(ours), Some(theirs)) = (self.replay_window(), date(sent), date(told)) else {
            return;
        };
        if theirs.distance(ours) + Duration::from_secs(1) > window {
            self.numbers.clock_offset = i128::from(theirs.as_unix_nanos()) - i128::from(wall.as_unix_nanos());
            self.numbers.newest_timestamp = self.numbers.acknowledged_timestamp;
        }
    }

    fn rejected(&mut self, now: Time, wall: WallTime, exchange: Exchange, sent: Sent, status: Status) {
        let action = if status == Status::AUTHENTICATION_FAILED && self.list.registration.is_some() {
            // The home agent holds a binding of ours: the key was right a moment ago. More likely than a new
            // key is a stranger who has made the home agent say so, with a forgery that names our address and
            // our number. It shall not cost the time that the registration has left.
            Remedy::GoOn
        } else {
            remedy(status)
        };
        let what = match action {
            Remedy::GoOn => "registered all the same, trying again".into(),
            Remedy::Retry(after) => format!("trying again in {} s", after.as_secs()),
            Remedy::StartOver => "de-registering first".into(),
            Remedy::BackOff | Remedy::Stop => {
                // RFC 3963 5.4: the home agent did not create (or keep) a binding on our behalf.
                self.refuse(now, status);
                self.service_stops(now)
            }
        };
        self.outputs.push_back(Output::Event(Event::Rejected {
            status: status.0,
            reason: format!("{}; {what}", status.meaning()),
        }));
        match action {
            Remedy::Retry(after) => {
                self.refusals.setback = Some(status);
                self.hold(now, after);
            }
            Remedy::StartOver => {
                self.unregister();
                let addresses = exchange.care_of_address().into_iter().collect();
                self.list.exchange =
                    Some(Exchange::new(Purpose::Deregister, exchange.uplink, addresses, false));
                self.transmit(now, wall);
            }
            Remedy::GoOn => return,
            Remedy::BackOff | Remedy::Stop => {
                let authenticated = mapped(sent.care_of_address);
                self.refusals.contradicted = Some(Contradicted { sequence: sent.sequence, authenticated });
                self.list.exchange = None;
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
            if self.home.at_home && !self.stopping {
                // The home agent goes on defending the home address, which is not ours yet.
                self.hold(now, MAX_BINDACK_TIMEOUT);
                return;
            }
        }
        self.list.exchange = None;
        self.timers.stop(Timer::Retransmit);
        if self.home.at_home {
            self.came_home(now);
        } else if !self.stopping && self.refusals.status.is_none() {
            self.evaluate(now, wall, "registering anew");
        }
    }

    /// The service stops (RFC 3963 5.4), and the home agent is asked again after a pause.
    pub(super) fn refuse(&mut self, now: Time, status: Status) {
        self.refusals.status = Some(status);
        self.refusals.contradicted = None;
        let pause = self.next_refusal_pause(status);
        self.timers.set(Timer::AskAgain, now + pause);
        self.unregister();
    }

    /// How long to wait after a refusal, and after the question that follows it.
    pub(super) fn next_refusal_pause(&mut self, status: Status) -> Duration {
        if remedy(status) != Remedy::BackOff {
            return REFUSED_INTERVAL;
        }
        let first = if self.refusals.was_acknowledged { KNOWN_REFUSAL_PAUSE } else { UNKNOWN_REFUSAL_PAUSE };
        *self.refusals.pause.get_or_insert(first)
    }

    /// What the operator is told when a refusal has stopped the service.
    pub(super) fn service_stops(&self, now: Time) -> String {
        let pause = self.timers.get(Timer::AskAgain).map_or(REFUSED_INTERVAL, |at| at.saturating_since(now));
        let pause = match pause.as_secs() {
            seconds if seconds >= 120 => format!("{} min", seconds / 60),
            seconds => format!("{seconds} s"),
        };
        format!("service stops; asking again in {pause}, or after a `carnet handover`, a reload or a restart")
    }

    /// The home agent has acknowledged a registration: the next refusal is a first one.
    pub(super) fn registration_acknowledged(&mut self) {
        self.refusals.was_acknowledged = true;
        self.refusals.key_trouble = None;
        self.hints.acknowledged();
        self.refusals.pause = None;
    }

    /// A refusal counts no more.
    pub(super) fn end_refusal(&mut self) {
        self.refusals.contradicted = None;
        if self.refusals.status.take().is_some() {
            self.timers.stop(Timer::AskAgain);
            self.list.exchange.take_if(|exchange| exchange.single);
            self.outputs.push_back(Output::Forwarding(self.config.home_address));
        }
    }

    /// Nothing is registered any more.
    pub(super) fn unregister(&mut self) {
        self.list.registration = None;
        self.timers.stop(Timer::Refresh);
        self.timers.stop(Timer::Expire);
    }

    /// The plain binding is no more.
    pub(super) fn unregister_plain(&mut self) {
        self.unregister();
    }

    /// The exchange goes on, but not before `after` has passed.
    fn hold(&mut self, now: Time, after: Duration) {
        if let Some(exchange) = &mut self.list.exchange {
            exchange.held = true;
            self.timers.set(Timer::Retransmit, now + after);
        }
    }

    /// RFC 6275 11.5.5: tells the home link that the home address is here again.
    pub(super) fn announce_home(&mut self) {
        let Some(uplink) = self.home_link() else { return };
        let advertisement = nd::NeighborAdvertisement {
            target: self.config.home_address,
            router: self.config.is_router(),
            solicited: false,
            override_: true,
            target_link_address: uplink.link_address(),
        };
        let mut message = advertisement.emit();
        icmpv6::set_checksum(&mut message, self.config.home_address, nd::ALL_NODES);
        let message = LinkMessage {
            interface: uplink.config.interface.clone(),
            source: self.config.home_address,
            destination: nd::ALL_NODES,
            hop_limit: ND_HOP_LIMIT,
            peer: None,
            message,
        };
        self.outputs.push_back(Output::Link(message));
    }
}
