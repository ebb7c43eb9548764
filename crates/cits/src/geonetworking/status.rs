//! The status of the GeoNetworking plane, and its counters with those of the wings that it carries.

use carnet_base::{DropReason, Time};
use carnet_geonet::dcc::DccDrop;
use carnet_geonet::geo_destinations::{Destination, UnknownCentre};
use carnet_geonet::ipv6_adaptation::Ipv6Drop;
use carnet_geonet::multicast::MulticastDrop;
use carnet_wire::geonet::GeoArea;

use super::plane::Geonet;
use crate::security::plane::Secured;

/// An area for GeoBroadcast or GeoAnycast packets that an operator has set at run time.
#[derive(Debug, Clone, Copy)]
pub struct GeoDestination<'a> {
    /// Name of the area.
    pub name: &'a str,
    /// Shape and centre of the area, or the station that it follows.
    pub destination: &'a Destination,
    /// Time at which the area expires; `None` if it never expires.
    pub expires: Option<Time>,
    /// Present position of the area, which may follow a station.
    pub area: Result<GeoArea, UnknownCentre>,
}

impl Geonet {
    /// Returns the areas that operators have set at run time.
    pub fn geo_destinations(&self, now: Time) -> impl Iterator<Item = GeoDestination<'_>> {
        self.destinations.iter().map(move |(name, destination, expires)| GeoDestination {
            name,
            destination,
            expires,
            area: self.destinations.area(now, name, &self.router).unwrap_or(Err(UnknownCentre::Own)),
        })
    }

    /// Appends all counters of the plane, each by its dotted name.
    pub fn add_counters(&self, counters: &mut Vec<(String, u64)>) {
        {
            let counted = self.router().counters();
            for (name, count) in [
                ("received", counted.received),
                ("forwarded", counted.forwarded),
                ("delivered", counted.delivered),
                ("sent", counted.sent),
                ("beacons", counted.beacons),
                ("from_the_future", counted.from_the_future),
                ("recoveries", counted.recoveries),
                ("unacknowledged", counted.unacknowledged),
                ("rerouted", counted.rerouted),
            ] {
                counters.push((format!("geonet.{name}"), count));
            }
            for reason in carnet_geonet::GeonetDrop::ALL {
                counters.push((format!("geonet.dropped.{}", reason.name()), counted.dropped(*reason)));
            }
        }
        if let Some(security) = self.secured().map(Secured::entity) {
            let counted = security.counters();
            for (name, count) in [
                ("received", counted.received),
                ("verified", counted.verified),
                ("copies", counted.copies),
                ("plain", counted.plain),
                ("verifications", counted.verifications),
                ("signed", counted.signed),
                ("with_certificate", counted.with_certificate),
                ("forwarded", counted.forwarded),
                ("requests", counted.requests),
                ("pseudonyms", counted.pseudonyms),
            ] {
                counters.push((format!("security.{name}"), count));
            }
            for reason in carnet_security::SecurityDrop::ALL {
                counters.push((format!("security.dropped.{}", reason.name()), counted.dropped(*reason)));
            }
        }
        if let Some(gate) = self.gate() {
            let counted = gate.counters();
            for (profile, count) in counted.sent.iter().enumerate() {
                counters.push((format!("geonet.dcc.sent.dp{profile}"), *count));
            }
            counters.push(("geonet.dcc.held".into(), counted.held_packets));
            counters.push(("geonet.dcc.airtime".into(), counted.on_air_us));
            counters.push(("geonet.dcc.stale".into(), counted.stale));
            for reason in DccDrop::ALL {
                let name = format!("geonet.dcc.dropped.{}", reason.name());
                counters.push((name, counted.dropped(*reason)));
            }
        }
        if let Some(facilities) = self.facilities() {
            let counted = facilities.counters();
            for (name, count) in [
                ("cam.sent", counted.sent[0]),
                ("cam.received", counted.received[0]),
                ("denm.sent", counted.sent[1]),
                ("denm.received", counted.received[1]),
                ("saem.sent", counted.sent[2]),
                ("saem.received", counted.received[2]),
                ("unsent", counted.unsent),
            ] {
                counters.push((format!("facilities.{name}"), count));
            }
            for reason in carnet_its::ItsDrop::ALL {
                counters.push((format!("facilities.dropped.{}", reason.name()), counted.dropped(*reason)));
            }
        }
        if let Some(ipv6) = self.ipv6() {
            let counted = ipv6.counters();
            for (name, count) in [
                ("sent", counted.sent),
                ("received", counted.received),
                ("settled", counted.answered_locally),
                ("marked", counted.marked),
                ("fragments.cut", counted.cut),
                ("fragments.joined", counted.joined),
                ("fragments.incomplete", counted.incomplete),
            ] {
                counters.push((format!("geonet.ipv6.{name}"), count));
            }
            let (held, late) = self.reordered().unwrap_or_default();
            counters.extend([("geonet.ipv6.held".into(), held), ("geonet.ipv6.late".into(), late)]);
            let (held, spared) = self.acknowledgements().unwrap_or_default();
            counters.extend([
                ("geonet.ipv6.acknowledgements.held".into(), held),
                ("geonet.ipv6.acknowledgements.spared".into(), spared),
            ]);
            if let Some(multicast) = self.multicast() {
                let counted = multicast.counters();
                for (name, count) in [
                    ("upstream", counted.upstream),
                    ("downstream", counted.downstream),
                    ("queries", counted.queries),
                    ("reports", counted.reports),
                ] {
                    counters.push((format!("geonet.multicast.{name}"), count));
                }
                for reason in MulticastDrop::ALL {
                    let name = format!("geonet.multicast.dropped.{}", reason.name());
                    counters.push((name, counted.dropped(*reason)));
                }
            }
            for reason in Ipv6Drop::ALL {
                let name = format!("geonet.ipv6.dropped.{}", reason.name());
                counters.push((name, counted.dropped(*reason)));
            }
        }
    }
}
