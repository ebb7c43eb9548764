//! The GeoNetworking pings that run now.

use std::collections::BTreeMap;
use std::time::Duration;

use carnet_api::model::{GnPingAnswer, GnPingEvent, GnPingRequest, GnTarget};
use carnet_base::Time;
use carnet_cits::geonetworking::echo::{self, EchoMessage};
use carnet_cits::position::to_degrees;
use carnet_station::io::{Area, Delivered, GeonetRequest, GeonetTransport};
use carnet_wire::address::MacAddress;
use carnet_wire::geonet::GnAddress;
use tokio::sync::mpsc;

use super::mid;

/// Number of events in the buffer of a slow reader of one ping.
const EVENTS: usize = 1024;
/// Largest number of simultaneous pings.
const PINGS: usize = 64;

/// All running pings, by the identifier of their requests.
#[derive(Debug)]
pub struct Pings {
    pings: BTreeMap<u16, Ping>,
    next_identifier: u16,
}

#[derive(Debug)]
struct Ping {
    transport: GeonetTransport,
    /// Name of the area to which the ping goes; `None` for other targets.
    area: Option<String>,
    count: u16,
    interval: Duration,
    timeout: Duration,
    /// Time of the next request; `None` after the last request.
    next_request: Option<Time>,
    sent: u16,
    answered: u32,
    /// Requests without an answer so far, by sequence number.
    waiting: BTreeMap<u16, OutstandingRequest>,
    events: mpsc::Sender<GnPingEvent>,
}

#[derive(Debug)]
struct OutstandingRequest {
    sent_at: Time,
    /// Stations that have answered a request. If the target of the ping is a single station, its answer ends
    /// the request.
    answers: Vec<u64>,
}

impl Pings {
    /// Creates an empty table of pings. The first ping gets this identifier.
    pub fn new(next_identifier: u16) -> Pings {
        Pings { pings: BTreeMap::new(), next_identifier }
    }

    /// Starts a ping. Returns its identifier, and its first request, which counts as sent.
    ///
    /// # Errors
    /// Returns an error if too many pings run.
    pub fn start(
        &mut self,
        now: Time,
        transport: GeonetTransport,
        ping: &GnPingRequest,
    ) -> Result<(u16, GeonetRequest, mpsc::Receiver<GnPingEvent>), String> {
        self.pings.retain(|_, ping| !ping.events.is_closed());
        if self.pings.len() >= PINGS {
            return Err(format!("{PINGS} pings are running already"));
        }
        while self.pings.contains_key(&self.next_identifier) {
            self.next_identifier = self.next_identifier.wrapping_add(1);
        }
        let identifier = self.next_identifier;
        self.next_identifier = identifier.wrapping_add(1);
        let (events, receiver) = mpsc::channel(EVENTS);
        let mut ping = Ping {
            transport,
            area: match &ping.target {
                GnTarget::Area(name) => Some(name.clone()),
                GnTarget::Station(_) => None,
            },
            count: u16::try_from(ping.count).unwrap_or(u16::MAX),
            interval: Duration::from_millis(ping.interval_ms),
            timeout: Duration::from_millis(ping.timeout_ms),
            next_request: None,
            sent: 0,
            answered: 0,
            waiting: BTreeMap::new(),
            events,
        };
        let request = ping.request(now, identifier);
        self.pings.insert(identifier, ping);
        Ok((identifier, request, receiver))
    }

    /// Removes a ping whose first request the station has refused.
    pub fn abandon(&mut self, identifier: u16) {
        self.pings.remove(&identifier);
    }

    /// Returns the names of the areas to which pings go.
    pub fn areas(&self) -> impl Iterator<Item = &str> {
        self.pings.values().filter_map(|ping| ping.area.as_deref())
    }

    /// Sets the present place of the area with this name in all pings to it.
    pub fn move_area(&mut self, name: &str, area: Area) {
        let there = self.pings.values_mut().filter(|ping| ping.area.as_deref() == Some(name));
        there.for_each(|ping| ping.transport = GeonetTransport::GeoBroadcast(area));
    }

    /// Returns when [`Pings::handle_timeout`] is due next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.pings.values().filter_map(Ping::due).min()
    }

    /// Reports requests whose answers are late, ends finished pings, and returns the requests that are due.
    pub fn handle_timeout(&mut self, now: Time) -> Vec<GeonetRequest> {
        let mut requests = Vec::new();
        self.pings.retain(|identifier, ping| {
            ping.give_up(now);
            if ping.next_request.is_some_and(|next| next <= now) {
                requests.push(ping.request(now, *identifier));
            }
            ping.goes_on()
        });
        requests
    }

    /// Handles an answer. Ignores an answer that matches no request.
    pub fn answer(&mut self, now: Time, delivered: &Delivered, echo: EchoMessage) {
        let Some(ping) = self.pings.get_mut(&echo.identifier) else { return };
        ping.answer(now, delivered, echo);
        if !ping.goes_on() {
            self.pings.remove(&echo.identifier);
        }
    }
}

impl Ping {
    fn to_one_station(&self) -> bool {
        matches!(self.transport, GeonetTransport::GeoUnicast(_))
    }

    fn due(&self) -> Option<Time> {
        // All requests have the same timeout, so the oldest request is due first.
        let waiting = self.waiting.values().next().map(|waiting| waiting.sent_at + self.timeout);
        waiting.into_iter().chain(self.next_request).min()
    }

    fn request(&mut self, now: Time, identifier: u16) -> GeonetRequest {
        self.sent += 1;
        self.next_request = (self.sent < self.count).then(|| now + self.interval);
        self.waiting.insert(self.sent, OutstandingRequest { sent_at: now, answers: Vec::new() });
        GeonetRequest {
            transport: self.transport,
            next_header: echo::BTP_B_NEXT_HEADER,
            store_carry_forward: false,
            traffic_class: 0,
            lifetime_ms: None,
            hop_limit: None,
            payload: EchoMessage { is_reply: false, hop_count: 0, identifier, sequence: self.sent }.emit(),
        }
    }

    fn answer(&mut self, now: Time, delivered: &Delivered, echo: EchoMessage) {
        let one = self.to_one_station();
        let Some(waiting) = self.waiting.get_mut(&echo.sequence) else { return };
        if waiting.answers.contains(&delivered.source) {
            return;
        }
        waiting.answers.push(delivered.source);
        if waiting.answers.len() == 1 {
            self.answered += 1;
        }
        let since = waiting.sent_at;
        if one {
            self.waiting.remove(&echo.sequence);
        }
        self.tell(GnPingEvent::Answer(GnPingAnswer {
            sequence: echo.sequence.into(),
            gn_address: GnAddress(delivered.source),
            mac: MacAddress(mid(delivered.source)),
            latitude: to_degrees(delivered.latitude),
            longitude: to_degrees(delivered.longitude),
            rtt_ms: now.saturating_since(since).as_secs_f64() * 1000.0,
            hops: echo.hop_count,
            path: None,
        }));
    }

    fn give_up(&mut self, now: Time) {
        while let Some(first) = self.waiting.first_entry() {
            if first.get().sent_at + self.timeout > now {
                return;
            }
            let (sequence, waiting) = first.remove_entry();
            if waiting.answers.is_empty() {
                self.tell(GnPingEvent::Timeout { sequence: sequence.into() });
            }
        }
    }

    /// Returns whether the ping continues; if not, reports its end.
    fn goes_on(&self) -> bool {
        if self.next_request.is_none() && self.waiting.is_empty() {
            self.tell(GnPingEvent::Done { sent: self.sent.into(), answered: self.answered });
            return false;
        }
        !self.events.is_closed()
    }

    /// Sends an event to the ping's reader. A reader that is a thousand events behind loses events.
    fn tell(&self, event: GnPingEvent) {
        let _ = self.events.try_send(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carnet_api::model::{GnStation, GnTarget};
    use carnet_station::io::{Area, AreaShape, GnPacketType};

    fn asked(count: u32) -> GnPingRequest {
        let target = GnTarget::Station(GnStation::Address(GnAddress(7)));
        GnPingRequest { target, count, interval_ms: 1000, timeout_ms: 3000 }
    }

    fn reply(source: u64, request: &GeonetRequest) -> (Delivered, EchoMessage) {
        let echo = EchoMessage {
            is_reply: true,
            hop_count: 2,
            ..EchoMessage::parse(&request.payload).expect("an echo")
        };
        let delivered = Delivered {
            kind: GnPacketType::Guc,
            next_header: echo::BTP_B_NEXT_HEADER,
            source,
            latitude: 488_375_000,
            longitude: 21_008_000,
            remaining_hop_limit: 9,
            maximum_hop_limit: 10,
            payload: echo.emit(),
        };
        (delivered, echo)
    }

    const CIRCLE: GeonetTransport = GeonetTransport::GeoBroadcast(Area {
        shape: AreaShape::Circle,
        latitude: 0,
        longitude: 0,
        distance_a: 9,
        distance_b: 0,
        angle: 0,
    });

    #[test]
    fn station_ping_ends_with_its_answer_or_timeout() {
        let mut pings = Pings::new(u16::MAX);
        let start = Time::from_secs(1);
        let (identifier, first, mut events) =
            pings.start(start, GeonetTransport::GeoUnicast(7), &asked(2)).expect("a ping");
        assert_eq!(identifier, u16::MAX);
        let (delivered, echo) = reply(7, &first);
        pings.answer(start + Duration::from_millis(5), &delivered, echo);
        pings.answer(start + Duration::from_millis(6), &delivered, echo);
        let Ok(GnPingEvent::Answer(answer)) = events.try_recv() else { panic!("no answer") };
        assert_eq!((answer.sequence, answer.rtt_ms, answer.hops, answer.latitude), (1, 5.0, 2, 48.8375));
        assert!(events.try_recv().is_err());
        assert_eq!(pings.poll_timeout(), Some(Time::from_secs(2)));
        assert_eq!(pings.handle_timeout(Time::from_secs(2)).len(), 1);
        assert_eq!(pings.poll_timeout(), Some(Time::from_secs(5)));
        assert!(pings.handle_timeout(Time::from_secs(5)).is_empty());
        assert_eq!(events.try_recv(), Ok(GnPingEvent::Timeout { sequence: 2 }));
        assert_eq!(events.try_recv(), Ok(GnPingEvent::Done { sent: 2, answered: 1 }));
        assert_eq!(events.try_recv(), Err(mpsc::error::TryRecvError::Disconnected));
        assert_eq!(pings.poll_timeout(), None);
    }

    #[test]
    fn area_ping_collects_answers_until_timeout() {
        let mut pings = Pings::new(0);
        let (_, first, mut events) = pings.start(Time::ZERO, CIRCLE, &asked(1)).expect("a ping");
        for source in [7, 8, 7] {
            let (delivered, echo) = reply(source, &first);
            pings.answer(Time::from_secs(1), &delivered, echo);
        }
        assert!(pings.handle_timeout(Time::from_secs(3)).is_empty());
        let mut kinds = Vec::new();
        while let Ok(event) = events.try_recv() {
            kinds.push(match event {
                GnPingEvent::Answer(answer) => answer.gn_address.0,
                GnPingEvent::Done { sent: 1, answered: 1 } => 0,
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(kinds, [7, 8, 0]);
    }

    #[test]
    fn no_ping_is_sent_for_a_disconnected_client() {
        let mut pings = Pings::new(0);
        let (_, _, events) = pings.start(Time::ZERO, CIRCLE, &asked(9)).expect("a ping");
        drop(events);
        pings.handle_timeout(Time::from_secs(1));
        assert_eq!(pings.poll_timeout(), None);
    }
}
