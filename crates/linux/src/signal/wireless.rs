//! Reads the signals of Wi-Fi interfaces from the kernel (nl80211).
//!
//! An interface is associated with stations; the interface of a client only with its access point. For each
//! station the kernel has the signal of the last frame and a moving average (`NL80211_STA_INFO_SIGNAL_AVG`,
//! in dBm). This module requests both at intervals, and at once when the driver reports a change of the
//! connection (group `mlme`).

use std::task::Context;

use super::PLAUSIBLE;
use crate::generic_netlink::{Events, Family, Message, RequestSocket, attribute, find_attribute};

/// Command to read the stations of an interface, of `enum nl80211_commands`.
const GET_STATION: u8 = 17;
const NEW_STATION: u8 = 19;
const CONNECT: u8 = 46;
const ROAM: u8 = 47;
const NOTIFY_CQM: u8 = 64;
/// Attributes of `enum nl80211_attrs`.
const IFINDEX: u16 = 3;
const STA_INFO: u16 = 21;
/// Attributes of `enum nl80211_sta_info`.
const SIGNAL: u16 = 7;
const SIGNAL_AVG: u16 = 13;
/// Number of readings of all interfaces until carnet tries again to read an interface without Wi-Fi, or to
/// find the netlink family.
const ROUNDS_BEFORE_RETRY: u32 = 60;

/// An interface that may be a Wi-Fi interface.
#[derive(Debug)]
struct Station {
    interface: String,
    /// Number of readings until carnet tries this interface again.
    pause: u32,
}

/// Reads the signal strengths of Wi-Fi interfaces by nl80211.
#[derive(Debug)]
pub(super) struct Wireless {
    stations: Vec<Station>,
    questions: Option<RequestSocket>,
    family: Option<Family>,
    events: Events,
    /// Number of readings until carnet tries to find the netlink family again.
    pause: u32,
}

impl Wireless {
    /// Watches these interfaces, as far as they are Wi-Fi interfaces.
    pub(super) fn open(interfaces: Vec<String>) -> Wireless {
        let stations = interfaces.into_iter().map(|interface| Station { interface, pause: 0 });
        let stations: Vec<Station> = stations.collect();
        let questions = if stations.is_empty() { None } else { RequestSocket::open().ok() };
        Wireless { stations, questions, family: None, events: Events::default(), pause: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stations.is_empty()
    }

    /// Returns whether an interface may have connected to another access point since the last call.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        self.events.poll(cx, concerns_signal)
    }

    /// Reads the signals of all interfaces. Appends to `found` the name and the signal of each interface that
    /// has one.
    pub(super) fn read_signals(&mut self, found: &mut Vec<(String, i32)>) {
        let Some(questions) = &mut self.questions else { return };
        if self.family.is_none() {
            // The kernel has no nl80211 family yet; it may get one when a radio is plugged in.
            if self.pause > 0 {
                self.pause -= 1;
                return;
            }
            self.pause = ROUNDS_BEFORE_RETRY;
            self.family = questions.family("nl80211").ok();
            let group = self.family.as_ref().and_then(|family| family.groups.get("mlme"));
            self.events = group.map(|group| Events::of(*group)).unwrap_or_default();
        }
        let Some(family) = &self.family else { return };
        for station in &mut self.stations {
            if station.pause > 0 {
                station.pause -= 1;
                continue;
            }
            let index = nix::net::if_::if_nametoindex(station.interface.as_str());
            // Skip a missing interface without a pause, because it may appear later and the check costs
            // little.
            let Ok(index) = index else { continue };
            let about = attribute(IFINDEX, &index.to_ne_bytes());
            match questions.dump(family.id, GET_STATION, &about) {
                Ok(stations) => {
                    found.extend(strongest(&stations).map(|dbm| (station.interface.clone(), dbm)))
                }
                Err(_) => station.pause = ROUNDS_BEFORE_RETRY,
            }
        }
    }
}

fn concerns_signal(events: &[Message]) -> bool {
    events.iter().any(|event| matches!(event.command, CONNECT | ROAM | NOTIFY_CQM))
}

/// Returns the signal in dBm of the strongest station in a dump; `None` if no station has a signal. An
/// interface of a client has only one station.
fn strongest(stations: &[Message]) -> Option<i32> {
    stations.iter().filter(|s| s.command == NEW_STATION).filter_map(|s| signal(&s.attributes)).max()
}

/// Returns the mean signal of a station in dBm, or the signal of its last frame if the kernel has no mean.
/// `None` if the kernel knows neither.
fn signal(attributes: &[u8]) -> Option<i32> {
    let info = find_attribute(attributes, STA_INFO)?;
    let octet = find_attribute(info, SIGNAL_AVG).or_else(|| find_attribute(info, SIGNAL))?.first()?;
    // The attribute is NLA_U8, but its value is a signed number of dBm.
    let dbm = i32::from(*octet as i8);
    (PLAUSIBLE.contains(&dbm) && dbm != 0).then_some(dbm)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station(info: &[(u16, i8)]) -> Message {
        let info: Vec<u8> = info.iter().flat_map(|(kind, dbm)| attribute(*kind, &[*dbm as u8])).collect();
        let mac = attribute(6, &[2, 0, 0, 0, 0, 1]);
        let attributes = [attribute(IFINDEX, &4_u32.to_ne_bytes()), mac, attribute(STA_INFO, &info)].concat();
        Message { family: 28, command: NEW_STATION, attributes }
    }

    #[test]
    fn mean_wifi_signal_is_preferred_to_last_signal() {
        assert_eq!(strongest(&[station(&[(SIGNAL, -70), (SIGNAL_AVG, -61)])]), Some(-61));
        assert_eq!(strongest(&[station(&[(SIGNAL, -70)])]), Some(-70));
        assert_eq!(strongest(&[station(&[(SIGNAL, -70)]), station(&[(SIGNAL, -50)])]), Some(-50));
    }

    #[test]
    fn wifi_interface_without_station_has_no_signal() {
        assert_eq!(strongest(&[]), None);
        assert_eq!(strongest(&[station(&[])]), None);
        // A driver that does not know the signal reports 0.
        assert_eq!(strongest(&[station(&[(SIGNAL, 0)])]), None);
        let mut other = station(&[(SIGNAL, -70)]);
        other.command = GET_STATION;
        assert_eq!(strongest(&[other]), None);
        assert_eq!(signal(&[8, 0, 21, 0, 5, 0, 7, 0]), None);
    }

    #[test]
    fn wifi_connection_events_are_noticed() {
        let event = |command| Message { family: 28, command, attributes: Vec::new() };
        assert!(concerns_signal(&[event(33), event(NOTIFY_CQM)]));
        assert!(!concerns_signal(&[event(33)]));
    }
}
