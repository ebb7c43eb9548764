//! A simulated radio channel: routers at positions, and frames that reach every router in range.

use std::time::Duration;

use carnet_base::{Rng, Time};
use carnet_geonet::geodesy::Position;
use carnet_geonet::{
    BROADCAST, Delivery, GeonetDrop, MacAddress, Mib, Output, ReceivedFrame, Request, Router, Transmission,
    Transport,
};
use carnet_virtual::Timeline;
use carnet_wire::geonet::{
    CommonNextHeader, GnAddress, HeaderType, LongPositionVector, StationType, Timestamp,
};

use crate::simulated_stations::position_at;

/// Time on air of a frame.
const FRAME_AIR_TIME: Duration = Duration::from_micros(300);

#[derive(Debug)]
struct FrameUnderway {
    from: usize,
    receiving_router: usize,
    destination: MacAddress,
    frame: Vec<u8>,
    /// Whether the receiver did not get the frame, so that the link layer returns it to the sender as
    /// unacknowledged.
    is_returned: bool,
}

pub struct RadioChannel {
    pub now: Time,
    pub radio_range: f64,
    /// Standard deviation of the shadowing in dB. Each pair of stations gets a new value every second.
    pub shadowing_deviation_db: f64,
    /// Whether the link reports unicast frames without acknowledgement.
    pub reports_unacknowledged: bool,
    seed: u64,
    pub routers: Vec<Router>,
    /// Positions of the routers, metres east and north.
    pub router_positions: Vec<(f64, f64)>,
    frames_underway: Timeline<FrameUnderway>,
    /// Delivered payloads, each with its receiver.
    pub delivered_payloads: Vec<(usize, Delivery)>,
    /// Transmitted frames: time, sender, receiver, octets.
    pub transmitted_frames: Vec<(Time, usize, MacAddress, Vec<u8>)>,
}

pub fn mac_of_node(node: usize) -> MacAddress {
    let [a, b] = (node as u16).to_be_bytes();
    [0x02, 0, 0, 1, a, b]
}

pub fn address(node: usize) -> GnAddress {
    GnAddress::new(false, StationType::PassengerCar, mac_of_node(node))
}

impl RadioChannel {
    pub fn new(mib: &Mib, range: f64, places: &[(f64, f64)], seed: u64) -> RadioChannel {
        let mut rng = Rng::new(seed);
        let routers = (0..places.len())
            .map(|node| Router::new(mib.clone(), address(node), Rng::new(rng.random_u64())))
            .collect();
        let mut air = RadioChannel {
            now: Time::from_secs(1000),
            radio_range: range,
            shadowing_deviation_db: 0.0,
            reports_unacknowledged: false,
            seed,
            routers,
            router_positions: places.to_vec(),
            frames_underway: Timeline::default(),
            delivered_payloads: Vec::new(),
            transmitted_frames: Vec::new(),
        };
        air.update_all_positions();
        air
    }

    pub fn position(&self, node: usize) -> Position {
        position_at(self.router_positions[node].0, self.router_positions[node].1)
    }

    /// Gives every router a new position fix.
    pub fn update_all_positions(&mut self) {
        let timestamp = Timestamp((self.now.as_nanos() / 1_000_000) as u32);
        for node in 0..self.routers.len() {
            let Position { latitude, longitude } = self.position(node);
            let pv = LongPositionVector {
                timestamp,
                latitude,
                longitude,
                accurate: true,
                ..LongPositionVector::default()
            };
            self.routers[node].handle_position(self.now, pv).expect("on earth");
            self.handle_outputs(node);
        }
    }

    fn is_in_range(&self, a: usize, b: usize) -> bool {
        let (a, b) = (self.router_positions[a], self.router_positions[b]);
        (a.0 - b.0).hypot(a.1 - b.1) <= self.radio_range
    }

    /// Returns whether `to` receives frames of `from`, with the present shadowing and the path loss of
    /// `scenarios/highway-100` (exponent 2.5).
    fn does_receive(&self, from: usize, to: usize) -> bool {
        if self.shadowing_deviation_db == 0.0 {
            return self.is_in_range(from, to);
        }
        let (a, b) = (self.router_positions[from], self.router_positions[to]);
        let distance = (a.0 - b.0).hypot(a.1 - b.1).max(1.0);
        let second = self.now.as_nanos() / 1_000_000_000;
        let pair = (from.min(to) * self.router_positions.len() + from.max(to)) as u64;
        let mut rng = Rng::new(self.seed ^ second << 32 ^ pair);
        // A sum of twelve uniform numbers approximates the normal distribution.
        let normal = (0..12).map(|_| rng.number_below(1_000_000) as f64 / 1e6).sum::<f64>() - 6.0;
        25.0 * (self.radio_range / distance).log10() + self.shadowing_deviation_db * normal >= 0.0
    }

    fn schedule_frame(&mut self, from: usize, to: usize, returned: bool, transmission: &Transmission) {
        // The link layer tries a lost frame seven times.
        let at = self.now + FRAME_AIR_TIME * if returned { 7 } else { 1 };
        let (destination, frame) = (transmission.destination, transmission.frame.clone());
        self.frames_underway.schedule_at(
            at,
            FrameUnderway { from, receiving_router: to, destination, frame, is_returned: returned },
        );
    }

    fn handle_outputs(&mut self, node: usize) {
        while let Some(output) = self.routers[node].poll_output() {
            match output {
                Output::Transmit(transmission) => {
                    let mut heard = false;
                    for to in 0..self.routers.len() {
                        let meant = transmission.destination == BROADCAST
                            || transmission.destination == mac_of_node(to);
                        if to != node && meant && self.does_receive(node, to) {
                            heard = true;
                            self.schedule_frame(node, to, false, &transmission);
                        }
                    }
                    if self.reports_unacknowledged && !heard && transmission.destination != BROADCAST {
                        self.schedule_frame(node, node, true, &transmission);
                    }
                    self.transmitted_frames.push((
                        self.now,
                        node,
                        transmission.destination,
                        transmission.frame,
                    ));
                }
                Output::Deliver(delivery) => self.delivered_payloads.push((node, delivery)),
                Output::Accelerate(_) | Output::Event(_) => {}
            }
        }
    }

    pub fn request(&mut self, node: usize, request: Request<'_>) -> Result<(), GeonetDrop> {
        let result = self.routers[node].handle_request(self.now, request);
        self.handle_outputs(node);
        result
    }

    pub fn send_payload(&mut self, node: usize, transport: Transport, hops: u8, payload: &[u8]) {
        let request = Request::new(transport, CommonNextHeader::BtpB, payload);
        self.request(node, Request { maximum_hop_limit: Some(hops), ..request }).expect("accepted");
    }

    /// Advances the time by `span`.
    pub fn advance_time(&mut self, span: Duration) {
        let end = self.now + span;
        loop {
            let timer = (0..self.routers.len())
                .filter_map(|node| self.routers[node].poll_timeout().map(|due| (due, node)))
                .min();
            match (self.frames_underway.next_event_at(), timer) {
                (Some(at), timer) if at <= end && timer.is_none_or(|(due, _)| at <= due) => {
                    self.now = at;
                    let flight = self.frames_underway.pop_due_event(at).expect("a flight");
                    let (router, destination) =
                        (&mut self.routers[flight.receiving_router], flight.destination);
                    let _ = if flight.is_returned {
                        router.handle_unacknowledged(self.now, destination, &flight.frame)
                    } else {
                        let source = mac_of_node(flight.from);
                        router.handle_frame(
                            self.now,
                            ReceivedFrame { source, destination, packet: &flight.frame },
                        )
                    };
                    self.handle_outputs(flight.receiving_router);
                }
                (_, Some((due, node))) if due <= end => {
                    self.now = self.now.max(due);
                    self.routers[node].handle_timeout(self.now);
                    self.handle_outputs(node);
                }
                _ => break,
            }
        }
        self.now = end;
    }

    /// Runs until every router has sent a beacon and got a new position, then clears the recorded frames.
    pub fn advance_until_neighbours_known(&mut self) {
        self.advance_time(Duration::from_secs(4));
        self.update_all_positions();
        self.transmitted_frames.clear();
        self.delivered_payloads.clear();
    }

    /// Returns the drops of all routers: index of the router, reason, number of packets.
    pub fn all_drop_counts(&self) -> Vec<(usize, GeonetDrop, u64)> {
        let reasons = |node: usize| GeonetDrop::ALL.iter().map(move |&reason| (node, reason));
        (0..self.routers.len())
            .flat_map(reasons)
            .map(|(node, reason)| (node, reason, self.routers[node].counters().dropped(reason)))
            .filter(|(_, _, count)| *count > 0)
            .collect()
    }

    /// Returns the number of frames of a type sent so far.
    pub fn count_sent_frames(&self, wanted: impl Fn(HeaderType) -> bool) -> usize {
        self.transmitted_frames
            .iter()
            .filter(|(_, _, _, frame)| wanted(HeaderType::from_octet(frame[5])))
            .count()
    }

    /// Returns whether every node can reach every other node.
    pub fn is_connected(&self) -> bool {
        let mut seen = vec![false; self.router_positions.len()];
        let mut waiting = vec![0];
        seen[0] = true;
        while let Some(node) = waiting.pop() {
            for (other, seen) in seen.iter_mut().enumerate() {
                if !*seen && self.is_in_range(node, other) {
                    *seen = true;
                    waiting.push(other);
                }
            }
        }
        seen.into_iter().all(|seen| seen)
    }
}
