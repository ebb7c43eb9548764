//! The fast path of the GeoNetworking router: when a station has one, and its messages.

use carnet_base::Time;
use carnet_geonet::acceleration as routed;

use super::Geonet;
use crate::geonetworking::acceleration::{Accelerate, FastPathReport, General, Onward, SequenceNumbers, Way};

impl Geonet {
    /// Sets the source from which the router and the fast path draw sequence numbers.
    pub fn share_sequence_numbers(&mut self, numbers: Box<dyn SequenceNumbers>) {
        self.router.share_sequence_numbers(numbers);
    }

    /// Starts or ends the use of a fast path.
    pub fn handle_fast_path(&mut self, now: Time, is: bool) {
        // A fast path cannot hold or mark the host's packets, sign packets, or wait for a congestion gate. So
        // a station with one of these functions has no fast path.
        if is
            && self.secured.is_none()
            && self.congestion.is_none()
            && self.patience.is_none()
            && !self.ipv6.as_ref().is_some_and(|ipv6| ipv6.marks())
        {
            let hop_limit = self.ipv6.as_ref().and_then(|ipv6| ipv6.hop_limit());
            self.router.accelerate(hop_limit);
        } else {
            self.router.decelerate();
        }
        self.collect(now);
    }

    /// Handles a report of the fast path about its packets.
    pub fn handle_report(&mut self, now: Time, report: &FastPathReport) {
        if let Some(ipv6) = &mut self.ipv6 {
            ipv6.count_accelerated(report.sent, report.delivered);
        }
        self.router.handle_report(now, report);
        self.collect(now);
    }

    /// Completes the router's message to the fast path with values of the adaptation sublayer.
    pub(super) fn accelerate(&self, told: routed::FastPathUpdate) -> Accelerate {
        match told {
            routed::FastPathUpdate::Position(vector) => Accelerate::General(General {
                vector: vector.to_octets().to_vec(),
                delivers: self.in_order.is_none()
                    && self.patience.is_none()
                    && self.ipv6.as_ref().is_some_and(|ipv6| ipv6.links().count() == 1),
                mtu: self.ipv6.as_ref().map_or(0, |ipv6| ipv6.mtu()),
                duplicate_packet_list_length: self.router.mib().duplicate_packet_list_length as u32,
            }),
            routed::FastPathUpdate::Way(way) => Accelerate::Way(Way {
                destination: way.destination,
                next_hop: way.next_hop,
                headers: way.headers.to_vec(),
                until: way.valid_until,
            }),
            routed::FastPathUpdate::NoOwnPacketPath(destination) => Accelerate::NoWay(destination),
            routed::FastPathUpdate::Onward(onward) => Accelerate::Onward(Onward {
                destination: onward.destination,
                next_hop: onward.next_hop,
                place: onward.required_position,
                known: onward.destination_vector.map(|known| known.to_octets().to_vec()).unwrap_or_default(),
                until: onward.valid_until,
            }),
            routed::FastPathUpdate::NoForwardingPath(destination) => Accelerate::NoOnward(destination),
            routed::FastPathUpdate::Source(station, sequences) => Accelerate::Source { station, sequences },
            routed::FastPathUpdate::NoSource(station) => Accelerate::NoSource(station),
        }
    }
}
