//! Permissions of the fast path (see [`crate::acceleration`]).
//!
//! The router permits a path to the fast path after it has itself sent, delivered or forwarded a packet there
//! by greedy forwarding. It checks the permissions after every report, and after every input that moved this
//! station or a neighbour. So the fast path never uses a decision older than the last input: a lost or a
//! better neighbour changes the permission at once. The router revokes a permission that is unused for
//! [`PERMISSION_IDLE_TIME`].
//!
//! **Only greedy forwarding** (E.2) is possible: contention needs every packet. If the packet data rate is
//! limited (B.2, `itsGnMaxPacketDataRate`), the router forwards every packet itself: 100 kB/s are few
//! packets. Without a limit the router still measures the rates. After link-layer feedback the router sends
//! single packets along another path, so the caller does not accelerate a link with feedback.

use std::collections::BTreeMap;
use std::time::Duration;

use carnet_base::Time;
use carnet_wire::geonet::{CommonNextHeader, ExtendedHeader, LongPositionVector, Packet};

use super::Router;
use crate::acceleration::{
    FastPathReport, FastPathUpdate, ForwardingPath, OwnPacketPath, PERMISSION_IDLE_TIME, SourceReport,
    UNICAST_HEADERS_LENGTH,
};
use crate::geodesy::Position;
use crate::io::{Output, Request, Transport};
use crate::location_table::{mac_key, mid_key};
use crate::packet::ForwardingTarget;
use crate::{GeonetDrop, MacAddress};

/// Validity of a next hop that the router has chosen by prediction. The fast path reports more often, and
/// each report renews the next hop.
const PREDICTED_HOP_LIFETIME: Duration = Duration::from_millis(250);
/// Largest number of permissions of each kind: own packets, forwarded packets, sources.
const MAX_PERMISSIONS: usize = 1024;

/// A permission of the fast path, and the time at which the fast path last used the permission.
#[derive(Debug)]
struct FastPathPermission<T> {
    permitted_path: Option<T>,
    last_used_at: Time,
}

/// Permissions that the fast path has.
#[derive(Debug)]
pub(super) struct Acceleration {
    hop_limit: Option<u8>,
    reported_position: Option<LongPositionVector>,
    own_packet_permissions: BTreeMap<u64, FastPathPermission<OwnPacketPath>>,
    /// Permissions to forward, each with the destination position in the packets.
    forwarding_permissions: BTreeMap<u64, (FastPathPermission<ForwardingPath>, Position)>,
    reported_sources: BTreeMap<u64, Time>,
    /// Generation of the neighbours, and this station's position, at the last check of the permissions.
    last_checked_state: Option<(u64, Position)>,
    /// Whether a packet needed a permission that the fast path does not have yet.
    is_update_due: bool,
}

impl Acceleration {
    /// Returns the state of a fast path without permissions. `hop_limit` is the hop limit of IPv6 packets.
    pub(super) fn new(hop_limit: Option<u8>) -> Acceleration {
        Acceleration {
            hop_limit,
            reported_position: None,
            own_packet_permissions: BTreeMap::new(),
            forwarding_permissions: BTreeMap::new(),
            reported_sources: BTreeMap::new(),
            last_checked_state: None,
            is_update_due: false,
        }
    }

    /// Returns whether the fast path has no permission.
    pub(super) fn has_no_permissions(&self) -> bool {
        self.own_packet_permissions.is_empty()
            && self.forwarding_permissions.is_empty()
            && self.reported_sources.is_empty()
    }

    /// Stores from a report of the fast path when it last used each permission.
    fn record_permission_use(&mut self, now: Time, report: &FastPathReport) {
        for sample in &report.samples {
            if let Some(used) = self.reported_sources.get_mut(&mid_key(sample.vector.address)) {
                *used = now;
            }
        }
        for destination in &report.own_packet_destinations {
            if let Some(way) = self.own_packet_permissions.get_mut(&mac_key(*destination)) {
                way.last_used_at = now;
            }
        }
        for destination in &report.forwarding_destinations {
            if let Some((onward, _)) = self.forwarding_permissions.get_mut(&mac_key(*destination)) {
                onward.last_used_at = now;
            }
        }
    }

    /// Notes that this station has sent an IPv6 packet to the station `mid`, so that the fast path gets a
    /// permission for further packets.
    pub(super) fn record_own_packet_for_fast_path(&mut self, now: Time, mid: u64) {
        if let Some(way) = self.own_packet_permissions.get_mut(&mid) {
            way.last_used_at = now;
            self.is_update_due |= way.permitted_path.is_none();
        } else if self.own_packet_permissions.len() < MAX_PERMISSIONS {
            self.own_packet_permissions
                .insert(mid, FastPathPermission { permitted_path: None, last_used_at: now });
            self.is_update_due = true;
        }
    }

    /// Withdraws all permissions, and returns the outputs that report it to the fast path.
    pub(super) fn withdraw_permissions(&mut self) -> impl Iterator<Item = Output> + use<> {
        let ways = std::mem::take(&mut self.own_packet_permissions)
            .into_keys()
            .map(|mid| FastPathUpdate::NoOwnPacketPath(mac_of(mid)));
        let onwards = std::mem::take(&mut self.forwarding_permissions)
            .into_keys()
            .map(|mid| FastPathUpdate::NoForwardingPath(mac_of(mid)));
        let sources = std::mem::take(&mut self.reported_sources)
            .into_keys()
            .map(|mid| FastPathUpdate::NoSource(mac_of(mid)));
        self.reported_position = None;
        ways.chain(onwards).chain(sources).map(Output::Accelerate)
    }
}

fn mac_of(mid: u64) -> MacAddress {
    let [_, _, mac @ ..] = mid.to_be_bytes();
    mac
}

/// Handles a report of the fast path.
pub(super) fn handle_report(router: &mut Router, now: Time, report: &FastPathReport) {
    router.sequence_numbers.set_next_sequence(report.next_sequence);
    router.counters.sent_packets += report.sent;
    router.counters.delivered_payloads += report.delivered;
    router.counters.forwarded_packets += report.forwarded;
    router.counters.received_frames += report.delivered + report.forwarded + report.duplicates;
    router.counters.dropped[GeonetDrop::Duplicate as usize] += report.duplicates;
    for sample in &report.samples {
        if let Err(reason) = learn_source_report(router, now, sample) {
            router.count_drop(reason);
        }
    }
    let Some(acceleration) = &mut router.acceleration else { return };
    acceleration.record_permission_use(now, report);
    // Output the position in any case: it tells the fast path that the router still runs.
    (acceleration.is_update_due, acceleration.reported_position) = (true, None);
    output_changed_permissions(router, now);
}

/// Updates the location table from a sample as from the packets that it summarizes (10.3.8.4). The fast path
/// has already detected duplicates.
fn learn_source_report(router: &mut Router, now: Time, sample: &SourceReport) -> Result<(), GeonetDrop> {
    let source = sample.vector;
    if mid_key(source.address) == mid_key(router.address) {
        return Err(GeonetDrop::OwnEcho);
    }
    let direct = router.parameters.is_piggybacking_on && sample.direct;
    let learnt = router.location_table.learn_position(
        now,
        &router.parameters,
        &source,
        direct,
        router.own_timestamp(now),
    )?;
    // All packets of the sample are for this station, so they do not count for the data rate. The reason is
    // that B.2 limits forwarded packets: while a limit is set, the fast path does not forward.
    let length = router.parameters.duplicate_packet_list_length;
    let entry = router.location_table.entry_mut(learnt.slot);
    for sequence in &sample.sequences {
        if !entry.duplicates.contains(*sequence) {
            entry.duplicates.add(*sequence, length);
        }
    }
    router.handle_learned_source(now, learnt, &source);
    Ok(())
}

/// Notes that a GUC of the station `mid` arrived, for this station or another, so that the fast path gets
/// a permission for further packets.
pub(super) fn record_forwarded_packet_for_fast_path(
    router: &mut Router,
    now: Time,
    mid: u64,
    onward: Option<(u64, Position)>,
) {
    let Some(acceleration) = &mut router.acceleration else { return };
    if !acceleration.reported_sources.contains_key(&mid)
        && acceleration.reported_sources.len() >= MAX_PERMISSIONS
    {
        return;
    }
    let Some(slot) = router.location_table.find_slot_of_station(now, mid) else { return };
    if acceleration.reported_sources.insert(mid, now).is_none() {
        let sequences = router.location_table.entry(slot).duplicates.iter().collect();
        router.outputs.push_back(Output::Accelerate(FastPathUpdate::Source(mac_of(mid), sequences)));
        acceleration.is_update_due = true;
    }
    if let Some((destination, place)) = onward
        && router.parameters.max_packet_data_rate.is_none()
    {
        if let Some((told, known)) = acceleration.forwarding_permissions.get_mut(&destination) {
            acceleration.is_update_due |= told.permitted_path.is_none() || *known != place;
            (told.last_used_at, *known) = (now, place);
        } else if acceleration.forwarding_permissions.len() < MAX_PERMISSIONS {
            acceleration
                .forwarding_permissions
                .insert(destination, (FastPathPermission { permitted_path: None, last_used_at: now }, place));
            acceleration.is_update_due = true;
        }
    }
}

/// Outputs the permissions that have changed. The router calls this after every input.
pub(super) fn output_changed_permissions(router: &mut Router, now: Time) {
    let seen = (router.location_table.neighbour_generation(), router.own_coordinates());
    let Some(acceleration) = &mut router.acceleration else { return };
    if acceleration.has_no_permissions()
        || (!acceleration.is_update_due
            && acceleration.last_checked_state == Some(seen)
            && acceleration.reported_position == router.own_position_vector)
    {
        return;
    }
    let Some(mut acceleration) = router.acceleration.take() else { return };
    (acceleration.is_update_due, acceleration.last_checked_state) = (false, Some(seen));
    acceleration.reported_sources.retain(|mid, used| {
        let stays = now.saturating_since(*used) < PERMISSION_IDLE_TIME
            && router.location_table.find_slot_of_station(now, *mid).is_some();
        if !stays {
            router.outputs.push_back(Output::Accelerate(FastPathUpdate::NoSource(mac_of(*mid))));
        }
        stays
    });
    acceleration.own_packet_permissions.retain(|mid, told| {
        let idle = now.saturating_since(told.last_used_at) >= PERMISSION_IDLE_TIME;
        let way = if idle { None } else { own_packet_path(router, now, *mid, acceleration.hop_limit) };
        if let Some(change) = replace_if_changed(&mut told.permitted_path, way) {
            let change = change.map_or(FastPathUpdate::NoOwnPacketPath(mac_of(*mid)), |way| {
                FastPathUpdate::Way(Box::new(way))
            });
            router.outputs.push_back(Output::Accelerate(change));
        }
        !idle
    });
    acceleration.forwarding_permissions.retain(|mid, (told, place)| {
        let idle = now.saturating_since(told.last_used_at) >= PERMISSION_IDLE_TIME;
        let onward = if idle { None } else { forwarding_path(router, now, *mid, *place) };
        if let Some(change) = replace_if_changed(&mut told.permitted_path, onward) {
            let change = change.map_or(FastPathUpdate::NoForwardingPath(mac_of(*mid)), |onward| {
                FastPathUpdate::Onward(Box::new(onward))
            });
            router.outputs.push_back(Output::Accelerate(change));
        }
        !idle
    });
    if acceleration.has_no_permissions() {
        acceleration.reported_position = None;
    }
    // Output the position vector last. The fast path must know which packets it may forward before it
    // sends packets with this vector.
    if !acceleration.has_no_permissions()
        && acceleration.reported_position != router.own_position_vector
        && let Ok(position) = router.own_position()
    {
        acceleration.reported_position = Some(position);
        router.outputs.push_back(Output::Accelerate(FastPathUpdate::Position(position)));
    }
    router.acceleration = Some(acceleration);
}

/// Returns the path that [`Router::handle_request`] would use for an IPv6 packet to this station; `None`
/// if it would not send the packet at once.
fn own_packet_path(router: &mut Router, now: Time, mid: u64, hop_limit: Option<u8>) -> Option<OwnPacketPath> {
    let source = router.own_position_vector?;
    let slot = router.location_table.find_slot_of_station(now, mid)?;
    let destination = router.location_table.entry(slot).position_vector().to_short();
    let transport = Transport::GeoUnicast(destination.address);
    let request = Request::new(transport, CommonNextHeader::Ipv6, &[]);
    let own = router.check_request(&Request { maximum_hop_limit: hop_limit, ..request }).ok()?;
    let place = Position::new(destination.latitude, destination.longitude);
    let next = router.greedy_next_hop(now, &ForwardingTarget::towards_station(mid, place))?;
    // Own packets that other stations have to forward must pass the shaper (annex B.2), so the fast path must
    // not send them.
    if router.parameters.max_packet_data_rate.is_some() && mac_key(next) != mid {
        return None;
    }
    let extended = ExtendedHeader::GeoUnicast { sequence: 0, source, destination };
    let mut packet = Packet::new(extended, own.next_header, own.lifetime, own.hop_limit, &[]);
    packet.common.traffic_class = own.traffic_class;
    packet.common.mobile = router.parameters.is_mobile;
    let mut headers = [0; UNICAST_HEADERS_LENGTH];
    packet.emit_into(&mut headers).ok()?;
    // Clear the fields that differ between packets, because the fast path itself fills them in.
    headers[16..40].fill(0);
    let until = router.location_table.entry(slot).expires_at().min(next_hop_valid_until(router, now, next));
    Some(OwnPacketPath { destination: mac_of(mid), next_hop: next, guc_headers: headers, valid_until: until })
}

/// Returns the path that [`Router::handle_frame`] would use for a GUC to this station with the destination
/// position `place`. Returns `None` without a next hop, or if the path must not be permitted to the fast
/// path.
fn forwarding_path(router: &mut Router, now: Time, mid: u64, place: Position) -> Option<ForwardingPath> {
    router.own_position_vector?;
    let neighbour = router
        .location_table
        .find_slot_of_station(now, mid)
        .filter(|slot| router.location_table.entry(*slot).is_neighbour());
    let next = router.greedy_next_hop(now, &ForwardingTarget::towards_station(mid, place))?;
    // With prediction a neighbour may be out of range, and then its packets go to another next hop. That next
    // hop depends on the position in the packet, so limit the permission to this position.
    if neighbour.is_some() && next != mac_of(mid) {
        return None;
    }
    let known = neighbour.map(|slot| router.location_table.entry(slot).position_vector().to_short());
    Some(ForwardingPath {
        destination: mac_of(mid),
        next_hop: next,
        required_position: neighbour.is_none().then_some((place.latitude, place.longitude)),
        destination_vector: known,
        valid_until: next_hop_valid_until(router, now, next),
    })
}

/// Returns the time until which a next hop is valid if no further packet of it arrives. A predicted next
/// hop that is not a neighbour is valid for [`PREDICTED_HOP_LIFETIME`].
fn next_hop_valid_until(router: &Router, now: Time, next_hop: MacAddress) -> Time {
    let slot = router.location_table.find_slot_of_station(now, mac_key(next_hop));
    let entry = slot.map(|slot| router.location_table.entry(slot)).filter(|entry| entry.is_neighbour());
    entry.map_or(now + PREDICTED_HOP_LIFETIME, |entry| entry.neighbour_until())
}

/// Replaces the stored permission by `new`. Returns `new` if it differs from the stored one, otherwise
/// `None`.
fn replace_if_changed<T: Clone + PartialEq>(told: &mut Option<T>, new: Option<T>) -> Option<Option<T>> {
    if *told == new {
        return None;
    }
    told.clone_from(&new);
    Some(new)
}
