//! Reads the signals of Wi-Fi interfaces from the kernel (nl80211).
//!
//! An interface is associated with stations; the interface of a client only with its access point. For each
//! station the kernel has the signal of the last frame and a moving average (`NL80211_STA_INFO_SIGNAL_AVG`,
//! in dBm). This module requests both at intervals, and at once when the driver reports a change of the
//! connection (group `mlme`).

use std::task::Context;

use super::PLAUSIBLE_DBM;
use crate::generic_netlink::{
    GenericNetlinkFamily, GenericNetlinkMessage, MulticastEvents, RequestSocket, encode_attribute,
    find_attribute,
};

/// Command to read the stations of an interface, of `enum nl80211_commands`.
const COMMAND_GET_STATION: u8 = 17;
const COMMAND_NEW_STATION: u8 = 19;
const COMMAND_CONNECT: u8 = 46;
const COMMAND_ROAM: u8 = 47;
const COMMAND_NOTIFY_CQM: u8 = 64;
/// Attributes of `enum nl80211_attrs`.
const ATTRIBUTE_IFINDEX: u16 = 3;
const ATTRIBUTE_STATION_INFO: u16 = 21;
/// Attributes of `enum nl80211_sta_info`.
const STATION_INFO_SIGNAL: u16 = 7;
const STATION_INFO_SIGNAL_AVERAGE: u16 = 13;
/// Number of readings of all interfaces that carnet skips after a failure. Failures are an interface without
/// Wi-Fi, and a missing netlink family.
const READINGS_TO_SKIP_AFTER_FAILURE: u32 = 60;

/// An interface that may be a Wi-Fi interface.
#[derive(Debug)]
struct WifiInterface {
    interface: String,
    /// Number of readings that carnet still skips for this interface.
    readings_to_skip: u32,
}

/// Reads the signal strengths of Wi-Fi interfaces by nl80211.
#[derive(Debug)]
pub(super) struct WifiSignals {
    wifi_interfaces: Vec<WifiInterface>,
    request_socket: Option<RequestSocket>,
    nl80211_family: Option<GenericNetlinkFamily>,
    events: MulticastEvents,
    /// Number of readings after which carnet tries to find the netlink family again.
    readings_to_skip: u32,
}

impl WifiSignals {
    /// Watches these interfaces, as far as they are Wi-Fi interfaces.
    pub(super) fn open(interfaces: Vec<String>) -> WifiSignals {
        let stations =
            interfaces.into_iter().map(|interface| WifiInterface { interface, readings_to_skip: 0 });
        let stations: Vec<WifiInterface> = stations.collect();
        let questions = if stations.is_empty() { None } else { RequestSocket::open().ok() };
        WifiSignals {
            wifi_interfaces: stations,
            request_socket: questions,
            nl80211_family: None,
            events: MulticastEvents::default(),
            readings_to_skip: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.wifi_interfaces.is_empty()
    }

    /// Returns whether an interface may have connected to another access point since the last call.
    pub(super) fn poll_changes(&mut self, cx: &mut Context<'_>) -> bool {
        self.events.poll_matching(cx, may_change_signal)
    }

    /// Reads the signals of all interfaces. Appends to `found` the name and the signal of each interface that
    /// has one.
    pub(super) fn read_signals(&mut self, found: &mut Vec<(String, i32)>) {
        let Some(questions) = &mut self.request_socket else { return };
        if self.nl80211_family.is_none() {
            // The kernel may get the nl80211 family later, when a radio is plugged in. So try again at
            // intervals.
            if self.readings_to_skip > 0 {
                self.readings_to_skip -= 1;
                return;
            }
            self.readings_to_skip = READINGS_TO_SKIP_AFTER_FAILURE;
            self.nl80211_family = questions.find_family("nl80211").ok();
            let group = self.nl80211_family.as_ref().and_then(|family| family.multicast_groups.get("mlme"));
            self.events = group.map(|group| MulticastEvents::join_group(*group)).unwrap_or_default();
        }
        let Some(family) = &self.nl80211_family else { return };
        for station in &mut self.wifi_interfaces {
            if station.readings_to_skip > 0 {
                station.readings_to_skip -= 1;
                continue;
            }
            let index = nix::net::if_::if_nametoindex(station.interface.as_str());
            // Skip a missing interface without a pause, because it may appear later and the check costs
            // little.
            let Ok(index) = index else { continue };
            let about = encode_attribute(ATTRIBUTE_IFINDEX, &index.to_ne_bytes());
            match questions.dump_objects(family.family_id, COMMAND_GET_STATION, &about) {
                Ok(stations) => {
                    found.extend(strongest_signal(&stations).map(|dbm| (station.interface.clone(), dbm)))
                }
                Err(_) => station.readings_to_skip = READINGS_TO_SKIP_AFTER_FAILURE,
            }
        }
    }
}

fn may_change_signal(events: &[GenericNetlinkMessage]) -> bool {
    events.iter().any(|event| matches!(event.command, COMMAND_CONNECT | COMMAND_ROAM | COMMAND_NOTIFY_CQM))
}

/// Returns the signal in dBm of the strongest station in a dump; `None` if no station has a signal. An
/// interface of a client has only one station.
fn strongest_signal(stations: &[GenericNetlinkMessage]) -> Option<i32> {
    stations
        .iter()
        .filter(|s| s.command == COMMAND_NEW_STATION)
        .filter_map(|s| mean_signal(&s.attributes))
        .max()
}

/// Returns the mean signal of a station in dBm, or the signal of its last frame if the kernel has no mean.
/// `None` if the kernel knows neither.
fn mean_signal(attributes: &[u8]) -> Option<i32> {
    let info = find_attribute(attributes, ATTRIBUTE_STATION_INFO)?;
    let octet = find_attribute(info, STATION_INFO_SIGNAL_AVERAGE)
        .or_else(|| find_attribute(info, STATION_INFO_SIGNAL))?
        .first()?;
    // The attribute is NLA_U8, but its value is a signed number of dBm.
    let dbm = i32::from(*octet as i8);
    (PLAUSIBLE_DBM.contains(&dbm) && dbm != 0).then_some(dbm)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn station_message(info: &[(u16, i8)]) -> GenericNetlinkMessage {
        let info: Vec<u8> =
            info.iter().flat_map(|(kind, dbm)| encode_attribute(*kind, &[*dbm as u8])).collect();
        let mac = encode_attribute(6, &[2, 0, 0, 0, 0, 1]);
        let attributes = [
            encode_attribute(ATTRIBUTE_IFINDEX, &4_u32.to_ne_bytes()),
            mac,
            encode_attribute(ATTRIBUTE_STATION_INFO, &info),
        ]
        .concat();
        GenericNetlinkMessage { family: 28, command: COMMAND_NEW_STATION, attributes }
    }

    #[test]
    fn mean_wifi_signal_is_preferred_to_last_signal() {
        assert_eq!(
            strongest_signal(&[station_message(&[
                (STATION_INFO_SIGNAL, -70),
                (STATION_INFO_SIGNAL_AVERAGE, -61)
            ])]),
            Some(-61)
        );
        assert_eq!(strongest_signal(&[station_message(&[(STATION_INFO_SIGNAL, -70)])]), Some(-70));
        assert_eq!(
            strongest_signal(&[
                station_message(&[(STATION_INFO_SIGNAL, -70)]),
                station_message(&[(STATION_INFO_SIGNAL, -50)])
            ]),
            Some(-50)
        );
    }

    #[test]
    fn wifi_interface_without_station_has_no_signal() {
        assert_eq!(strongest_signal(&[]), None);
        assert_eq!(strongest_signal(&[station_message(&[])]), None);
        // A driver that does not know the signal reports 0.
        assert_eq!(strongest_signal(&[station_message(&[(STATION_INFO_SIGNAL, 0)])]), None);
        let mut other = station_message(&[(STATION_INFO_SIGNAL, -70)]);
        other.command = COMMAND_GET_STATION;
        assert_eq!(strongest_signal(&[other]), None);
        assert_eq!(mean_signal(&[8, 0, 21, 0, 5, 0, 7, 0]), None);
    }

    #[test]
    fn wifi_connection_events_are_noticed() {
        let event = |command| GenericNetlinkMessage { family: 28, command, attributes: Vec::new() };
        assert!(may_change_signal(&[event(33), event(COMMAND_NOTIFY_CQM)]));
        assert!(!may_change_signal(&[event(33)]));
    }
}
