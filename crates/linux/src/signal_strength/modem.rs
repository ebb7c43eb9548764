//! Reads the signals of cellular modems from ModemManager over D-Bus.
//!
//! ModemManager returns all data of all modems in one answer (`GetManagedObjects` of
//! `org.freedesktop.DBus.ObjectManager`). This module requests the data every [`REQUEST_INTERVAL`]. If a
//! modem does not measure its signal, the module orders the measurement (`Modem.Signal.Setup`). The modem of
//! an uplink is the modem with a port of the uplink's name. If the modem's connection has its own
//! (multiplexed) interface, the modem is the one with a bearer on this interface.
//!
//! The signal is the usual measure of the radio in use: RSRP for LTE and 5G, RSCP for UMTS, otherwise RSSI.
//! With LTE and 5G at once, carnet uses LTE, because it is the anchor. If a modem reports none of these
//! values, carnet converts `SignalQuality` in percent back to ModemManager's RSSI: -113 dBm for 0, -51 dBm
//! for 100.
//!
//! `Modem3gpp.RegistrationState` shows whether the modem roams. (The module does not read the states of a
//! CDMA modem.)
//!
//! ModemManager is optional. carnet does not start it, and looks for it again every [`RECONNECT_INTERVAL`].

use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::dbus::{CallArgument, CallFailure, DbusConnection, DbusValue, MethodCall};
use super::{PLAUSIBLE_DBM, SignalReport};

/// Interval of carnet's requests, and of the measurements that it orders from a modem.
const REQUEST_INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which carnet tries to reach a missing ModemManager.
const RECONNECT_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum time that an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

const MODEM_MANAGER_SERVICE: &str = "org.freedesktop.ModemManager1";
const MODEM_MANAGER_PATH: &str = "/org/freedesktop/ModemManager1";
const MODEM_INTERFACE: &str = "org.freedesktop.ModemManager1.Modem";
const SIGNAL_INTERFACE: &str = "org.freedesktop.ModemManager1.Modem.Signal";
const THREE_GPP_INTERFACE: &str = "org.freedesktop.ModemManager1.Modem.Modem3gpp";
const BEARER_INTERFACE: &str = "org.freedesktop.ModemManager1.Bearer";

/// Type of a port that is a network interface, `MM_MODEM_PORT_TYPE_NET`.
const MODEM_PORT_TYPE_NET: f64 = 2.0;

/// Radio technologies and the names of their measures, in order: carnet uses the first one that a modem
/// reports.
const RADIO_MEASURES: [(&str, &str); 6] = [
    ("Lte", "rsrp"),
    ("Nr5g", "rsrp"),
    ("Umts", "rscp"),
    ("Gsm", "rssi"),
    ("Cdma", "rssi"),
    ("Evdo", "rssi"),
];

/// Task that polls ModemManager. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct ModemSignals {
    report_receiver: Option<mpsc::Receiver<SignalReport>>,
    polling_task: Option<JoinHandle<()>>,
}

impl Drop for ModemSignals {
    fn drop(&mut self) {
        if let Some(task) = &self.polling_task {
            task.abort();
        }
    }
}

impl ModemSignals {
    /// Starts the task for these interfaces, on the bus with this socket.
    pub(super) fn open(interfaces: Vec<String>, bus: PathBuf) -> ModemSignals {
        if interfaces.is_empty() {
            return ModemSignals { report_receiver: None, polling_task: None };
        }
        let (sender, news) = mpsc::channel(interfaces.len().max(8));
        let task = tokio::spawn(async move { poll_modem_manager(&interfaces, &bus, &sender).await });
        ModemSignals { report_receiver: Some(news), polling_task: Some(task) }
    }

    /// Creates a reader of signals that arrive in this channel.
    #[cfg(test)]
    pub(super) fn from_receiver(news: mpsc::Receiver<SignalReport>) -> ModemSignals {
        ModemSignals { report_receiver: Some(news), polling_task: None }
    }

    /// Moves the signals that have arrived to `found`.
    pub(super) fn poll_reports(&mut self, cx: &mut Context<'_>, found: &mut Vec<SignalReport>) {
        let Some(news) = &mut self.report_receiver else { return };
        while let Poll::Ready(Some(signal)) = news.poll_recv(cx) {
            found.push(signal);
        }
    }
}

/// Polls ModemManager about the interfaces, without end.
async fn poll_modem_manager(interfaces: &[String], path: &Path, news: &mpsc::Sender<SignalReport>) {
    let mut said = None;
    loop {
        let mut has_answered = false;
        let why = match poll_until_error(interfaces, path, news, &mut has_answered).await {
            CallFailure::Broken(error) => format!("{}: {error}", path.display()),
            CallFailure::Refused(name) => format!("ModemManager: {name}"),
        };
        if has_answered {
            said = None;
        }
        // Log each reason once, because a machine without modems often has no ModemManager.
        if said.as_ref() != Some(&why) {
            tracing::info!(
                "cannot read signals of cellular modems from ModemManager ({why}); carnet tries again \
                 every 30 s"
            );
            said = Some(why);
        }
        sleep(RECONNECT_INTERVAL).await;
    }
}

/// Polls ModemManager about the interfaces until a request fails.
async fn poll_until_error(
    interfaces: &[String],
    path: &Path,
    news: &mpsc::Sender<SignalReport>,
    has_answered: &mut bool,
) -> CallFailure {
    let late = || CallFailure::Broken(std::io::ErrorKind::TimedOut.into());
    let mut bus = match timeout(ANSWER_TIMEOUT, DbusConnection::connect_to_bus(path)).await {
        Ok(Ok(bus)) => bus,
        Ok(Err(failure)) => return failure,
        Err(_) => return late(),
    };
    // D-Bus paths of modems that refuse to measure their signal.
    let mut unwilling = Vec::new();
    loop {
        match timeout(ANSWER_TIMEOUT, read_signals(&mut bus, interfaces, &mut unwilling)).await {
            Ok(Ok(found)) => {
                for signal in found {
                    // If the channel is full, drop this signal: the next measurement replaces it.
                    let _ = news.try_send(signal);
                }
            }
            Ok(Err(failure)) => return failure,
            Err(_) => return late(),
        }
        *has_answered = true;
        sleep(REQUEST_INTERVAL).await;
    }
}

/// Reads the present signals of these interfaces.
async fn read_signals(
    bus: &mut DbusConnection,
    interfaces: &[String],
    unwilling: &mut Vec<String>,
) -> Result<Vec<SignalReport>, CallFailure> {
    let managed = bus
        .call_method(&MethodCall {
            destination: MODEM_MANAGER_SERVICE,
            path: MODEM_MANAGER_PATH,
            interface: "org.freedesktop.DBus.ObjectManager",
            method_name: "GetManagedObjects",
            arguments: &[],
        })
        .await?;
    let mut found = Vec::new();
    let all = managed.first().map(parse_modems).unwrap_or_default();
    remove_gone_modems(unwilling, &all);
    for modem in all {
        let mut names: Vec<String> = interfaces.iter().filter(|i| modem.ports.contains(i)).cloned().collect();
        if names.is_empty() {
            for bearer in &modem.bearer_paths {
                let arguments = [CallArgument::Text(BEARER_INTERFACE), CallArgument::Text("Interface")];
                let get = MethodCall {
                    destination: MODEM_MANAGER_SERVICE,
                    path: bearer,
                    interface: "org.freedesktop.DBus.Properties",
                    method_name: "Get",
                    arguments: &arguments,
                };
                match bus.call_method(&get).await {
                    Ok(values) => {
                        let name = values.first().and_then(DbusValue::as_text);
                        names.extend(interfaces.iter().filter(|i| Some(i.as_str()) == name).cloned());
                    }
                    // ModemManager refuses requests about a modem that has vanished: ignore the error.
                    Err(CallFailure::Refused(_)) => {}
                    Err(broken) => return Err(broken),
                }
            }
        }
        if names.is_empty() {
            continue;
        }
        if modem.needs_signal_setup && !unwilling.contains(&modem.path) {
            let rate = [CallArgument::Unsigned(REQUEST_INTERVAL.as_secs() as u32)];
            let setup = MethodCall {
                destination: MODEM_MANAGER_SERVICE,
                path: &modem.path,
                interface: SIGNAL_INTERFACE,
                method_name: "Setup",
                arguments: &rate,
            };
            match bus.call_method(&setup).await {
                Ok(_) => {}
                Err(CallFailure::Refused(name)) => {
                    tracing::info!("the modem of {} does not measure its signal: {name}", names.join(", "));
                    unwilling.push(modem.path.clone());
                }
                Err(broken) => return Err(broken),
            }
        }
        for interface in names {
            found.extend(
                modem.signal_dbm.map(|dbm| SignalReport::Strength { interface: interface.clone(), dbm }),
            );
            found.push(SignalReport::Roaming { interface, roaming: modem.is_roaming });
        }
    }
    Ok(found)
}

/// Removes the records of vanished modems. A modem that is plugged in again has another path, so its old
/// record would never be used.
fn remove_gone_modems(unwilling: &mut Vec<String>, modems: &[Modem]) {
    unwilling.retain(|path| modems.iter().any(|modem| modem.path == *path));
}

/// Data about a modem from ModemManager's answer.
#[derive(Debug, PartialEq)]
struct Modem {
    path: String,
    /// Network interfaces of the modem.
    ports: Vec<String>,
    /// D-Bus paths of the modem's connections (bearers).
    bearer_paths: Vec<String>,
    /// Whether the modem can measure its signal, but no program has ordered it to.
    needs_signal_setup: bool,
    signal_dbm: Option<i32>,
    /// Whether the modem is registered in a network of another operator; `None` if it is not registered.
    is_roaming: Option<bool>,
}

/// Returns the modems in an answer to `GetManagedObjects`, a dictionary of paths, interfaces and properties.
fn parse_modems(managed: &DbusValue) -> Vec<Modem> {
    let modem = |(path, interfaces): (&str, &DbusValue)| {
        let modem = interfaces.get(MODEM_INTERFACE)?;
        let signal = interfaces.get(SIGNAL_INTERFACE);
        let ports = modem.get("Ports").into_iter().flat_map(DbusValue::as_list).filter_map(|port| match port
            .as_list()
        {
            [name, kind] if kind.as_number() == Some(MODEM_PORT_TYPE_NET) => {
                name.as_text().map(str::to_owned)
            }
            _ => None,
        });
        let bearers = modem.get("Bearers").into_iter().flat_map(DbusValue::as_list);
        let rate = signal.and_then(|signal| signal.get("Rate")?.as_number());
        Some(Modem {
            path: path.to_owned(),
            ports: ports.collect(),
            bearer_paths: bearers.filter_map(|path| path.as_text().map(str::to_owned)).collect(),
            needs_signal_setup: rate == Some(0.0),
            signal_dbm: signal.and_then(measured_dbm).or_else(|| estimated_dbm(modem.get("SignalQuality")?)),
            is_roaming: interfaces
                .get(THREE_GPP_INTERFACE)
                .and_then(|it| is_roaming_state(it.get("RegistrationState")?.as_number()?)),
        })
    };
    managed.dictionary_entries().filter_map(modem).collect()
}

/// Returns whether a `MMModem3gppRegistrationState` means a network of another operator. `None` if the modem
/// is not registered.
fn is_roaming_state(state: f64) -> Option<bool> {
    // Numbers of the states HOME, HOME_SMS_ONLY and HOME_CSFB_NOT_PREFERRED.
    const HOME_STATES: [f64; 3] = [1.0, 6.0, 9.0];
    // Numbers of the states ROAMING, ROAMING_SMS_ONLY and ROAMING_CSFB_NOT_PREFERRED.
    const ROAMING_STATES: [f64; 3] = [5.0, 7.0, 10.0];
    if ROAMING_STATES.contains(&state) { Some(true) } else { HOME_STATES.contains(&state).then_some(false) }
}

/// Returns the measured signal of the first radio technology that has a signal, in dBm; `None` if none has a
/// signal. For a technology that is not in use, ModemManager omits the measure or reports the lowest possible
/// number.
fn measured_dbm(signal: &DbusValue) -> Option<i32> {
    RADIO_MEASURES
        .iter()
        .find_map(|(radio, measure)| plausible_dbm(signal.get(radio)?.get(measure)?.as_number()?))
}

/// Returns the RSSI for a quality in percent. Returns `None` for zero, which is also the value of a modem
/// that is not registered.
fn estimated_dbm(quality: &DbusValue) -> Option<i32> {
    let percent = quality.as_list().first()?.as_number().filter(|percent| (1.0..=100.0).contains(percent))?;
    plausible_dbm(-113.0 + percent * 62.0 / 100.0)
}

fn plausible_dbm(dbm: f64) -> Option<i32> {
    let number = dbm.is_finite().then(|| dbm.round() as i32);
    number.filter(|dbm| PLAUSIBLE_DBM.contains(dbm))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dictionary_value(entries: &[(&str, DbusValue)]) -> DbusValue {
        let entry = |(key, value): &(&str, DbusValue)| {
            DbusValue::List(vec![DbusValue::Text((*key).into()), value.clone()])
        };
        DbusValue::List(entries.iter().map(entry).collect())
    }

    fn radio_measurement(measure: &str, dbm: f64) -> DbusValue {
        dictionary_value(&[("snr", DbusValue::Double(7.0)), (measure, DbusValue::Double(dbm))])
    }

    #[test]
    fn modem_signal_is_the_one_of_the_used_radio_technology() {
        let none = DbusValue::List(Vec::new());
        let unknown = radio_measurement("rsrp", -f64::MAX);
        for (radios, dbm) in [
            (vec![("Gsm", radio_measurement("rssi", -81.4)), ("Lte", none.clone())], Some(-81)),
            (
                vec![("Nr5g", radio_measurement("rsrp", -88.0)), ("Lte", radio_measurement("rsrp", -97.5))],
                Some(-98),
            ),
            (vec![("Nr5g", radio_measurement("rsrp", -88.0)), ("Lte", unknown.clone())], Some(-88)),
            (
                vec![("Umts", radio_measurement("rscp", -70.0)), ("Gsm", radio_measurement("rssi", -60.0))],
                Some(-70),
            ),
            (vec![("Lte", unknown), ("Umts", radio_measurement("rscp", f64::NAN))], None),
            (vec![("Lte", DbusValue::Text("strong".into()))], None),
        ] {
            assert_eq!(measured_dbm(&dictionary_value(&radios)), dbm, "{radios:?}");
        }
    }

    #[test]
    fn signal_in_per_cent_is_used_last() {
        let quality = |percent| DbusValue::List(vec![DbusValue::Integer(percent), DbusValue::Boolean(true)]);
        for (percent, dbm) in [(1, Some(-112)), (50, Some(-82)), (100, Some(-51)), (0, None), (101, None)] {
            assert_eq!(estimated_dbm(&quality(percent)), dbm, "{percent} %");
        }
        assert_eq!(estimated_dbm(&DbusValue::Integer(5)), None);
    }

    #[test]
    fn registration_states_tell_home_from_roaming() {
        let expected = [
            (0, None),
            (1, Some(false)),
            (2, None),
            (3, None),
            (4, None),
            (5, Some(true)),
            (6, Some(false)),
            (7, Some(true)),
            (8, None),
            (9, Some(false)),
            (10, Some(true)),
            (11, None),
        ];
        for (state, expected) in expected {
            assert_eq!(is_roaming_state(f64::from(state)), expected, "state {state}");
        }
    }

    #[test]
    fn refusals_of_vanished_modems_are_forgotten() {
        let modem = |path: String| Modem {
            path,
            ports: Vec::new(),
            bearer_paths: Vec::new(),
            needs_signal_setup: true,
            signal_dbm: None,
            is_roaming: None,
        };
        let mut unwilling = Vec::new();
        for number in 0..1000 {
            let path = format!("/org/freedesktop/ModemManager1/Modem/{number}");
            unwilling.push(path.clone());
            remove_gone_modems(&mut unwilling, &[modem(path.clone())]);
            assert_eq!(unwilling, [path]);
        }
        remove_gone_modems(&mut unwilling, &[]);
        assert!(unwilling.is_empty());
    }

    #[test]
    fn modems_are_found_in_modem_manager_answer() {
        let port =
            |name: &str, kind| DbusValue::List(vec![DbusValue::Text(name.into()), DbusValue::Integer(kind)]);
        let text = |text: &str| DbusValue::Text(text.into());
        let modem = dictionary_value(&[
            ("Ports", DbusValue::List(vec![port("ttyUSB0", 3), port("wwan0", 2), port("cdc-wdm0", 6)])),
            ("Bearers", DbusValue::List(vec![text("/bearer/0")])),
            ("SignalQuality", DbusValue::List(vec![DbusValue::Integer(50), DbusValue::Boolean(false)])),
        ]);
        let managed = dictionary_value(&[
            (
                "/modem/0",
                dictionary_value(&[
                    (MODEM_INTERFACE, modem),
                    (SIGNAL_INTERFACE, dictionary_value(&[("Rate", DbusValue::Integer(0))])),
                    (THREE_GPP_INTERFACE, dictionary_value(&[("RegistrationState", DbusValue::Integer(5))])),
                ]),
            ),
            (
                "/sim/0",
                dictionary_value(&[("org.freedesktop.ModemManager1.Sim", DbusValue::List(Vec::new()))]),
            ),
        ]);
        let expected = Modem {
            path: "/modem/0".into(),
            ports: vec!["wwan0".into()],
            bearer_paths: vec!["/bearer/0".into()],
            needs_signal_setup: true,
            signal_dbm: Some(-82),
            is_roaming: Some(true),
        };
        assert_eq!(parse_modems(&managed), [expected]);
        assert_eq!(parse_modems(&DbusValue::Text("rubbish".into())), []);
    }
}
