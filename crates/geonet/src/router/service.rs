//! Timers: beacons (10.2.3), the Location Service (10.2.4), lifetimes.

use std::time::Duration;

use carnet_base::Time;
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GnAddress, Lifetime, LongPositionVector, set_destination,
};

use super::forward::{OWN_TRAFFIC_CLASS, Origin};
use super::source::OwnPacketFields;
use super::{Router, Timer, accelerate};
use crate::buffers::PacketBuffer;
use crate::forwarding::predictive::AnnouncedMovement;
use crate::geodesy::Position;
use crate::io::Event;
use crate::location_table::{Slot, mid_key};
use crate::packet::{BufferedPacket, Target};
use crate::{BROADCAST, GeonetDrop, beacon};

/// Time for which the speed of a neighbour affects the beacon interval after its last packet.
const FAST_NEIGHBOUR_LIFETIME: Duration = Duration::from_secs(2);
/// Shortest validity that a beacon announces. The Lifetime field can express this time, and with beacons
/// every 100 ms one beacon may be lost.
const MIN_BEACON_VALIDITY: Duration = Duration::from_millis(200);

/// A search of the Location Service: the station that it searches for, and the packets that wait for this
/// station (LS packet buffer, 8.4).
#[derive(Debug)]
pub(super) struct LocationServiceSearch {
    address: GnAddress,
    retransmissions: u32,
    buffer: PacketBuffer,
}

impl LocationServiceSearch {
    /// Removes and returns the packets that wait for the station; the search continues.
    pub(super) fn take_waiting_packets(&mut self) -> Vec<BufferedPacket> {
        self.buffer.remove_matching(|_| true)
    }
}

impl Router {
    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.assert_drained();
        while let Some(timer) = self.timers.pop_expired(now) {
            match timer {
                // The first position starts the beacon timer, so the station has a position here.
                Timer::Beacon => drop(self.beacon(now)),
                Timer::LocationTable => {
                    self.table.expire(now, &self.mib);
                    self.table_timer = false;
                    self.schedule_table_timer();
                }
                Timer::Buffers => self.expire_buffers(now),
                Timer::Search(mid) => self.search_again(now, mid),
                Timer::Contention(identity) => self.contention_over(now, identity),
                Timer::Repeat(number) => self.repetition_due(now, number),
                Timer::Silence => self.silence(now),
                Timer::Shaper => self.shaper_due(now),
            }
        }
        accelerate::update(self, now);
    }

    /// Sets the timer of the location table to the earliest expiry of an entry.
    pub(super) fn schedule_table_timer(&mut self) {
        if let Some(due) = self.table.next_expiry() {
            self.timers.set(Timer::LocationTable, due);
            self.table_timer = true;
        }
    }

    pub(super) fn schedule_buffer_timers(&mut self) {
        let searches = self.searches.values().map(|search| &search.buffer);
        let due = [&self.unicast_buffer, &self.broadcast_buffer]
            .into_iter()
            .chain(searches)
            .filter_map(PacketBuffer::next_expiry)
            .min();
        match due {
            Some(due) => self.timers.set(Timer::Buffers, due),
            None => self.timers.stop(Timer::Buffers),
        }
    }

    fn expire_buffers(&mut self, now: Time) {
        let mut expired = self.unicast_buffer.expire(now);
        expired.extend(self.broadcast_buffer.expire(now));
        for search in self.searches.values_mut() {
            expired.extend(search.buffer.expire(now));
        }
        for packet in expired {
            self.count_drop(GeonetDrop::LifetimeExpired);
            self.recycle(packet.frame);
        }
        self.schedule_buffer_timers();
    }

    /// Drops waiting packets of this station, because they have an address that the station no longer has.
    pub(super) fn drop_own_packet(&mut self) {
        let mut own = self.unicast_buffer.remove_matching(|meta| meta.own);
        own.extend(self.broadcast_buffer.remove_matching(|meta| meta.own));
        for (mid, mut search) in std::mem::take(&mut self.searches) {
            self.timers.stop(Timer::Search(mid));
            own.extend(search.buffer.remove_matching(|_| true));
        }
        own.extend(self.shaper.clear());
        for packet in own {
            self.count_drop(GeonetDrop::AddressChanged);
            self.recycle(packet.frame);
        }
        self.schedule_buffer_timers();
    }

    // Beacons.

    /// Returns the speed that decides the beacon interval, 0.01 m/s.
    fn beacon_speed(&self) -> i16 {
        let own = self.position.map_or(0, |pv| pv.speed);
        if self.mib.beacon_company_speed && own.unsigned_abs() < self.fastest_neighbour.1.unsigned_abs() {
            return self.fastest_neighbour.1;
        }
        own
    }

    /// Stores the speed of a neighbour. The speed of the fastest neighbour counts until the router has
    /// received no neighbour of that speed for [`FAST_NEIGHBOUR_LIFETIME`].
    pub(super) fn note_neighbour_speed(&mut self, now: Time, neighbour: &LongPositionVector) {
        let outdated = now.saturating_since(self.fastest_neighbour.0) > FAST_NEIGHBOUR_LIFETIME;
        if outdated || neighbour.speed.unsigned_abs() >= self.fastest_neighbour.1.unsigned_abs() {
            let faster = neighbour.speed.unsigned_abs() > self.fastest_neighbour.1.unsigned_abs();
            self.fastest_neighbour = (now, neighbour.speed);
            if faster && self.position.is_some() {
                self.schedule_beacon(now, false);
            }
        }
    }

    /// Returns whether this station is away from the position that neighbours extrapolate from its last
    /// beacon.
    fn has_deviated(&self, now: Time) -> bool {
        let (Some(limit), Some(told)) = (self.mib.beacon_deviation, &self.announced_movement) else {
            return false;
        };
        told.age(now) >= self.mib.shortest_beacon_interval()
            && !told.is_within(now, self.own_coordinates(), limit)
    }

    /// Returns the beacon interval for the present speed and number of neighbours. Each new position needs
    /// the interval, so the function caches it.
    fn beacon_interval(&mut self) -> (Duration, Duration) {
        let by = (self.beacon_speed(), self.table.neighbours());
        match self.interval {
            Some((known, interval)) if known == by => interval,
            _ => {
                let interval = beacon::fixed_and_random_interval(&self.mib, by.0, by.1);
                self.interval = Some((by, interval));
                interval
            }
        }
    }

    /// Sets the beacon timer after a new position. The first beacon leaves at a random time. If the station
    /// has become faster, its next beacon leaves earlier than planned at the lower speed.
    pub(super) fn schedule_beacon(&mut self, now: Time, first: bool) {
        let (least, jitter) = self.beacon_interval();
        if first {
            let wait = self.rng.duration(std::time::Duration::ZERO, jitter.min(least));
            self.timers.set(Timer::Beacon, now + wait);
            self.last_beacon = now;
            return;
        }
        let mut latest = self.last_beacon + least + jitter;
        if self.has_deviated(now) {
            latest = latest.min(self.last_beacon + self.mib.shortest_beacon_interval());
        }
        if self.timers.get(Timer::Beacon).is_some_and(|planned| planned > latest) {
            self.timers.set(Timer::Beacon, latest.max(now));
        }
    }

    /// Restarts the beacon timer after a packet that gives neighbours the information of a beacon.
    pub(super) fn restart_beacon_timer(&mut self, now: Time) {
        let speed = self.beacon_speed();
        let wait = beacon::time_to_next_beacon(&self.mib, speed, self.table.neighbours(), &mut self.rng);
        self.last_beacon = now;
        if self.mib.beacon_deviation.is_some() {
            self.announced_movement =
                self.position.as_ref().map(|vector| AnnouncedMovement::new(now, vector));
        }
        self.timers.set(Timer::Beacon, now + wait);
    }

    /// Sends a beacon (10.3.6.2).
    pub(super) fn beacon(&mut self, now: Time) -> Result<(), GeonetDrop> {
        let source = self.own_position()?;
        self.restart_beacon_timer(now);
        let number = self.beacons_sent;
        self.beacons_sent = number.wrapping_add(1);
        let far = self.mib.multi_hop_beacons.filter(|far| number.is_multiple_of(far.every.max(1)));
        let hop_limit = far.map_or(1, |far| far.hops.max(1));
        let extended = match far {
            Some(_) => ExtendedHeader::TopologicallyScoped { sequence: self.sequence(), source },
            None => ExtendedHeader::Beacon { source },
        };
        if far.is_some() {
            // Receivers of a multi-hop broadcast do not become neighbours, so send the normal beacon as well.
            let own = OwnPacketFields { lifetime: self.beacon_lifetime(), ..self.own(1) };
            let beacon = self.compose_with(now, own, Target::Everybody, ExtendedHeader::Beacon { source });
            self.counters.beacons += 1;
            self.transmit(BROADCAST, beacon);
        }
        let mut own = self.own(hop_limit);
        if far.is_none() {
            own.lifetime = self.beacon_lifetime();
        }
        let packet = self.compose_with(now, own, Target::Everybody, extended);
        self.counters.beacons += 1;
        self.transmit(BROADCAST, packet);
        Ok(())
    }

    /// Returns LT of a beacon: its validity, if the configuration announces one.
    fn beacon_lifetime(&self) -> Lifetime {
        let Some(intervals) = self.mib.beacon_lifetime else {
            return Lifetime::from_duration(self.mib.default_packet_lifetime);
        };
        let (least, jitter) =
            beacon::fixed_and_random_interval(&self.mib, self.beacon_speed(), self.table.neighbours());
        // The minimum prevents rounding the lifetime down to 0.
        Lifetime::from_duration(((least + jitter) * intervals).max(MIN_BEACON_VALIDITY))
    }

    /// Stores the validity that a beacon announces. Other packets that make neighbours announce no validity.
    pub(super) fn store_beacon_validity(&mut self, now: Time, neighbour: Slot, said: Option<Lifetime>) {
        if self.mib.beacon_lifetime.is_none() {
            return;
        }
        let until = said.map_or(Time::MAX, |lifetime| now + lifetime.duration());
        self.table.entry_mut(neighbour).beacon_valid_until = until;
        if until < Time::MAX && self.timers.get(Timer::Silence).is_none_or(|planned| planned > until) {
            self.timers.set(Timer::Silence, until);
        }
    }

    /// Removes the neighbour status of stations whose last beacon is no longer valid. All neighbours share
    /// one timer. It usually expires for a neighbour that has sent another beacon meanwhile; the function
    /// then sets it for the next neighbour.
    fn silence(&mut self, now: Time) {
        let neighbours = self.table.iter().filter(|(_, entry)| entry.is_neighbour());
        let silent: Vec<Slot> =
            neighbours.filter(|(_, entry)| entry.beacon_valid_until <= now).map(|(slot, _)| slot).collect();
        for slot in silent {
            self.table.remove_neighbour_status(now, &self.mib, slot);
        }
        let neighbours = self.table.iter().filter(|(_, entry)| entry.is_neighbour());
        if let Some(next) = neighbours.map(|(_, entry)| entry.beacon_valid_until).min()
            && next < Time::MAX
        {
            self.timers.set(Timer::Silence, next);
        }
    }

    /// Returns the common parameters of the router's own packets.
    fn own(&self, hop_limit: u8) -> OwnPacketFields<'static> {
        OwnPacketFields {
            next_header: CommonNextHeader::Any,
            traffic_class: OWN_TRAFFIC_CLASS,
            profile: None,
            lifetime: Lifetime::from_duration(self.mib.default_packet_lifetime),
            hop_limit,
            payload: &[],
        }
    }

    // Location Service.

    /// Checks whether the Location Service may seek one more station.
    pub(super) fn check_search_limit(&self, mid: u64) -> Result<(), GeonetDrop> {
        let room = self.searches.len() < self.mib.location_service_max_pending;
        if room || self.searches.contains_key(&mid) { Ok(()) } else { Err(GeonetDrop::LocationServiceBusy) }
    }

    /// Starts a search for a station for which no packet waits, unless a search runs. Any packet of the
    /// station then gives its position.
    ///
    /// # Errors
    /// An error if too many searches run, or if this station has no position.
    pub fn locate_then_send(&mut self, now: Time, address: GnAddress) -> Result<(), GeonetDrop> {
        self.assert_drained();
        self.own_position()?;
        if self.begin_search(address)? {
            self.request_location(now, address)?;
        }
        Ok(())
    }

    /// Starts a search for a station; returns false if one runs already.
    fn begin_search(&mut self, address: GnAddress) -> Result<bool, GeonetDrop> {
        let mid = mid_key(address);
        self.check_search_limit(mid)?;
        let started = !self.searches.contains_key(&mid);
        self.searches.entry(mid).or_insert_with(|| {
            Box::new(LocationServiceSearch { address, retransmissions: 0, buffer: PacketBuffer::default() })
        });
        Ok(started)
    }

    /// 10.3.7.1.2: starts a search for a station, unless one runs, and keeps the packet until the station is
    /// found.
    pub(super) fn search(
        &mut self,
        now: Time,
        address: GnAddress,
        packet: BufferedPacket,
    ) -> Result<(), GeonetDrop> {
        let started = self.begin_search(address)?;
        let Some(search) = self.searches.get_mut(&mid_key(address)) else { return Ok(()) };
        let mut pushed_out = Vec::new();
        // By 8.4 a packet larger than the buffer would never reach a station of unknown position. So the
        // router keeps the newest packet, however large, and drops the others if necessary.
        let limit = self.mib.location_service_buffer_size;
        let limit = if limit > 0 { limit.max(packet.frame.len()) } else { 0 };
        search.buffer.push(packet, limit, |old| pushed_out.push(old));
        for old in pushed_out {
            self.count_drop(GeonetDrop::LocationServiceOverflow);
            self.recycle(old.frame);
        }
        self.schedule_buffer_timers();
        if started {
            self.request_location(now, address)?;
        }
        Ok(())
    }

    /// Sends a packet to a station. While the packet waited, the station's position may have become known or
    /// unknown.
    pub(super) fn dispatch_to_station(
        &mut self,
        now: Time,
        mid: u64,
        mut packet: BufferedPacket,
    ) -> Result<(), GeonetDrop> {
        match self.table.find(now, mid) {
            Some(slot) => {
                self.address_to(&mut packet, slot)?;
                self.dispatch(now, packet, Origin::Here)
            }
            None => self.search(now, GnAddress(mid), packet),
        }
    }

    fn address_to(&self, packet: &mut BufferedPacket, slot: Slot) -> Result<(), GeonetDrop> {
        let entry = self.table.entry(slot);
        set_destination(&mut packet.frame, &entry.position_vector().to_short())?;
        packet.meta.target = Target::station(mid_key(entry.address()), entry.position());
        Ok(())
    }

    fn request_location(&mut self, now: Time, address: GnAddress) -> Result<(), GeonetDrop> {
        self.timers.set(Timer::Search(mid_key(address)), now + self.mib.location_service_retransmit_timer);
        let own = self.own(self.mib.default_hop_limit);
        let packet = self.compose(now, own, Target::Everybody, |sequence, source| {
            ExtendedHeader::LocationServiceRequest { sequence, source, request: address }
        })?;
        self.counters.location_requests += 1;
        self.transmit(BROADCAST, packet);
        Ok(())
    }

    /// Repeats a search. After the last retransmission, ends it and drops its packets (10.3.7.1.3).
    fn search_again(&mut self, now: Time, mid: u64) {
        let most = self.mib.location_service_max_retransmissions;
        let Some(search) = self.searches.get_mut(&mid) else { return };
        let address = search.address;
        if search.retransmissions < most {
            search.retransmissions += 1;
            if self.request_location(now, address).is_ok() {
                return;
            }
        }
        let Some(mut search) = self.searches.remove(&mid) else { return };
        for packet in search.buffer.remove_matching(|_| true) {
            self.count_drop(GeonetDrop::LocationServiceFailed);
            self.recycle(packet.frame);
        }
        self.schedule_buffer_timers();
        self.event(Event::LocationUnknown(address));
    }

    /// Ends the search for a station after any of its packets, and sends the waiting packets (10.3.7.1.4 and
    /// the receiver operations of all other packets).
    pub(super) fn end_search(&mut self, now: Time, slot: Slot) {
        let mid = mid_key(self.table.entry(slot).address());
        let Some(mut search) = self.searches.remove(&mid) else { return };
        self.timers.stop(Timer::Search(mid));
        for mut packet in search.buffer.remove_matching(|_| true) {
            let result = if packet.subtract_waiting_time(now) {
                self.address_to(&mut packet, slot).and_then(|()| self.dispatch(now, packet, Origin::Here))
            } else {
                Err(GeonetDrop::LifetimeExpired)
            };
            if let Err(reason) = result {
                self.count_drop(reason);
            }
        }
        self.schedule_buffer_timers();
    }

    /// Answers a request for this station's position (10.3.7.3).
    pub(super) fn reply_location(&mut self, now: Time, asker: &LongPositionVector) -> Result<(), GeonetDrop> {
        let target = Target::station(mid_key(asker.address), Position::new(asker.latitude, asker.longitude));
        let own = self.own(self.mib.default_hop_limit);
        let destination = asker.to_short();
        let packet = self.compose(now, own, target, |sequence, source| {
            ExtendedHeader::LocationServiceReply { sequence, source, destination }
        })?;
        self.counters.location_replies += 1;
        self.dispatch(now, packet, Origin::Here)
    }
}
