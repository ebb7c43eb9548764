//! Config table `[[mobile_router.uplink]]`.

use std::path::PathBuf;
use std::time::Duration;

use carnet_mobility::mobile_router::{SignalThresholds, VolumeAction};

use super::super::keys::{
    Key, OptionalKey, Section, integer_kind, key_with_default, optional_key, required_key, text_kind,
    value_kind, words_kind,
};
use super::super::reader::{Located, LocatedValue};
use super::super::table::{Table, all};
use super::super::{kinds, values};

/// Values of the config table `[[mobile_router.uplink]]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uplink {
    /// Interface name.
    pub interface: String,
    /// Binding Identifier (RFC 5648); `None` if the uplink has none. All uplinks without identifier share one
    /// binding.
    pub bid: Option<u16>,
    /// Cost of the uplink: of two uplinks with equal priority, the router prefers the one with the lower
    /// cost.
    pub uplink_cost: u16,
    /// Capacity in kbit/s; `None`: unknown.
    pub capacity_kbit_s: Option<u32>,
    /// Octets that the uplink may carry in a period; `None` for no limit.
    pub volume_limit: Option<u64>,
    /// Period of `volume`.
    pub volume_period: VolumePeriod,
    /// Day of the month on which a period of a month begins.
    pub volume_day: u8,
    /// Use of the uplink after its volume is used up.
    pub volume_action: VolumeAction,
    /// Use of the uplink while its modem is in another operator's network.
    pub roaming_use: RoamingUse,
    /// Priority: the lower value wins. Of uplinks with equal priority the one with the lower cost wins. If
    /// the costs are equal too, the uplink in use wins, otherwise the first in the file.
    pub priority: u8,
    /// Signal strengths at which the router stops using the uplink and uses it again; `None` if the signal
    /// does not matter.
    pub signal_thresholds: Option<SignalThresholds>,
    /// File whose last line is the signal in dBm; `None` if the kernel reports the signal.
    pub signal_file: Option<PathBuf>,
    /// Time for which a reported signal strength is valid.
    pub signal_timeout: Duration,
}

/// `volume_period` of an uplink, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VolumePeriod {
    /// From midnight to midnight.
    Day,
    /// From Monday to Sunday.
    Week,
    /// A month, from `volume_day` on.
    Month,
}

/// `roaming` of an uplink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RoamingUse {
    /// The uplink is used as in its own operator's network.
    Allowed,
    /// The uplink is not used.
    Never,
}

static INTERFACE: Key<String> = required_key("interface", kinds::INTERFACE_KIND, "Its name.");
static BID: OptionalKey<u16> = optional_key(
    "bid",
    integer_kind(1, 65_535),
    "Binding Identifier (RFC 5648), different for each uplink. Uplinks with a `bid` are all registered at the
     same time. Uplinks without share one registration, which the best of them holds. The two kinds are not
     registered together: those with a `bid` are registered while the best usable uplink has one.",
);
static UPLINK_COST: Key<u16> = key_with_default(
    "cost",
    integer_kind(0, 65_535),
    "0",
    "Of two uplinks with the same priority, the mobile router prefers the one with the lower cost.",
);
static CAPACITY_KBIT_S: OptionalKey<u32> = optional_key(
    "capacity",
    integer_kind(1, 100_000_000),
    "Capacity in kbit/s. It sets the uplink's share if a policy balances, until the mobile router has measured
     it, and is an upper limit after that. Capacities count if all uplinks of the policy that are up have one;
     else all get the same share. The mobile router measures them when the policy fills an uplink: see `carnet
     show uplinks`.",
);
static VOLUME_LIMIT: OptionalKey<u64> = optional_key(
    "volume",
    text_kind("volume", EXPECTED_VOLUME, parse_volume),
    "Octets that the uplink may carry in a `volume_period`, both directions together, from all programs, as
     the interface counts them. `volume_action` says what happens after that. The event `volume_reached`
     reports 75, 95 and 100 %. The used volume is kept in `station.state_dir`; without that a restart begins
     at zero. `carnet show uplinks` shows it, also for uplinks without a limit.",
);
static VOLUME_PERIOD: Key<VolumePeriod> = key_with_default(
    "volume_period",
    words_kind(&[("day", VolumePeriod::Day), ("week", VolumePeriod::Week), ("month", VolumePeriod::Month)]),
    "\"month\"",
    "Period of `volume` and of the count: a day, a week from Monday, or a month from `volume_day` on, in UTC.
     A clock that is wrong after the machine starts loses nothing: once it is set, the count goes to the right
     period.",
);
static VOLUME_DAY: Key<u8> = key_with_default(
    "volume_day",
    integer_kind(1, 31),
    "1",
    "The day on which a month begins, as the network's operator bills it: `17` is from the 17th to the 16th of
     the next month. A month without that day begins on its last day.",
);
static VOLUME_ACTION: Key<VolumeAction> = key_with_default(
    "volume_action",
    words_kind(&[("last_resort", VolumeAction::LastResort), ("stop", VolumeAction::Stop)]),
    "\"last_resort\"",
    r#"What happens after the volume is used up. `"last_resort"`: the uplink is used only if no other works.
       `"stop"`: the uplink is down until the next period; carnet sends nothing over it, but other programs of
       the router still can. A clock before 2020 is not set and begins no period. Until it is set, the count
       belongs to the last known period, and an uplink whose volume was used up stays down until the clock
       shows a later period. Without `station.state_dir` no period is known, and the count since this start
       belongs to the first one."#,
);
static ROAMING_USE: Key<RoamingUse> = key_with_default(
    "roaming",
    words_kind(&[("allowed", RoamingUse::Allowed), ("never", RoamingUse::Never)]),
    "\"allowed\"",
    r#"With `"never"` the uplink is down while ModemManager says that its modem is in a network other than its
       own operator's. If ModemManager does not answer, its last word counts for 60 s, so that its restart
       changes nothing. If it does not run or does not know, the mobile router uses the uplink."#,
);
static PRIORITY: Key<u8> = key_with_default(
    "priority",
    integer_kind(1, 127),
    "10",
    "The usable uplink with the lowest number carries the traffic; among equals the first in the file.",
);
static SIGNAL_THRESHOLDS: OptionalKey<SignalThresholds> = optional_key(
    "signal",
    value_kind("signal", "a table signal", read_thresholds).with_table(&SIGNAL_TABLE, &[]),
    "Thresholds of signal strength for the use of the uplink, see [signal](#signal).",
);
static SIGNAL_FILE: OptionalKey<PathBuf> = optional_key(
    "signal_file",
    kinds::PATH_KIND,
    "File whose last line is the signal in dBm, such as `-61`; any program may write it. Without this key
     carnet asks the kernel for the signal of Wi-Fi, and ModemManager (over D-Bus, if it runs) for that of a
     cellular modem. It takes RSRP, RSCP or RSSI, as the radio in use has it, or an estimate from its
     percents. For other interfaces a program can use `POST /v1/signal`; else no signal is known. `carnet show
     uplinks` shows it.",
);
static SIGNAL_TIMEOUT: Key<Duration> = key_with_default(
    "signal_timeout",
    kinds::duration_kind(parse_signal_timeout),
    "\"1m\"",
    "How long a signal counts that is not renewed, 5 s to 1 d. A write to the file, an answer of the kernel or
     ModemManager, and `POST /v1/signal` renew it, even with the same value. After that the signal is unknown,
     and the uplink is used like one that has had no reading. A program that writes only changes needs a
     longer time.",
);

/// Keys of the config table `[[mobile_router.uplink]]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[[mobile_router.uplink]]",
    "mobile_router.uplink",
    &[
        &INTERFACE,
        &BID,
        &UPLINK_COST,
        &CAPACITY_KBIT_S,
        &VOLUME_LIMIT,
        &VOLUME_PERIOD,
        &VOLUME_DAY,
        &VOLUME_ACTION,
        &ROAMING_USE,
        &PRIORITY,
        &SIGNAL_THRESHOLDS,
        &SIGNAL_FILE,
        &SIGNAL_TIMEOUT,
    ],
);

/// Keys of the config table `[[mobile_node.uplink]]`.
pub(in crate::config) static SECTION_OF_NODE: Section =
    Section::new("[[mobile_node.uplink]]", "mobile_node.uplink", SECTION.declared_keys);

static GOOD_SIGNAL_DBM: Key<i32> = required_key(
    "good",
    integer_kind(-200, 100),
    "Signal in dBm from which on the mobile router takes the uplink.",
);
static POOR_SIGNAL_DBM: Key<i32> = required_key(
    "poor",
    integer_kind(-200, 100),
    "Signal in dBm at and below which the mobile router leaves the uplink; less than `good`.",
);

/// Keys of the inline table `signal` of an uplink.
static SIGNAL_TABLE: Section =
    Section::new("signal", "mobile_router.uplink.signal", &[&GOOD_SIGNAL_DBM, &POOR_SIGNAL_DBM]);

/// The parsed table, with the values that the checks compare with other tables.
pub(in crate::config) struct UncheckedUplink {
    pub interface: Option<Located<String>>,
    /// Binding Identifier; the outer `None` if it has an error.
    pub bid: Option<Option<Located<u16>>>,
    pub config: Option<Uplink>,
}

impl UncheckedUplink {
    pub(super) fn read_table(table: &Table<'_>) -> UncheckedUplink {
        let interface = table.read_key_with_offset(&INTERFACE);
        let bid = table.find_key_with_offset(&BID);
        let config = all!(Uplink {
            interface: interface.clone().map(|interface| interface.value),
            bid: bid.map(|bid| bid.map(|bid| bid.value)),
            uplink_cost: table.read_key(&UPLINK_COST),
            capacity_kbit_s: table.read_key(&CAPACITY_KBIT_S),
            volume_limit: table.read_key(&VOLUME_LIMIT),
            volume_period: table.read_key(&VOLUME_PERIOD),
            volume_day: table.read_key(&VOLUME_DAY),
            volume_action: table.read_key(&VOLUME_ACTION),
            roaming_use: table.read_key(&ROAMING_USE),
            priority: table.read_key(&PRIORITY),
            signal_thresholds: table.read_key(&SIGNAL_THRESHOLDS),
            signal_file: table.read_key(&SIGNAL_FILE),
            signal_timeout: table.read_key(&SIGNAL_TIMEOUT),
        });
        UncheckedUplink { interface, bid, config }
    }
}

/// Reads `signal`. The router stops using the uplink at one threshold and uses it again at the other, so that
/// the uplink does not flap.
fn read_thresholds(value: &LocatedValue<'_>) -> Option<SignalThresholds> {
    let table = Table::of_value(&SIGNAL_TABLE, value)?;
    let (good, poor) = (table.read_key(&GOOD_SIGNAL_DBM), table.read_key_with_offset(&POOR_SIGNAL_DBM));
    let (good, poor) = (good?, poor?);
    if poor.value >= good {
        let value = table.value_of_key(&POOR_SIGNAL_DBM)?;
        value.report_error(&format!("{} dBm is not less than `good`, expected less than {good}", poor.value));
        return None;
    }
    Some(SignalThresholds { good_dbm: good, poor_dbm: poor.value })
}

/// Expected value in an error message: a volume.
const EXPECTED_VOLUME: &str = "a volume such as \"500MB\" or \"5GB\"";

/// Parses an amount of data in octets: a whole number above 0 with the unit kB, MB, GB or TB, powers of a
/// thousand.
fn parse_volume(text: &str) -> Result<u64, String> {
    const VOLUME_UNITS: [(&str, u64); 4] =
        [("kB", 1000), ("MB", 1_000_000), ("GB", 1_000_000_000), ("TB", 1_000_000_000_000)];
    let octets = VOLUME_UNITS.iter().find_map(|(unit, octets)| {
        let digits = text.strip_suffix(unit).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()))?;
        digits.parse::<u64>().ok()?.checked_mul(*octets)
    });
    match octets {
        None => Err(format!("{text:?} is no volume, expected {EXPECTED_VOLUME}")),
        Some(0) => Err(format!("{text:?} permits no packets, expected {EXPECTED_VOLUME}")),
        Some(octets) => Ok(octets),
    }
}

/// Parses the time for which a reported signal strength is valid.
fn parse_signal_timeout(text: &str) -> Result<Duration, String> {
    let timeout = values::parse_duration(text)?;
    if timeout < Duration::from_secs(5) || timeout > Duration::from_secs(86_400) {
        return Err(format!("{text:?} is out of range, expected 5s to 1d"));
    }
    Ok(timeout)
}
