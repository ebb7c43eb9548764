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

use super::mid_of_address;

/// Number of events in the buffer of a slow reader of one ping.
const EVENT_BUFFER_LENGTH: usize = 1024;
/// Largest number of simultaneous pings.
const MAX_RUNNING_PINGS: usize = 64;

/// All running pings, by the identifier of their requests.
#[derive(Debug)]
pub struct RunningPings {
    pings_by_identifier: BTreeMap<u16, RunningPing>,
    next_identifier: u16,
}

#[derive(Debug)]
struct RunningPing {
    transport: GeonetTransport,
    /// Name of the area to which the ping goes; `None` for other targets.
    area_name: Option<String>,
    request_count: u16,
    interval: Duration,
    answer_timeout: Duration,
    /// Time of the ping's next request; `None` after the last request.
    next_request_at: Option<Time>,
    sent_requests: u16,
    received_answers: u32,
    /// Requests without an answer so far, by sequence number.
    outstanding_requests: BTreeMap<u16, OutstandingRequest>,
    events: mpsc::Sender<GnPingEvent>,
}

#[derive(Debug)]
struct OutstandingRequest {
    sent_at: Time,
    /// Stations that have answered a request of this ping. A single station as target answers each request
    /// once, and the request is then complete.
    answering_stations: Vec<u64>,
}

impl RunningPings {
    /// Creates an empty table of pings. The first ping gets the identifier `next_identifier`.
    pub fn new(next_identifier: u16) -> RunningPings {
        RunningPings { pings_by_identifier: BTreeMap::new(), next_identifier }
    }

    /// Starts a ping. Returns its identifier, and its first request, which counts as sent.
    ///
    /// # Errors
    /// Returns an error if too many pings run.
    pub fn start_ping(
        &mut self,
        now: Time,
        transport: GeonetTransport,
        ping: &GnPingRequest,
    ) -> Result<(u16, GeonetRequest, mpsc::Receiver<GnPingEvent>), String> {
        self.pings_by_identifier.retain(|_, ping| !ping.events.is_closed());
        if self.pings_by_identifier.len() >= MAX_RUNNING_PINGS {
            return Err(format!("{MAX_RUNNING_PINGS} pings are running already"));
        }
        while self.pings_by_identifier.contains_key(&self.next_identifier) {
            self.next_identifier = self.next_identifier.wrapping_add(1);
        }
        let identifier = self.next_identifier;
        self.next_identifier = identifier.wrapping_add(1);
        let (events, receiver) = mpsc::channel(EVENT_BUFFER_LENGTH);
        let mut ping = RunningPing {
            transport,
            area_name: match &ping.target {
                GnTarget::Area(name) => Some(name.clone()),
                GnTarget::Station(_) => None,
            },
            request_count: u16::try_from(ping.count).unwrap_or(u16::MAX),
            interval: Duration::from_millis(ping.interval_ms),
            answer_timeout: Duration::from_millis(ping.timeout_ms),
            next_request_at: None,
            sent_requests: 0,
            received_answers: 0,
            outstanding_requests: BTreeMap::new(),
            events,
        };
        let request = ping.next_request(now, identifier);
        self.pings_by_identifier.insert(identifier, ping);
        Ok((identifier, request, receiver))
    }

    /// Removes a ping whose first request the station has refused.
    pub fn abandon_ping(&mut self, identifier: u16) {
        self.pings_by_identifier.remove(&identifier);
    }

    /// Returns the names of the areas to which pings go.
    pub fn area_names(&self) -> impl Iterator<Item = &str> {
        self.pings_by_identifier.values().filter_map(|ping| ping.area_name.as_deref())
    }

    /// Sets the area's present position in all pings to the area with this name.
    pub fn move_area(&mut self, name: &str, area: Area) {
        let there =
            self.pings_by_identifier.values_mut().filter(|ping| ping.area_name.as_deref() == Some(name));
        there.for_each(|ping| ping.transport = GeonetTransport::GeoBroadcast(area));
    }

    /// Returns when the caller must call [`RunningPings::handle_timeout`] next; `None` without a ping.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.pings_by_identifier.values().filter_map(RunningPing::next_action_at).min()
    }

    /// Reports requests without an answer in time, ends finished pings, and returns the requests to send now.
    pub fn handle_timeout(&mut self, now: Time) -> Vec<GeonetRequest> {
        let mut requests = Vec::new();
        self.pings_by_identifier.retain(|identifier, ping| {
            ping.expire_requests(now);
            if ping.next_request_at.is_some_and(|next| next <= now) {
                requests.push(ping.next_request(now, *identifier));
            }
            ping.is_unfinished()
        });
        requests
    }

    /// Handles an answer. Ignores an answer that matches no request.
    pub fn handle_answer(&mut self, now: Time, delivered: &Delivered, echo: EchoMessage) {
        let Some(ping) = self.pings_by_identifier.get_mut(&echo.identifier) else { return };
        ping.handle_answer(now, delivered, echo);
        if !ping.is_unfinished() {
            self.pings_by_identifier.remove(&echo.identifier);
        }
    }
}

impl RunningPing {
    fn has_single_destination(&self) -> bool {
        matches!(self.transport, GeonetTransport::GeoUnicast(_))
    }

    fn next_action_at(&self) -> Option<Time> {
        // All requests have the same timeout, so the oldest request times out first.
        let waiting =
            self.outstanding_requests.values().next().map(|waiting| waiting.sent_at + self.answer_timeout);
        waiting.into_iter().chain(self.next_request_at).min()
    }

    fn next_request(&mut self, now: Time, identifier: u16) -> GeonetRequest {
        self.sent_requests += 1;
        self.next_request_at = (self.sent_requests < self.request_count).then(|| now + self.interval);
        self.outstanding_requests
            .insert(self.sent_requests, OutstandingRequest { sent_at: now, answering_stations: Vec::new() });
        GeonetRequest {
            transport: self.transport,
            next_header: echo::BTP_B_NEXT_HEADER,
            store_carry_forward: false,
            traffic_class: 0,
            lifetime_ms: None,
            hop_limit: None,
            payload: EchoMessage { is_reply: false, hop_count: 0, identifier, sequence: self.sent_requests }
                .emit(),
        }
    }

    fn handle_answer(&mut self, now: Time, delivered: &Delivered, echo: EchoMessage) {
        let one = self.has_single_destination();
        let Some(waiting) = self.outstanding_requests.get_mut(&echo.sequence) else { return };
        if waiting.answering_stations.contains(&delivered.source) {
            return;
        }
        waiting.answering_stations.push(delivered.source);
        if waiting.answering_stations.len() == 1 {
            self.received_answers += 1;
        }
        let since = waiting.sent_at;
        if one {
            self.outstanding_requests.remove(&echo.sequence);
        }
        self.send_event(GnPingEvent::Answer(GnPingAnswer {
            sequence: echo.sequence.into(),
            gn_address: GnAddress(delivered.source),
            mac: MacAddress(mid_of_address(delivered.source)),
            latitude: to_degrees(delivered.latitude),
            longitude: to_degrees(delivered.longitude),
            rtt_ms: now.saturating_since(since).as_secs_f64() * 1000.0,
            hops: echo.hop_count,
            path: None,
        }));
    }

    fn expire_requests(&mut self, now: Time) {
        while let Some(first) = self.outstanding_requests.first_entry() {
            if first.get().sent_at + self.answer_timeout > now {
                return;
            }
            let (sequence, waiting) = first.remove_entry();
            if waiting.answering_stations.is_empty() {
                self.send_event(GnPingEvent::Timeout { sequence: sequence.into() });
            }
        }
    }

    /// Returns whether the ping is unfinished; if not, reports its end.
    fn is_unfinished(&self) -> bool {
        if self.next_request_at.is_none() && self.outstanding_requests.is_empty() {
            self.send_event(GnPingEvent::Done {
                sent: self.sent_requests.into(),
                answered: self.received_answers,
            });
            return false;
        }
        !self.events.is_closed()
    }

    /// Sends an event to the ping's reader. A reader that is a thousand events behind loses events.
    fn send_event(&self, event: GnPingEvent) {
        let _ = self.events.try_send(event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use carnet_api::model::{GnStation, GnTarget};
    use carnet_station::io::{Area, AreaShape, GnPacketType};

    fn ping_request(count: u32) -> GnPingRequest {
        let target = GnTarget::Station(GnStation::Address(GnAddress(7)));
        GnPingRequest { target, count, interval_ms: 1000, timeout_ms: 3000 }
    }

    fn echo_reply(source: u64, request: &GeonetRequest) -> (Delivered, EchoMessage) {
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

    const TEST_CIRCLE: GeonetTransport = GeonetTransport::GeoBroadcast(Area {
        shape: AreaShape::Circle,
        latitude: 0,
        longitude: 0,
        distance_a: 9,
        distance_b: 0,
        angle: 0,
    });

    #[test]
    fn station_ping_ends_with_its_answer_or_timeout() {
        let mut pings = RunningPings::new(u16::MAX);
        let start = Time::from_secs(1);
        let (identifier, first, mut events) =
            pings.start_ping(start, GeonetTransport::GeoUnicast(7), &ping_request(2)).expect("a ping");
        assert_eq!(identifier, u16::MAX);
        let (delivered, echo) = echo_reply(7, &first);
        pings.handle_answer(start + Duration::from_millis(5), &delivered, echo);
        pings.handle_answer(start + Duration::from_millis(6), &delivered, echo);
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
        let mut pings = RunningPings::new(0);
        let (_, first, mut events) =
            pings.start_ping(Time::ZERO, TEST_CIRCLE, &ping_request(1)).expect("a ping");
        for source in [7, 8, 7] {
            let (delivered, echo) = echo_reply(source, &first);
            pings.handle_answer(Time::from_secs(1), &delivered, echo);
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
        let mut pings = RunningPings::new(0);
        let (_, _, events) = pings.start_ping(Time::ZERO, TEST_CIRCLE, &ping_request(9)).expect("a ping");
        drop(events);
        pings.handle_timeout(Time::from_secs(1));
        assert_eq!(pings.poll_timeout(), None);
    }
}
