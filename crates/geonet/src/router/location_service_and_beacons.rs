//! Timers: beacons (10.2.3), the Location Service (10.2.4), and the lifetimes of packets and entries.

use std::time::Duration;

use carnet_base::Time;
use carnet_wire::geonet::{
    CommonNextHeader, ExtendedHeader, GnAddress, Lifetime, LongPositionVector, set_destination,
};

use super::forward::{OWN_TRAFFIC_CLASS, PacketOrigin};
use super::own_packets::OwnPacketFields;
use super::{Router, Timer, fast_path_permissions};
use crate::forwarding::predictive::AnnouncedMovement;
use crate::geodesy::Position;
use crate::io::Event;
use crate::location_table::{EntrySlot, mid_key};
use crate::packet::{BufferedPacket, ForwardingTarget};
use crate::packet_buffer::PacketBuffer;
use crate::{BROADCAST, GeonetDrop, beacon};

/// Time for which the speed of a neighbour affects the beacon interval after its last packet.
const FAST_NEIGHBOUR_LIFETIME: Duration = Duration::from_secs(2);
/// Shortest validity that a beacon announces. The Lifetime field can express this time. With a beacon every
/// 100 ms, a neighbour stays valid even if one beacon is lost.
const MIN_BEACON_VALIDITY: Duration = Duration::from_millis(200);

/// A search of the Location Service: the station that it searches for, and the packets that wait for this
/// station (LS packet buffer, 8.4).
#[derive(Debug)]
pub(super) struct LocationServiceSearch {
    address: GnAddress,
    retransmission_count: u32,
    waiting_packets: PacketBuffer,
}

impl LocationServiceSearch {
    /// Removes and returns the packets that wait for the station; the search continues.
    pub(super) fn take_waiting_packets(&mut self) -> Vec<BufferedPacket> {
        self.waiting_packets.remove_matching(|_| true)
    }
}

impl Router {
    /// Handles the timers that are due.
    pub fn handle_timeout(&mut self, now: Time) {
        self.assert_drained();
        while let Some(timer) = self.timers.pop_expired(now) {
            match timer {
                // The first position starts the beacon timer, so the station has a position here and the
                // beacon cannot fail.
                Timer::Beacon => drop(self.send_beacon(now)),
                Timer::LocationTable => {
                    self.location_table.expire_entries(now, &self.parameters);
                    self.is_table_timer_set = false;
                    self.schedule_table_timer();
                }
                Timer::Buffers => self.expire_buffers(now),
                Timer::Search(mid) => self.retransmit_request(now, mid),
                Timer::Contention(identity) => self.end_contention(now, identity),
                Timer::Repeat(number) => self.send_repetition(now, number),
                Timer::Silence => self.remove_silent_neighbours(now),
                Timer::Shaper => self.send_shaped_packets(now),
            }
        }
        fast_path_permissions::output_changed_permissions(self, now);
    }

    /// Sets the timer of the location table to the earliest expiry of an entry.
    pub(super) fn schedule_table_timer(&mut self) {
        if let Some(due) = self.location_table.next_expiry() {
            self.timers.set_deadline(Timer::LocationTable, due);
            self.is_table_timer_set = true;
        }
    }

    pub(super) fn schedule_buffer_timers(&mut self) {
        let searches = self.running_searches.values().map(|search| &search.waiting_packets);
        let due = [&self.unicast_buffer, &self.broadcast_buffer]
            .into_iter()
            .chain(searches)
            .filter_map(PacketBuffer::next_expiry)
            .min();
        match due {
            Some(due) => self.timers.set_deadline(Timer::Buffers, due),
            None => self.timers.stop_timer(Timer::Buffers),
        }
    }

    fn expire_buffers(&mut self, now: Time) {
        let mut expired = self.unicast_buffer.remove_expired(now);
        expired.extend(self.broadcast_buffer.remove_expired(now));
        for search in self.running_searches.values_mut() {
            expired.extend(search.waiting_packets.remove_expired(now));
        }
        for packet in expired {
            self.count_drop(GeonetDrop::LifetimeExpired);
            self.recycle_buffer(packet.frame);
        }
        self.schedule_buffer_timers();
    }

    /// Drops waiting packets of this station, because they have an address that the station no longer has.
    pub(super) fn drop_own_packet(&mut self) {
        let mut own = self.unicast_buffer.remove_matching(|meta| meta.is_own);
        own.extend(self.broadcast_buffer.remove_matching(|meta| meta.is_own));
        for (mid, mut search) in std::mem::take(&mut self.running_searches) {
            self.timers.stop_timer(Timer::Search(mid));
            own.extend(search.waiting_packets.remove_matching(|_| true));
        }
        own.extend(self.shaper.clear());
        for packet in own {
            self.count_drop(GeonetDrop::AddressChanged);
            self.recycle_buffer(packet.frame);
        }
        self.schedule_buffer_timers();
    }

    // The following functions send beacons (10.2.3).

    /// Returns the speed that decides the beacon interval, 0.01 m/s.
    fn beacon_speed(&self) -> i16 {
        let own = self.own_position_vector.map_or(0, |pv| pv.speed);
        if self.parameters.uses_fastest_neighbour_speed
            && own.unsigned_abs() < self.fastest_neighbour_speed.1.unsigned_abs()
        {
            return self.fastest_neighbour_speed.1;
        }
        own
    }

    /// Stores the speed of a neighbour for the beacon interval. The speed of the fastest neighbour counts
    /// until no neighbour of that speed has sent a packet for [`FAST_NEIGHBOUR_LIFETIME`].
    pub(super) fn record_neighbour_speed(&mut self, now: Time, neighbour: &LongPositionVector) {
        let outdated = now.saturating_since(self.fastest_neighbour_speed.0) > FAST_NEIGHBOUR_LIFETIME;
        if outdated || neighbour.speed.unsigned_abs() >= self.fastest_neighbour_speed.1.unsigned_abs() {
            let faster = neighbour.speed.unsigned_abs() > self.fastest_neighbour_speed.1.unsigned_abs();
            self.fastest_neighbour_speed = (now, neighbour.speed);
            if faster && self.own_position_vector.is_some() {
                self.schedule_beacon(now, false);
            }
        }
    }

    /// Returns whether this station is away from the position that neighbours extrapolate from its last
    /// beacon.
    fn has_deviated_from_beacon(&self, now: Time) -> bool {
        let (Some(limit), Some(told)) = (self.parameters.max_beacon_deviation, &self.announced_movement)
        else {
            return false;
        };
        told.age_of_vector(now) >= self.parameters.shortest_beacon_interval()
            && !told.is_near_announced_position(now, self.own_coordinates(), limit)
    }

    /// Returns the beacon interval for the present speed and number of neighbours. Each new position needs
    /// the interval, so the function caches it.
    fn beacon_interval(&mut self) -> (Duration, Duration) {
        let by = (self.beacon_speed(), self.location_table.neighbour_count());
        match self.beacon_interval_cache {
            Some((known, interval)) if known == by => interval,
            _ => {
                let interval = beacon::fixed_and_random_interval(&self.parameters, by.0, by.1);
                self.beacon_interval_cache = Some((by, interval));
                interval
            }
        }
    }

    /// Sets the beacon timer after a new position. The first beacon leaves at a random time. If the station
    /// has become faster, its next beacon leaves earlier than planned at the lower speed.
    pub(super) fn schedule_beacon(&mut self, now: Time, first: bool) {
        let (least, jitter) = self.beacon_interval();
        if first {
            let wait = self.rng.duration_between(std::time::Duration::ZERO, jitter.min(least));
            self.timers.set_deadline(Timer::Beacon, now + wait);
            self.last_beacon_at = now;
            return;
        }
        let mut latest = self.last_beacon_at + least + jitter;
        if self.has_deviated_from_beacon(now) {
            latest = latest.min(self.last_beacon_at + self.parameters.shortest_beacon_interval());
        }
        if self.timers.get(Timer::Beacon).is_some_and(|planned| planned > latest) {
            self.timers.set_deadline(Timer::Beacon, latest.max(now));
        }
    }

    /// Restarts the beacon timer after a packet that gives neighbours the information of a beacon.
    pub(super) fn restart_beacon_timer(&mut self, now: Time) {
        let speed = self.beacon_speed();
        let wait = beacon::time_to_next_beacon(
            &self.parameters,
            speed,
            self.location_table.neighbour_count(),
            &mut self.rng,
        );
        self.last_beacon_at = now;
        if self.parameters.max_beacon_deviation.is_some() {
            self.announced_movement =
                self.own_position_vector.as_ref().map(|vector| AnnouncedMovement::new(now, vector));
        }
        self.timers.set_deadline(Timer::Beacon, now + wait);
    }

    /// Sends a beacon (10.3.6.2).
    pub(super) fn send_beacon(&mut self, now: Time) -> Result<(), GeonetDrop> {
        let source = self.own_position()?;
        self.restart_beacon_timer(now);
        let number = self.sent_beacon_count;
        self.sent_beacon_count = number.wrapping_add(1);
        let far =
            self.parameters.multi_hop_beacons.filter(|far| number.is_multiple_of(far.beacon_period.max(1)));
        let hop_limit = far.map_or(1, |far| far.hop_limit.max(1));
        let extended = match far {
            Some(_) => ExtendedHeader::TopologicallyScoped { sequence: self.next_sequence_number(), source },
            None => ExtendedHeader::Beacon { source },
        };
        if far.is_some() {
            // Receivers of a multi-hop broadcast do not become neighbours, so send the normal beacon as well.
            let own = OwnPacketFields { lifetime: self.beacon_lifetime(), ..self.own_packet_fields(1) };
            let beacon = self.compose_with_sequence(
                now,
                own,
                ForwardingTarget::Everybody,
                ExtendedHeader::Beacon { source },
            );
            self.counters.sent_beacons += 1;
            self.transmit_packet(BROADCAST, beacon);
        }
        let mut own = self.own_packet_fields(hop_limit);
        if far.is_none() {
            own.lifetime = self.beacon_lifetime();
        }
        let packet = self.compose_with_sequence(now, own, ForwardingTarget::Everybody, extended);
        self.counters.sent_beacons += 1;
        self.transmit_packet(BROADCAST, packet);
        Ok(())
    }

    /// Returns LT (lifetime) of a beacon: the validity of the beacon, if the configuration announces one.
    fn beacon_lifetime(&self) -> Lifetime {
        let Some(intervals) = self.parameters.beacon_lifetime else {
            return Lifetime::from_duration(self.parameters.default_packet_lifetime);
        };
        let (least, jitter) = beacon::fixed_and_random_interval(
            &self.parameters,
            self.beacon_speed(),
            self.location_table.neighbour_count(),
        );
        // The minimum keeps a short validity from being rounded down to 0.
        Lifetime::from_duration(((least + jitter) * intervals).max(MIN_BEACON_VALIDITY))
    }

    /// Stores the validity that a beacon announces. Other packets that make neighbours announce no validity.
    pub(super) fn store_beacon_validity(&mut self, now: Time, neighbour: EntrySlot, said: Option<Lifetime>) {
        if self.parameters.beacon_lifetime.is_none() {
            return;
        }
        let until = said.map_or(Time::MAX, |lifetime| now + lifetime.duration());
        self.location_table.entry_mut(neighbour).beacon_valid_until = until;
        if until < Time::MAX && self.timers.get(Timer::Silence).is_none_or(|planned| planned > until) {
            self.timers.set_deadline(Timer::Silence, until);
        }
    }

    /// Removes the neighbour status of stations whose last beacon is no longer valid. All neighbours share
    /// one timer. Usually the neighbour for which the timer was set has sent another beacon before the timer
    /// expires. The function then sets the timer for the next neighbour.
    fn remove_silent_neighbours(&mut self, now: Time) {
        let neighbours = self.location_table.iter().filter(|(_, entry)| entry.is_neighbour());
        let silent: Vec<EntrySlot> =
            neighbours.filter(|(_, entry)| entry.beacon_valid_until <= now).map(|(slot, _)| slot).collect();
        for slot in silent {
            self.location_table.remove_neighbour_status(now, &self.parameters, slot);
        }
        let neighbours = self.location_table.iter().filter(|(_, entry)| entry.is_neighbour());
        if let Some(next) = neighbours.map(|(_, entry)| entry.beacon_valid_until).min()
            && next < Time::MAX
        {
            self.timers.set_deadline(Timer::Silence, next);
        }
    }

    /// Returns the common parameters of the router's own packets.
    fn own_packet_fields(&self, hop_limit: u8) -> OwnPacketFields<'static> {
        OwnPacketFields {
            next_header: CommonNextHeader::Any,
            traffic_class: OWN_TRAFFIC_CLASS,
            profile: None,
            lifetime: Lifetime::from_duration(self.parameters.default_packet_lifetime),
            hop_limit,
            payload: &[],
        }
    }

    // The following functions are the Location Service (10.2.4).

    /// Checks whether the Location Service may start one more search.
    pub(super) fn check_location_search_limit(&self, mid: u64) -> Result<(), GeonetDrop> {
        let room = self.running_searches.len() < self.parameters.location_service_max_pending;
        if room || self.running_searches.contains_key(&mid) {
            Ok(())
        } else {
            Err(GeonetDrop::LocationServiceBusy)
        }
    }

    /// Starts a search for a station without a packet for it, unless a search for the station runs. Any
    /// packet of the station ends the search and gives its position.
    ///
    /// # Errors
    /// An error if too many searches run, or if this station has no position.
    pub fn locate_station(&mut self, now: Time, address: GnAddress) -> Result<(), GeonetDrop> {
        self.assert_drained();
        self.own_position()?;
        if self.begin_location_search(address)? {
            self.request_location(now, address)?;
        }
        Ok(())
    }

    /// Starts a search for a station; returns false if one runs already.
    fn begin_location_search(&mut self, address: GnAddress) -> Result<bool, GeonetDrop> {
        let mid = mid_key(address);
        self.check_location_search_limit(mid)?;
        let started = !self.running_searches.contains_key(&mid);
        self.running_searches.entry(mid).or_insert_with(|| {
            Box::new(LocationServiceSearch {
                address,
                retransmission_count: 0,
                waiting_packets: PacketBuffer::default(),
            })
        });
        Ok(started)
    }

    /// 10.3.7.1.2: starts a search for a station, unless one runs, and keeps the packet until the station is
    /// found.
    pub(super) fn start_location_search(
        &mut self,
        now: Time,
        address: GnAddress,
        packet: BufferedPacket,
    ) -> Result<(), GeonetDrop> {
        let started = self.begin_location_search(address)?;
        let Some(search) = self.running_searches.get_mut(&mid_key(address)) else { return Ok(()) };
        let mut pushed_out = Vec::new();
        // By 8.4 the router would never send a packet that is larger than the buffer to a station of unknown
        // position. So the router keeps the newest packet, however large, and drops the other waiting packets
        // if necessary.
        let limit = self.parameters.location_service_buffer_size;
        let limit = if limit > 0 { limit.max(packet.frame.len()) } else { 0 };
        search.waiting_packets.push(packet, limit, |old| pushed_out.push(old));
        for old in pushed_out {
            self.count_drop(GeonetDrop::LocationServiceOverflow);
            self.recycle_buffer(old.frame);
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
        match self.location_table.find_slot_of_station(now, mid) {
            Some(slot) => {
                self.set_destination_position(&mut packet, slot)?;
                self.send_or_buffer(now, packet, PacketOrigin::Here)
            }
            None => self.start_location_search(now, GnAddress(mid), packet),
        }
    }

    fn set_destination_position(
        &self,
        packet: &mut BufferedPacket,
        slot: EntrySlot,
    ) -> Result<(), GeonetDrop> {
        let entry = self.location_table.entry(slot);
        set_destination(&mut packet.frame, &entry.position_vector().to_short())?;
        packet.properties.target =
            ForwardingTarget::towards_station(mid_key(entry.address()), entry.position());
        Ok(())
    }

    fn request_location(&mut self, now: Time, address: GnAddress) -> Result<(), GeonetDrop> {
        self.timers.set_deadline(
            Timer::Search(mid_key(address)),
            now + self.parameters.location_service_retransmit_timer,
        );
        let own = self.own_packet_fields(self.parameters.default_hop_limit);
        let packet = self.compose_own_packet(now, own, ForwardingTarget::Everybody, |sequence, source| {
            ExtendedHeader::LocationServiceRequest { sequence, source, request: address }
        })?;
        self.counters.location_requests += 1;
        self.transmit_packet(BROADCAST, packet);
        Ok(())
    }

    /// Repeats a search. After the last retransmission, ends it and drops its packets (10.3.7.1.3).
    fn retransmit_request(&mut self, now: Time, mid: u64) {
        let most = self.parameters.location_service_max_retransmissions;
        let Some(search) = self.running_searches.get_mut(&mid) else { return };
        let address = search.address;
        if search.retransmission_count < most {
            search.retransmission_count += 1;
            if self.request_location(now, address).is_ok() {
                return;
            }
        }
        let Some(mut search) = self.running_searches.remove(&mid) else { return };
        for packet in search.waiting_packets.remove_matching(|_| true) {
            self.count_drop(GeonetDrop::LocationServiceFailed);
            self.recycle_buffer(packet.frame);
        }
        self.schedule_buffer_timers();
        self.push_event(Event::LocationUnknown(address));
    }

    /// Ends the search for a station after one of its packets has arrived, and sends the waiting packets. The
    /// clauses are 10.3.7.1.4 and the receiver operations of all packets.
    pub(super) fn end_location_search(&mut self, now: Time, slot: EntrySlot) {
        let mid = mid_key(self.location_table.entry(slot).address());
        let Some(mut search) = self.running_searches.remove(&mid) else { return };
        self.timers.stop_timer(Timer::Search(mid));
        for mut packet in search.waiting_packets.remove_matching(|_| true) {
            let result = if packet.subtract_waiting_time(now) {
                self.set_destination_position(&mut packet, slot)
                    .and_then(|()| self.send_or_buffer(now, packet, PacketOrigin::Here))
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
        let target = ForwardingTarget::towards_station(
            mid_key(asker.address),
            Position::new(asker.latitude, asker.longitude),
        );
        let own = self.own_packet_fields(self.parameters.default_hop_limit);
        let destination = asker.to_short();
        let packet = self.compose_own_packet(now, own, target, |sequence, source| {
            ExtendedHeader::LocationServiceReply { sequence, source, destination }
        })?;
        self.counters.location_replies += 1;
        self.send_or_buffer(now, packet, PacketOrigin::Here)
    }
}
