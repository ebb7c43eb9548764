//! Reads the signals of cellular modems from ModemManager over D-Bus.
//!
//! ModemManager returns all data of all modems in one answer (`GetManagedObjects` of
//! `org.freedesktop.DBus.ObjectManager`). This module requests the data every [`INTERVAL`]. It orders a modem
//! that does not measure its signal to do so (`Modem.Signal.Setup`). The modem of an uplink is the modem with
//! a port of the uplink's name. If the modem's connection has its own interface (a multiplexed one), the
//! modem is the one with a bearer on this interface.
//!
//! The signal is the usual measure of the radio in use: RSRP for LTE and 5G, RSCP for UMTS, otherwise RSSI.
//! With LTE and 5G at once, LTE counts, because it is the anchor. If a modem reports none of these values,
//! carnet converts `SignalQuality` in percent back to ModemManager's RSSI: -113 dBm for 0, -51 dBm for 100.
//!
//! `Modem3gpp.RegistrationState` shows whether the modem roams. (The module does not read the states of a
//! CDMA modem.)
//!
//! ModemManager is optional. carnet does not start it, and looks for it again every [`RETRY`].

use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::dbus::{Argument, Bus, Call, Failure, Value};
use super::{PLAUSIBLE, Signal};

/// Interval of carnet's requests, and of the measurements that it orders from a modem.
const INTERVAL: Duration = Duration::from_secs(2);
/// Interval at which carnet tries to reach a missing ModemManager.
const RETRY: Duration = Duration::from_secs(30);
/// Maximum time that an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

const SERVICE: &str = "org.freedesktop.ModemManager1";
const ROOT: &str = "/org/freedesktop/ModemManager1";
const MODEM: &str = "org.freedesktop.ModemManager1.Modem";
const SIGNAL: &str = "org.freedesktop.ModemManager1.Modem.Signal";
const THREE_GPP: &str = "org.freedesktop.ModemManager1.Modem.Modem3gpp";
const BEARER: &str = "org.freedesktop.ModemManager1.Bearer";

/// Type of a port that is a network interface, `MM_MODEM_PORT_TYPE_NET`.
const NET: f64 = 2.0;

/// Radio technologies and the names of their measures, in order: carnet uses the first one that a modem
/// reports.
const MEASURES: [(&str, &str); 6] = [
    ("Lte", "rsrp"),
    ("Nr5g", "rsrp"),
    ("Umts", "rscp"),
    ("Gsm", "rssi"),
    ("Cdma", "rssi"),
    ("Evdo", "rssi"),
];

/// Task that polls ModemManager. It ends when this value is dropped.
#[derive(Debug)]
pub(super) struct Modems {
    reports: Option<mpsc::Receiver<Signal>>,
    task: Option<JoinHandle<()>>,
}

impl Drop for Modems {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Modems {
    /// Starts the task for these interfaces, on the bus with this socket.
    pub(super) fn open(interfaces: Vec<String>, bus: PathBuf) -> Modems {
        if interfaces.is_empty() {
            return Modems { reports: None, task: None };
        }
        let (sender, news) = mpsc::channel(interfaces.len().max(8));
        let task = tokio::spawn(async move { poll_modem_manager(&interfaces, &bus, &sender).await });
        Modems { reports: Some(news), task: Some(task) }
    }

    /// Creates a reader of signals that arrive in this channel.
    #[cfg(test)]
    pub(super) fn of(news: mpsc::Receiver<Signal>) -> Modems {
        Modems { reports: Some(news), task: None }
    }

    /// Moves the signals that have arrived to `found`.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, found: &mut Vec<Signal>) {
        let Some(news) = &mut self.reports else { return };
        while let Poll::Ready(Some(signal)) = news.poll_recv(cx) {
            found.push(signal);
        }
    }
}

/// Polls ModemManager about the interfaces, without end.
async fn poll_modem_manager(interfaces: &[String], path: &Path, news: &mpsc::Sender<Signal>) {
    let mut said = None;
    loop {
        let mut has_answered = false;
        let why = match poll_until_error(interfaces, path, news, &mut has_answered).await {
            Failure::Broken(error) => format!("{}: {error}", path.display()),
            Failure::Refused(name) => format!("ModemManager: {name}"),
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
        sleep(RETRY).await;
    }
}

/// Polls ModemManager about the interfaces until a request fails.
async fn poll_until_error(
    interfaces: &[String],
    path: &Path,
    news: &mpsc::Sender<Signal>,
    has_answered: &mut bool,
) -> Failure {
    let late = || Failure::Broken(std::io::ErrorKind::TimedOut.into());
    let mut bus = match timeout(ANSWER_TIMEOUT, Bus::connect(path)).await {
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
        sleep(INTERVAL).await;
    }
}

/// Reads the present signals of these interfaces.
async fn read_signals(
    bus: &mut Bus,
    interfaces: &[String],
    unwilling: &mut Vec<String>,
) -> Result<Vec<Signal>, Failure> {
    let managed = bus
        .call(&Call {
            destination: SERVICE,
            path: ROOT,
            interface: "org.freedesktop.DBus.ObjectManager",
            member: "GetManagedObjects",
            arguments: &[],
        })
        .await?;
    let mut found = Vec::new();
    let all = managed.first().map(modems).unwrap_or_default();
    forget_gone(unwilling, &all);
    for modem in all {
        let mut names: Vec<String> = interfaces.iter().filter(|i| modem.ports.contains(i)).cloned().collect();
        if names.is_empty() {
            for bearer in &modem.bearers {
                let arguments = [Argument::Text(BEARER), Argument::Text("Interface")];
                let get = Call {
                    destination: SERVICE,
                    path: bearer,
                    interface: "org.freedesktop.DBus.Properties",
                    member: "Get",
                    arguments: &arguments,
                };
                match bus.call(&get).await {
                    Ok(values) => {
                        let name = values.first().and_then(Value::text);
                        names.extend(interfaces.iter().filter(|i| Some(i.as_str()) == name).cloned());
                    }
                    // ModemManager refuses requests about a modem that has vanished: ignore the error.
                    Err(Failure::Refused(_)) => {}
                    Err(broken) => return Err(broken),
                }
            }
        }
        if names.is_empty() {
            continue;
        }
        if modem.is_idle && !unwilling.contains(&modem.path) {
            let rate = [Argument::Unsigned(INTERVAL.as_secs() as u32)];
            let setup = Call {
                destination: SERVICE,
                path: &modem.path,
                interface: SIGNAL,
                member: "Setup",
                arguments: &rate,
            };
            match bus.call(&setup).await {
                Ok(_) => {}
                Err(Failure::Refused(name)) => {
                    tracing::info!("the modem of {} does not measure its signal: {name}", names.join(", "));
                    unwilling.push(modem.path.clone());
                }
                Err(broken) => return Err(broken),
            }
        }
        for interface in names {
            found.extend(modem.dbm.map(|dbm| Signal::Strength { interface: interface.clone(), dbm }));
            found.push(Signal::Roaming { interface, roaming: modem.roaming });
        }
    }
    Ok(found)
}

/// Removes the records of vanished modems. A modem that is plugged in again has another path, so its old
/// record would never be used.
fn forget_gone(unwilling: &mut Vec<String>, modems: &[Modem]) {
    unwilling.retain(|path| modems.iter().any(|modem| modem.path == *path));
}

/// Data about a modem from ModemManager's answer.
#[derive(Debug, PartialEq)]
struct Modem {
    path: String,
    /// Network interfaces of the modem.
    ports: Vec<String>,
    /// D-Bus paths of the modem's connections (bearers).
    bearers: Vec<String>,
    /// Whether the modem can measure its signal, but no program has ordered it to.
    is_idle: bool,
    dbm: Option<i32>,
    /// Whether the modem is registered in a network of another operator; `None` if it is not registered.
    roaming: Option<bool>,
}

/// Returns the modems in an answer to `GetManagedObjects`, a dictionary of paths, interfaces and properties.
fn modems(managed: &Value) -> Vec<Modem> {
    let modem = |(path, interfaces): (&str, &Value)| {
        let modem = interfaces.get(MODEM)?;
        let signal = interfaces.get(SIGNAL);
        let ports =
            modem.get("Ports").into_iter().flat_map(Value::list).filter_map(|port| match port.list() {
                [name, kind] if kind.number() == Some(NET) => name.text().map(str::to_owned),
                _ => None,
            });
        let bearers = modem.get("Bearers").into_iter().flat_map(Value::list);
        let rate = signal.and_then(|signal| signal.get("Rate")?.number());
        Some(Modem {
            path: path.to_owned(),
            ports: ports.collect(),
            bearers: bearers.filter_map(|path| path.text().map(str::to_owned)).collect(),
            is_idle: rate == Some(0.0),
            dbm: signal.and_then(measured).or_else(|| estimated(modem.get("SignalQuality")?)),
            roaming: interfaces.get(THREE_GPP).and_then(|it| roaming(it.get("RegistrationState")?.number()?)),
        })
    };
    managed.entries().filter_map(modem).collect()
}

/// Returns whether a `MMModem3gppRegistrationState` means a network of another operator. `None` if the modem
/// is not registered.
fn roaming(state: f64) -> Option<bool> {
    // Numbers of the states HOME, HOME_SMS_ONLY and HOME_CSFB_NOT_PREFERRED. The next constant has the
    // corresponding states of ROAMING.
    const HOME: [f64; 3] = [1.0, 6.0, 9.0];
    const ROAMING: [f64; 3] = [5.0, 7.0, 10.0];
    if ROAMING.contains(&state) { Some(true) } else { HOME.contains(&state).then_some(false) }
}

/// Returns the measured signal of the first radio technology that has one, in dBm; `None` if none has. For
/// the other technologies ModemManager omits the measure, or reports the lowest possible number.
fn measured(signal: &Value) -> Option<i32> {
    MEASURES.iter().find_map(|(radio, measure)| plausible(signal.get(radio)?.get(measure)?.number()?))
}

/// Returns the RSSI for a quality in percent. Returns `None` for zero, which is also the value of a modem
/// that is not registered.
fn estimated(quality: &Value) -> Option<i32> {
    let percent = quality.list().first()?.number().filter(|percent| (1.0..=100.0).contains(percent))?;
    plausible(-113.0 + percent * 62.0 / 100.0)
}

fn plausible(dbm: f64) -> Option<i32> {
    let number = dbm.is_finite().then(|| dbm.round() as i32);
    number.filter(|dbm| PLAUSIBLE.contains(dbm))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dictionary(entries: &[(&str, Value)]) -> Value {
        let entry =
            |(key, value): &(&str, Value)| Value::List(vec![Value::Text((*key).into()), value.clone()]);
        Value::List(entries.iter().map(entry).collect())
    }

    fn radio(measure: &str, dbm: f64) -> Value {
        dictionary(&[("snr", Value::Double(7.0)), (measure, Value::Double(dbm))])
    }

    #[test]
    fn signal_of_used_radio_technology_is_taken() {
        let none = Value::List(Vec::new());
        let unknown = radio("rsrp", -f64::MAX);
        for (radios, dbm) in [
            (vec![("Gsm", radio("rssi", -81.4)), ("Lte", none.clone())], Some(-81)),
            (vec![("Nr5g", radio("rsrp", -88.0)), ("Lte", radio("rsrp", -97.5))], Some(-98)),
            (vec![("Nr5g", radio("rsrp", -88.0)), ("Lte", unknown.clone())], Some(-88)),
            (vec![("Umts", radio("rscp", -70.0)), ("Gsm", radio("rssi", -60.0))], Some(-70)),
            (vec![("Lte", unknown), ("Umts", radio("rscp", f64::NAN))], None),
            (vec![("Lte", Value::Text("strong".into()))], None),
        ] {
            assert_eq!(measured(&dictionary(&radios)), dbm, "{radios:?}");
        }
    }

    #[test]
    fn signal_in_per_cent_is_used_last() {
        let quality = |percent| Value::List(vec![Value::Integer(percent), Value::Boolean(true)]);
        for (percent, dbm) in [(1, Some(-112)), (50, Some(-82)), (100, Some(-51)), (0, None), (101, None)] {
            assert_eq!(estimated(&quality(percent)), dbm, "{percent} %");
        }
        assert_eq!(estimated(&Value::Integer(5)), None);
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
            assert_eq!(roaming(f64::from(state)), expected, "state {state}");
        }
    }

    #[test]
    fn refusals_of_vanished_modems_are_forgotten() {
        let modem = |path: String| Modem {
            path,
            ports: Vec::new(),
            bearers: Vec::new(),
            is_idle: true,
            dbm: None,
            roaming: None,
        };
        let mut unwilling = Vec::new();
        for number in 0..1000 {
            let path = format!("/org/freedesktop/ModemManager1/Modem/{number}");
            unwilling.push(path.clone());
            forget_gone(&mut unwilling, &[modem(path.clone())]);
            assert_eq!(unwilling, [path]);
        }
        forget_gone(&mut unwilling, &[]);
        assert!(unwilling.is_empty());
    }

    #[test]
    fn modems_are_found_in_modem_manager_answer() {
        let port = |name: &str, kind| Value::List(vec![Value::Text(name.into()), Value::Integer(kind)]);
        let text = |text: &str| Value::Text(text.into());
        let modem = dictionary(&[
            ("Ports", Value::List(vec![port("ttyUSB0", 3), port("wwan0", 2), port("cdc-wdm0", 6)])),
            ("Bearers", Value::List(vec![text("/bearer/0")])),
            ("SignalQuality", Value::List(vec![Value::Integer(50), Value::Boolean(false)])),
        ]);
        let managed = dictionary(&[
            (
                "/modem/0",
                dictionary(&[
                    (MODEM, modem),
                    (SIGNAL, dictionary(&[("Rate", Value::Integer(0))])),
                    (THREE_GPP, dictionary(&[("RegistrationState", Value::Integer(5))])),
                ]),
            ),
            ("/sim/0", dictionary(&[("org.freedesktop.ModemManager1.Sim", Value::List(Vec::new()))])),
        ]);
        let expected = Modem {
            path: "/modem/0".into(),
            ports: vec!["wwan0".into()],
            bearers: vec!["/bearer/0".into()],
            is_idle: true,
            dbm: Some(-82),
            roaming: Some(true),
        };
        assert_eq!(modems(&managed), [expected]);
        assert_eq!(modems(&Value::Text("rubbish".into())), []);
    }
}
