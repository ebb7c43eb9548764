//! The Local Dynamic Map (EN 302 895): who and what is around, from CAMs and DENMs.
//!
//! *Objects* are stations ([`StationObject`]) and events ([`EventObject`]), each with position, time,
//! confidence and the time at which it is forgotten. Applications ask for those in an area
//! ([`LocalDynamicMap::stations_in`]), or subscribe and are handed what changed
//! ([`LocalDynamicMap::subscribe`]): at their interval, at once for an event.
//!
//! *Memory is bounded*: in a full map the station goes that was silent for longest, and the event that ends
//! first. There is no queue of notifications; each is made when it is fetched, from what changed since the
//! last one.
//!
//! A CAM is only glanced at ([`Glance`]): 34 octets, no decoding, no allocation once the map has its size.
//!
//! Left out: the registration and permissions of data providers (the services are the only ones), and
//! positions of road topology.

mod glance;
mod stations;

use std::collections::BTreeMap;
use std::time::Duration;

use carnet_base::Time;
use carnet_geonet::geodesy::{Position, is_inside};
use carnet_wire::geonet::GeoArea;

pub use glance::Glance;

use crate::ItsDrop;
use crate::cam::GenerationDeltaTime;
use crate::cdd::{
    ActionId, CauseCode, DriveDirection, HeadingValue, InformationQuality, RelevanceDistance, SemiAxisLength,
    SpeedValue, StationId, StationType, TimestampIts, VehicleLengthValue, VehicleWidth,
};
use crate::denm::Denm;
use stations::Stations;

/// Bounds and lifetimes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// How many stations the map has at most.
    pub stations: usize,
    /// How many events.
    pub events: usize,
    /// How many subscriptions.
    pub subscriptions: usize,
    /// How long a station is remembered after its last CAM; the longest interval of CAMs is a second.
    pub station_lifetime: Duration,
}

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            stations: 4096,
            events: 256,
            subscriptions: 64,
            station_lifetime: Duration::from_secs(3),
        }
    }
}

/// A station, as its last CAM had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StationObject {
    /// Who.
    pub station_id: StationId,
    /// What.
    pub station_type: StationType,
    /// Where.
    pub position: Position,
    /// How sure that is: the longer half axis of the ellipse.
    pub confidence: SemiAxisLength,
    /// When it was there, modulo 65,536 ms.
    pub generation_delta_time: GenerationDeltaTime,
    /// Where it goes.
    pub heading: HeadingValue,
    /// How fast.
    pub speed: SpeedValue,
    /// Forwards or backwards.
    pub drive_direction: DriveDirection,
    /// How long it is.
    pub vehicle_length: VehicleLengthValue,
    /// How wide.
    pub vehicle_width: VehicleWidth,
    /// When it was heard.
    pub received: Time,
    /// When it is forgotten.
    pub expires: Time,
}

/// An event, as the last DENM about it had it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventObject {
    /// Which event.
    pub action_id: ActionId,
    /// Cause of the event; `None` if the message has none.
    pub event_type: Option<CauseCode>,
    /// How good that is known.
    pub information_quality: InformationQuality,
    /// Where.
    pub position: Position,
    /// How sure that is: the longer half axis of the ellipse.
    pub confidence: SemiAxisLength,
    /// How far it matters.
    pub relevance_distance: Option<RelevanceDistance>,
    /// Type of the station that reported it.
    pub station_type: StationType,
    /// When it was detected.
    pub detection_time: TimestampIts,
    /// To which state of it this refers.
    pub reference_time: TimestampIts,
    /// It ended before its time.
    pub terminated: bool,
    /// When it was heard of.
    pub received: Time,
    /// When it is forgotten.
    pub expires: Time,
}

/// Types of station, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StationTypes(u64);

impl StationTypes {
    /// Every type.
    pub const ALL: StationTypes = StationTypes(u64::MAX);
    /// No type: for who wants events only.
    pub const NONE: StationTypes = StationTypes(0);

    /// These types; those from 64 on are in [`Self::ALL`] only.
    pub fn of(types: &[StationType]) -> StationTypes {
        StationTypes(types.iter().filter(|kind| kind.0 < 64).fold(0, |set, kind| set | 1 << kind.0))
    }

    /// Whether a type is among them.
    pub const fn contains(self, kind: StationType) -> bool {
        if kind.0 < 64 { self.0 >> kind.0 & 1 == 1 } else { self.0 == u64::MAX }
    }
}

/// Objects that a subscriber wants.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Filter {
    /// Where; everywhere if `None`.
    pub area: Option<GeoArea>,
    /// Which stations.
    pub station_types: StationTypes,
    /// Whether events, too.
    pub events: bool,
}

/// The number of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SubscriptionId(pub u64);

/// Changes for a subscriber since the last notification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notification {
    /// Whose.
    pub subscription: SubscriptionId,
    /// Stations that were heard.
    pub stations: Vec<StationObject>,
    /// Events that were heard of.
    pub events: Vec<EventObject>,
}

#[derive(Debug)]
struct Subscription {
    filter: Filter,
    interval: Duration,
    due: Time,
    /// The subscriber knows all objects that were received before this time.
    since: Option<Time>,
}

/// The map.
#[derive(Debug)]
pub struct LocalDynamicMap {
    parameters: Parameters,
    stations: Stations,
    events: BTreeMap<ActionId, EventObject>,
    subscriptions: BTreeMap<SubscriptionId, Subscription>,
    next_subscription: u64,
}

impl LocalDynamicMap {
    /// Creates an empty map. `seed` is secret, so that an attacker cannot choose station IDs that collide.
    pub fn new(parameters: Parameters, seed: u64) -> LocalDynamicMap {
        LocalDynamicMap {
            stations: Stations::new(parameters.stations, seed),
            parameters,
            events: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            next_subscription: 0,
        }
    }

    /// A CAM was heard; its octets without the BTP header.
    ///
    /// # Errors
    /// Those of [`Glance::of`]; [`ItsDrop::Outdated`] if it is older than what is known of the station.
    pub fn handle_cam(&mut self, now: Time, octets: &[u8]) -> Result<StationId, ItsDrop> {
        let glance = Glance::of(octets)?;
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
            received: now,
            expires: now + self.parameters.station_lifetime,
        };
        // Expired entries go first, so that their time does not count for the new CAM.
        self.stations.expire(now);
        let time = glance.generation_delta_time.0;
        let older = |known: &StationObject| {
            // On a circle of 65,536 ms: less than half a turn behind.
            time != known.generation_delta_time.0
                && time.wrapping_sub(known.generation_delta_time.0) >= 0x8000
        };
        if self.stations.insert(object, older) { Ok(glance.station_id) } else { Err(ItsDrop::Outdated) }
    }

    /// A DENM that the service took, and until when it holds.
    ///
    /// # Errors
    /// [`ItsDrop::NoPosition`].
    pub fn handle_denm(&mut self, now: Time, denm: &Denm, expires: Time) -> Result<ActionId, ItsDrop> {
        let management = denm.denm.management;
        let position = management.event_position.position().ok_or(ItsDrop::NoPosition)?;
        let known = self.events.get(&management.action_id);
        let situation = denm.denm.situation.as_ref();
        let object = EventObject {
            action_id: management.action_id,
            // The end of an event says no more what it was.
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
            terminated: management.termination.is_some(),
            received: now,
            expires,
        };
        self.expire_events(now);
        if !self.events.contains_key(&object.action_id) && self.events.len() >= self.parameters.events.max(1)
        {
            let first = self.events.values().min_by_key(|event| event.expires).map(|event| event.action_id);
            first.and_then(|action| self.events.remove(&action));
        }
        self.events.insert(object.action_id, object);
        for subscription in self.subscriptions.values_mut() {
            let Filter { area, events, .. } = subscription.filter;
            if events && area.is_none_or(|area| is_inside(&area, position)) {
                subscription.due = subscription.due.min(now);
            }
        }
        Ok(object.action_id)
    }

    fn expire_events(&mut self, now: Time) {
        self.events.retain(|_, event| event.expires > now);
    }

    /// How many stations and events there are.
    pub fn sizes(&self) -> (usize, usize) {
        (self.stations.len(), self.events.len())
    }

    /// Returns the entry of a station.
    pub fn station(&self, station_id: StationId) -> Option<&StationObject> {
        self.stations.get(station_id.0)
    }

    /// The stations of some types in an area (everywhere if `None`), at `now`.
    pub fn stations_in(&self, now: Time, area: Option<&GeoArea>, types: StationTypes) -> Vec<StationObject> {
        let mut found = Vec::new();
        let take = |object: &StationObject| {
            if object.expires > now && types.contains(object.station_type) {
                found.push(*object);
            }
        };
        match area {
            Some(area) => self.stations.for_each_in(area, take),
            None => self.stations.iter().for_each(take),
        }
        found
    }

    /// An event, even one that has ended before its time.
    pub fn event(&self, action_id: ActionId) -> Option<&EventObject> {
        self.events.get(&action_id)
    }

    /// The events in an area (everywhere if `None`) that go on at `now`.
    pub fn events_in(&self, now: Time, area: Option<&GeoArea>) -> Vec<EventObject> {
        let here = |event: &&EventObject| {
            event.expires > now
                && !event.terminated
                && area.is_none_or(|area| is_inside(area, event.position))
        };
        self.events.values().filter(here).copied().collect()
    }

    /// Wants to be handed what changes, once per `interval` at most, and events at once. The first time
    /// everything that is there is new.
    ///
    /// # Errors
    /// [`ItsDrop::TableFull`].
    pub fn subscribe(
        &mut self,
        now: Time,
        filter: Filter,
        interval: Duration,
    ) -> Result<SubscriptionId, ItsDrop> {
        if self.subscriptions.len() >= self.parameters.subscriptions {
            return Err(ItsDrop::TableFull);
        }
        let id = SubscriptionId(self.next_subscription);
        self.next_subscription += 1;
        let interval = interval.max(Duration::from_millis(1));
        self.subscriptions.insert(id, Subscription { filter, interval, due: now, since: None });
        Ok(id)
    }

    /// Wants no more; whether there was such a subscription.
    pub fn unsubscribe(&mut self, id: SubscriptionId) -> bool {
        self.subscriptions.remove(&id).is_some()
    }

    /// When [`Self::poll_notification`] may have something.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.subscriptions.values().map(|subscription| subscription.due).min()
    }

    /// Returns the next notification that is due at `now`; call it until it returns `None`.
    pub fn poll_notification(&mut self, now: Time) -> Option<Notification> {
        self.stations.expire(now);
        self.expire_events(now);
        loop {
            let due = self.subscriptions.iter_mut().find(|(_, subscription)| subscription.due <= now);
            let (id, subscription) = due.map(|(id, subscription)| (*id, subscription))?;
            let since = subscription.since.replace(now);
            subscription.due = now + subscription.interval;
            let Filter { area, station_types, events } = subscription.filter;
            // An object that was received at that very time may be reported twice, but is never missed.
            let new = |received: Time| since.is_none_or(|since| received >= since);
            let mut stations = self.stations_in(now, area.as_ref(), station_types);
            stations.retain(|object| new(object.received));
            let inside = |event: &&EventObject| area.is_none_or(|area| is_inside(&area, event.position));
            let events: Vec<EventObject> = self
                .events
                .values()
                .filter(|event| events && new(event.received))
                .filter(inside)
                .copied()
                .collect();
            if !stations.is_empty() || !events.is_empty() {
                return Some(Notification { subscription: id, stations, events });
            }
        }
    }
}
