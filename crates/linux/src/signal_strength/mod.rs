//! Reads the signal strength of each uplink in dBm.
//!
//! An uplink with a file ([`SignalSource::file`]) has its signal from the file, which any program may
//! write (`file`). For other uplinks, carnet asks the kernel whether it is a Wi-Fi interface (`wifi`). It
//! asks ModemManager whether the uplink belongs to a cellular modem (`modem`, by `dbus`). ModemManager also
//! reports roaming. The module reports changes at once, and unchanged measurements every two seconds, so that
//! the caller knows that the source still measures. An uplink may have none of these sources, and then has no
//! signal.
//!
//! Left out: thresholds that the driver watches (`NL80211_CMD_SET_CQM`). An interface has only one set of
//! them, and `wpa_supplicant` uses it for roaming; carnet uses only the events that these thresholds cause.

mod dbus;
mod modem;
mod signal_file;
mod wifi;

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use modem::ModemSignals;
use signal_file::SignalFiles;
use wifi::WifiSignals;

/// Interval at which carnet reads sources that send no events.
const READING_INTERVAL: Duration = Duration::from_millis(500);

/// Time after which carnet reports an unchanged signal again, if the source has measured it again.
const REPEAT_REPORT_AFTER: Duration = Duration::from_secs(2);

/// Time for which carnet believes a modem's roaming state while ModemManager does not answer, for example
/// during its restart. After that the state is unknown, and the mobile router uses the uplink as if it were
/// not roaming.
const ROAMING_STATE_LIFETIME: Duration = Duration::from_secs(60);

/// Path of the system bus's socket, as in the D-Bus Specification.
const SYSTEM_BUS: &str = "/run/dbus/system_bus_socket";

/// Range of possible signal strengths in dBm.
pub const PLAUSIBLE_DBM: std::ops::RangeInclusive<i32> = -200..=100;

/// An interface whose signal carnet needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignalSource {
    /// Name of the interface.
    pub interface: String,
    /// File whose last line is the signal strength; `None` for Wi-Fi interfaces and modems.
    pub file: Option<PathBuf>,
}

/// State of the radio of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SignalReport {
    /// Signal strength of an interface.
    Strength {
        /// Name of the interface.
        interface: String,
        /// Signal strength in dBm.
        dbm: i32,
    },
    /// Whether the modem of an interface is registered in a network of another operator.
    Roaming {
        /// Name of the interface.
        interface: String,
        /// Whether the modem roams; `None` if it is not registered.
        roaming: Option<bool>,
    },
}

/// Reads the signals of all uplinks.
#[derive(Debug)]
pub struct SignalReader {
    signal_files: SignalFiles,
    /// Names of the interfaces whose signal comes from a file.
    interfaces_with_file: Vec<String>,
    wifi_signals: WifiSignals,
    modem_signals: ModemSignals,
    /// Last reported signal of each interface, with the time of the report.
    reported_signals: BTreeMap<String, (i32, Instant)>,
    /// Last reported roaming state of each modem, with the time of its last confirmation.
    roaming_states: BTreeMap<String, (Option<bool>, Instant)>,
    /// Time for which a roaming state is valid without confirmation.
    roaming_state_lifetime: Duration,
    waiting_reports: VecDeque<SignalReport>,
    reading_interval: Interval,
}

impl SignalReader {
    /// Watches these interfaces, in the network namespace of the calling thread, which must be one of a tokio
    /// runtime.
    pub fn open(sources: Vec<SignalSource>) -> SignalReader {
        SignalReader::open_with_bus(sources, Path::new(SYSTEM_BUS))
    }

    /// Creates the reader of signals, with another path to the socket of the system bus.
    pub fn open_with_bus(sources: Vec<SignalSource>, bus: &Path) -> SignalReader {
        let (files, others): (Vec<_>, Vec<_>) = sources.iter().cloned().partition(|s| s.file.is_some());
        let files: Vec<_> = files.into_iter().filter_map(|s| Some((s.interface, s.file?))).collect();
        let others: Vec<String> = others.into_iter().map(|s| s.interface).collect();
        let all = sources.iter().map(|source| source.interface.clone()).collect();
        let mut tick = interval(READING_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        SignalReader {
            interfaces_with_file: files.iter().map(|(interface, _)| interface.clone()).collect(),
            signal_files: SignalFiles::watch_files(files),
            modem_signals: ModemSignals::open(all, bus.to_owned()),
            wifi_signals: WifiSignals::open(others),
            reported_signals: BTreeMap::new(),
            roaming_states: BTreeMap::new(),
            roaming_state_lifetime: ROAMING_STATE_LIFETIME,
            waiting_reports: VecDeque::new(),
            reading_interval: tick,
        }
    }

    /// Watches other interfaces from now on. Keeps the roaming state of interfaces that are still watched.
    pub fn set_sources(&mut self, sources: Vec<SignalSource>) {
        let mut roaming = std::mem::take(&mut self.roaming_states);
        roaming.retain(|interface, _| sources.iter().any(|source| source.interface == *interface));
        *self = SignalReader { roaming_states: roaming, ..SignalReader::open(sources) };
    }

    /// Returns the next signal that has changed or was measured again. Without interfaces to watch, never
    /// returns. The future may be dropped.
    pub async fn next(&mut self) -> SignalReport {
        loop {
            if let Some(signal) = self.waiting_reports.pop_front() {
                return signal;
            }
            poll_fn(|cx| self.poll_reports(cx)).await;
        }
    }

    fn poll_reports(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.signal_files.is_empty() && self.wifi_signals.is_empty() {
            return Poll::Pending;
        }
        let mut ticked = false;
        // Poll the timer until it is pending, so that its next tick wakes this task.
        while self.reading_interval.poll_tick(cx).is_ready() {
            ticked = true;
        }
        let mut found = Vec::new();
        if self.signal_files.poll_changes(cx) | ticked {
            self.signal_files.read_signals(&mut found);
        }
        if self.wifi_signals.poll_changes(cx) | ticked {
            self.wifi_signals.read_signals(&mut found);
        }
        let mut of_modems = Vec::new();
        self.modem_signals.poll_reports(cx, &mut of_modems);
        for signal in of_modems {
            match signal {
                SignalReport::Strength { interface, .. }
                    if self.interfaces_with_file.contains(&interface) => {}
                SignalReport::Strength { interface, dbm } => found.push((interface, dbm)),
                SignalReport::Roaming { interface, roaming } => {
                    let before = self.roaming_states.insert(interface.clone(), (roaming, Instant::now()));
                    // If a modem's first roaming state is unknown, do not report it.
                    if before.and_then(|(known, _)| known) != roaming {
                        self.waiting_reports.push_back(SignalReport::Roaming { interface, roaming });
                    }
                }
            }
        }
        self.expire_roaming();
        for (interface, dbm) in found {
            let now = Instant::now();
            let is_old = |(known, at): &(i32, Instant)| {
                *known == dbm && now.saturating_duration_since(*at) < REPEAT_REPORT_AFTER
            };
            if !self.reported_signals.get(&interface).is_some_and(is_old) {
                self.reported_signals.insert(interface.clone(), (dbm, now));
                self.waiting_reports.push_back(SignalReport::Strength { interface, dbm });
            }
        }
        if self.waiting_reports.is_empty() { Poll::Pending } else { Poll::Ready(()) }
    }

    /// Marks a roaming state as unknown if ModemManager has not confirmed it for `roaming_state_lifetime`.
    fn expire_roaming(&mut self) {
        let now = Instant::now();
        for (interface, (roaming, at)) in &mut self.roaming_states {
            if roaming.is_some() && now.saturating_duration_since(*at) >= self.roaming_state_lifetime {
                *roaming = None;
                self.waiting_reports
                    .push_back(SignalReport::Roaming { interface: interface.clone(), roaming: None });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_ROAMING_HOLD: Duration = Duration::from_millis(400);
    /// Longest time that these tests wait for a signal; the longest expected time is [`TEST_ROAMING_HOLD`].
    const SIGNAL_TIMEOUT: Duration = Duration::from_secs(20);

    fn source(name: &str) -> SignalSource {
        SignalSource { interface: name.into(), file: None }
    }

    fn roaming_report(interface: &str, roaming: Option<bool>) -> SignalReport {
        SignalReport::Roaming { interface: interface.into(), roaming }
    }

    /// Returns the next signal. Fails if none comes within [`SIGNAL_TIMEOUT`].
    async fn next(signals: &mut SignalReader, expected: &str) -> SignalReport {
        let next = tokio::time::timeout(SIGNAL_TIMEOUT, signals.next()).await;
        next.unwrap_or_else(|_| panic!("no signal within {SIGNAL_TIMEOUT:?}, expected: {expected}"))
    }

    /// Returns a reader to which ModemManager has reported one modem that roams and one that does not.
    async fn signals_with_two_modems() -> SignalReader {
        let no_bus = Path::new("/nowhere/system_bus_socket");
        let mut signals = SignalReader::open_with_bus(vec![source("wwan0"), source("wwan1")], no_bus);
        signals.roaming_state_lifetime = TEST_ROAMING_HOLD;
        let (sender, modems) = tokio::sync::mpsc::channel(8);
        signals.modem_signals = ModemSignals::from_receiver(modems);
        for news in [roaming_report("wwan0", Some(true)), roaming_report("wwan1", Some(false))] {
            sender.send(news.clone()).await.expect("a reader");
            assert_eq!(next(&mut signals, "what ModemManager has said").await, news);
        }
        signals
    }

    #[tokio::test]
    async fn roaming_is_unknown_when_modem_manager_has_vanished_for_long() {
        let began = Instant::now();
        let mut signals = signals_with_two_modems().await;
        let expected = "whether a modem roams is unknown";
        let gone = [next(&mut signals, expected).await, next(&mut signals, expected).await];
        assert_eq!(gone, [roaming_report("wwan0", None), roaming_report("wwan1", None)]);
        assert!(began.elapsed() >= TEST_ROAMING_HOLD, "its restart changes nothing");
    }

    #[tokio::test]
    async fn roaming_state_from_before_reload_expires() {
        let mut signals = signals_with_two_modems().await;
        signals.set_sources(vec![source("wwan0"), source("eth0")]);
        signals.roaming_state_lifetime = TEST_ROAMING_HOLD;
        let expected = "whether wwan0 roams is unknown";
        assert_eq!(next(&mut signals, expected).await, roaming_report("wwan0", None));
        assert!(!signals.roaming_states.contains_key("wwan1"));
    }
}
