//! The Local Dynamic Map (EN 302 895): stations and events nearby, from CAMs and DENMs.
//!
//! *Objects* are stations ([`StationObject`]) and events ([`EventObject`]), each with position, time,
//! confidence and the time at which the map removes it. Applications query the objects in an area
//! ([`LocalDynamicMap::stations_in`]), or subscribe to changes ([`LocalDynamicMap::subscribe`]). A subscriber
//! gets changes of stations at its interval and events at once.
//!
//! *Memory is bounded*: a full map removes the station without a CAM for the longest time, or the event that
//! ends first. Notifications have no queue: the map makes each one when the subscriber fetches it, from the
//! changes since the last.
//!
//! The map decodes only a part of a CAM ([`PartialCam`]): 34 octets, without allocation once the map has its
//! full size.
//!
//! Left out: the registration and permissions of data providers (the services are the only providers), and
//! positions of road topology.

mod partial_cam;
mod stations;

use std::collections::BTreeMap;
use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::geodesy::{Position, is_inside};
use carnet_wire::geonet::GeoArea;

pub use partial_cam::PartialCam;

use crate::ItsDrop;
use crate::cam::GenerationDeltaTime;
use crate::cdd::{
    ActionId, CauseCode, DriveDirection, HeadingValue, InformationQuality, RelevanceDistance, SemiAxisLength,
    SpeedValue, StationId, StationType, TimestampIts, VehicleLengthValue, VehicleWidth,
};
use crate::denm::Denm;
use stations::Stations;

/// Bounds and lifetimes of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LdmParameters {
    /// Largest number of stations.
    pub max_stations: usize,
    /// Largest number of events.
    pub max_events: usize,
    /// Largest number of subscriptions.
    pub max_subscriptions: usize,
    /// Time without a CAM after which the map removes a station; the longest interval of CAMs is a second.
    pub station_lifetime: Duration,
}

impl Default for LdmParameters {
    fn default() -> Self {
        LdmParameters {
            max_stations: 4096,
            max_events: 256,
            max_subscriptions: 64,
            station_lifetime: Duration::from_secs(3),
        }
    }
}

/// A station in the map, with the data of its last CAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StationObject {
    /// Station ID.
    pub station_id: StationId,
    /// Station type.
    pub station_type: StationType,
    /// Position of the station.
    pub position: Position,
    /// Confidence of the position: the longer half axis of the ellipse.
    pub confidence: SemiAxisLength,
    /// Time of the position, modulo 65,536 ms.
    pub generation_delta_time: GenerationDeltaTime,
    /// Heading.
    pub heading: HeadingValue,
    /// Speed.
    pub speed: SpeedValue,
    /// Drive direction: forwards or backwards.
    pub drive_direction: DriveDirection,
    /// Length of the vehicle.
    pub vehicle_length: VehicleLengthValue,
    /// Width of the vehicle.
    pub vehicle_width: VehicleWidth,
    /// Time at which the last CAM arrived.
    pub received_at: Time,
    /// Time at which the map removes the station.
    pub expires_at: Time,
}

/// An event in the map, with the data of the last DENM about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventObject {
    /// Action ID of the event.
    pub action_id: ActionId,
    /// Cause of the event; `None` if the message has none.
    pub event_type: Option<CauseCode>,
    /// Quality of the information about the event.
    pub information_quality: InformationQuality,
    /// Position of the event.
    pub position: Position,
    /// Confidence of the position: the longer half axis of the ellipse.
    pub confidence: SemiAxisLength,
    /// Distance within which the event is relevant.
    pub relevance_distance: Option<RelevanceDistance>,
    /// Type of the station that reported the event.
    pub station_type: StationType,
    /// Time of the detection.
    pub detection_time: TimestampIts,
    /// Reference time, which identifies the state of the event.
    pub reference_time: TimestampIts,
    /// Whether the originator or a witness ended the event before its validity ended.
    pub is_terminated: bool,
    /// Time at which the last DENM arrived.
    pub received_at: Time,
    /// Time at which the map removes the event.
    pub expires_at: Time,
}

/// A set of station types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StationTypes(u64);

impl StationTypes {
    /// All station types.
    pub const ALL: StationTypes = StationTypes(u64::MAX);
    /// Selects no stations, for a subscriber that wants only events.
    pub const NONE: StationTypes = StationTypes(0);

    /// Returns the set of these types; types from 64 on are in [`Self::ALL`] only.
    pub fn of_types(types: &[StationType]) -> StationTypes {
        StationTypes(types.iter().filter(|kind| kind.0 < 64).fold(0, |set, kind| set | 1 << kind.0))
    }

    /// Returns whether a type is in the set.
    pub const fn contains(self, kind: StationType) -> bool {
        if kind.0 < 64 { self.0 >> kind.0 & 1 == 1 } else { self.0 == u64::MAX }
    }
}

/// Selects the stations and events that a subscriber receives.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SubscriptionFilter {
    /// Area of the objects; `None` for everywhere.
    pub area: Option<GeoArea>,
    /// Types of the stations that the subscriber receives.
    pub station_types: StationTypes,
    /// Whether the subscriber receives events as well.
    pub wants_events: bool,
}

/// Identifier of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u64);

/// Changes of the map since the subscriber's last notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// Subscription that the notification is for.
    pub subscription: SubscriptionId,
    /// Stations with a new CAM.
    pub stations: Vec<StationObject>,
    /// Events with a new DENM.
    pub events: Vec<EventObject>,
}

#[derive(Debug)]
struct Subscription {
    filter: SubscriptionFilter,
    notification_interval: Duration,
    next_notification_at: Time,
    /// Time until which the subscriber has received all objects that arrived; `None` before the first
    /// notification.
    objects_delivered_until: Option<Time>,
}

/// The Local Dynamic Map.
#[derive(Debug)]
pub struct LocalDynamicMap {
    parameters: LdmParameters,
    stations: Stations,
    events: BTreeMap<ActionId, EventObject>,
    subscriptions: BTreeMap<SubscriptionId, Subscription>,
    next_subscription_id: u64,
}

impl LocalDynamicMap {
    /// Creates an empty map. `seed` keys the hash of station IDs; it is secret, so that an attacker cannot
    /// choose station IDs that collide.
    pub fn new(parameters: LdmParameters, seed: u64) -> LocalDynamicMap {
        LocalDynamicMap {
            stations: Stations::new(parameters.max_stations, seed),
            parameters,
            events: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            next_subscription_id: 0,
        }
    }

    /// Handles a received CAM; `octets` are without the BTP header.
    ///
    /// # Errors
    /// The errors of [`PartialCam::from_octets`]; [`ItsDrop::Outdated`] if the CAM is older than the
    /// station's entry.
    pub fn handle_cam(&mut self, now: Time, octets: &[u8]) -> Result<StationId, ItsDrop> {
        let glance = PartialCam::from_octets(octets)?;
        let object = StationObject {
            station_id: glance.station_id,
            station_type: glance.station_type,
            position: glance.position,
            confidence: glance.confidence,
            generation_delta_time: glance.generation_delta_time,
            heading: glance.heading,
            speed: glance.speed,
            drive_direction: glance.drive_direction,
            vehicle_length: glance.vehicle_length,
            vehicle_width: glance.vehicle_width,
            received_at: now,
            expires_at: now + self.parameters.station_lifetime,
        };
        // Remove expired entries first: a returning station may send a CAM with any generation time.
        self.stations.expire_stations(now);
        let time = glance.generation_delta_time.0;
        let older = |known: &StationObject| {
            // Generation times are modulo 65,536 ms. A CAM is older than the entry if its time is behind by
            // less than half of this range.
            time != known.generation_delta_time.0
                && time.wrapping_sub(known.generation_delta_time.0) >= 0x8000
        };
        if self.stations.insert(object, older) { Ok(glance.station_id) } else { Err(ItsDrop::Outdated) }
    }

    /// Handles a DENM that the DEN service accepted; the event ends at `expires`.
    ///
    /// # Errors
    /// [`ItsDrop::NoPosition`] if the event has no position.
    pub fn handle_denm(&mut self, now: Time, denm: &Denm, expires: Time) -> Result<ActionId, ItsDrop> {
        let management = denm.denm.management;
        let position = management.event_position.position().ok_or(ItsDrop::NoPosition)?;
        let known = self.events.get(&management.action_id);
        let situation = denm.denm.situation.as_ref();
        let object = EventObject {
            action_id: management.action_id,
            // A message that ends an event does not contain the type of the event, so keep the known type.
            event_type: situation
                .map(|situation| situation.event_type)
                .or_else(|| known.and_then(|known| known.event_type)),
            information_quality: situation.map(|situation| situation.information_quality).unwrap_or_default(),
            position,
            confidence: management.event_position.position_confidence_ellipse.semi_major_confidence,
            relevance_distance: management.relevance_distance,
            station_type: management.station_type,
            detection_time: management.detection_time,
            reference_time: management.reference_time,
            is_terminated: management.termination.is_some(),
            received_at: now,
            expires_at: expires,
        };
        self.expire_events(now);
        if !self.events.contains_key(&object.action_id)
            && self.events.len() >= self.parameters.max_events.max(1)
        {
            let first =
                self.events.values().min_by_key(|event| event.expires_at).map(|event| event.action_id);
            first.and_then(|action| self.events.remove(&action));
        }
        self.events.insert(object.action_id, object);
        for subscription in self.subscriptions.values_mut() {
            let SubscriptionFilter { area, wants_events: events, .. } = subscription.filter;
            if events && area.is_none_or(|area| is_inside(&area, position)) {
                subscription.next_notification_at = subscription.next_notification_at.min(now);
            }
        }
        Ok(object.action_id)
    }

    fn expire_events(&mut self, now: Time) {
        self.events.retain(|_, event| event.expires_at > now);
    }

    /// Returns the number of stations and events.
    pub fn object_counts(&self) -> (usize, usize) {
        (self.stations.len(), self.events.len())
    }

    /// Returns the entry of a station.
    pub fn station(&self, station_id: StationId) -> Option<&StationObject> {
        self.stations.get(station_id.0)
    }

    /// Returns the stations of some types in an area (everywhere if `None`), at `now`.
    pub fn stations_in(&self, now: Time, area: Option<&GeoArea>, types: StationTypes) -> Vec<StationObject> {
        let mut found = Vec::new();
        let take = |object: &StationObject| {
            if object.expires_at > now && types.contains(object.station_type) {
                found.push(*object);
            }
        };
        match area {
            Some(area) => self.stations.for_each_station_in(area, take),
            None => self.stations.iter().for_each(take),
        }
        found
    }

    /// Returns an event, even if it has ended before its validity.
    pub fn event(&self, action_id: ActionId) -> Option<&EventObject> {
        self.events.get(&action_id)
    }

    /// Returns the events in an area (everywhere if `None`) that continue at `now`.
    pub fn events_in(&self, now: Time, area: Option<&GeoArea>) -> Vec<EventObject> {
        let here = |event: &&EventObject| {
            event.expires_at > now
                && !event.is_terminated
                && area.is_none_or(|area| is_inside(area, event.position))
        };
        self.events.values().filter(here).copied().collect()
    }

    /// Creates a subscription. The subscriber gets changes of stations at most once per `interval`, and
    /// events at once. The first notification contains all present objects.
    ///
    /// # Errors
    /// [`ItsDrop::TableFull`] if the map has no room for a subscription.
    pub fn subscribe(
        &mut self,
        now: Time,
        filter: SubscriptionFilter,
        interval: Duration,
    ) -> Result<SubscriptionId, ItsDrop> {
        if self.subscriptions.len() >= self.parameters.max_subscriptions {
            return Err(ItsDrop::TableFull);
        }
        let id = SubscriptionId(self.next_subscription_id);
        self.next_subscription_id += 1;
        let interval = interval.max(Duration::from_millis(1));
        self.subscriptions.insert(
            id,
            Subscription {
                filter,
                notification_interval: interval,
                next_notification_at: now,
                objects_delivered_until: None,
            },
        );
        Ok(id)
    }

    /// Ends a subscription; returns false if it does not exist.
    pub fn unsubscribe(&mut self, id: SubscriptionId) -> bool {
        self.subscriptions.remove(&id).is_some()
    }

    /// Returns the time at which [`Self::poll_notification`] may return a notification.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.subscriptions.values().map(|subscription| subscription.next_notification_at).min()
    }

    /// Returns a notification that is due at `now`. The caller repeats the call until the result is `None`.
    pub fn poll_notification(&mut self, now: Time) -> Option<Notification> {
        self.stations.expire_stations(now);
        self.expire_events(now);
        loop {
            let due = self
                .subscriptions
                .iter_mut()
                .find(|(_, subscription)| subscription.next_notification_at <= now);
            let (id, subscription) = due.map(|(id, subscription)| (*id, subscription))?;
            let since = subscription.objects_delivered_until.replace(now);
            subscription.next_notification_at = now + subscription.notification_interval;
            let SubscriptionFilter { area, station_types, wants_events: events } = subscription.filter;
            // An object that arrived exactly at the time of the last notification may appear in two
            // notifications, but the subscriber never misses one.
            let new = |received: Time| since.is_none_or(|since| received >= since);
            let mut stations = self.stations_in(now, area.as_ref(), station_types);
            stations.retain(|object| new(object.received_at));
            let inside = |event: &&EventObject| area.is_none_or(|area| is_inside(&area, event.position));
            let events: Vec<EventObject> = self
                .events
                .values()
                .filter(|event| events && new(event.received_at))
                .filter(inside)
                .copied()
                .collect();
            if !stations.is_empty() || !events.is_empty() {
                return Some(Notification { subscription: id, stations, events });
            }
        }
    }
}
