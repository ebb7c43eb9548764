//! `[geonet.dcc]`: congestion control.

use super::super::keys::{Key, Section, ValueKind, integer_kind, key_with_default, value_kind, words_kind};
use super::super::reader::LocatedValue;
use super::super::table::{Table, all};

/// Values of the config table `geonet.dcc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dcc {
    /// Congestion control algorithm, which decides when the next packet may leave.
    pub algorithm: DccAlgorithm,
    /// Table of TS 102 687 from which reactive control takes the time between packets.
    pub time_on_air: DccTimeOnAir,
    /// Data rate of the radio in Mbit/s.
    pub data_rate: u8,
    /// Maximum number of waiting packets of each priority.
    pub queue_length: u16,
    /// Channel busy ratio in percent that the station assumes while the radio reports none.
    pub assumed_busy: u8,
}

/// Value of the config key `geonet.dcc.algorithm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DccAlgorithm {
    /// Reactive: each range of the channel busy ratio has a fixed time between packets.
    Reactive,
    /// Adaptive: the station limits its share of the channel (LIMERIC).
    Adaptive,
}

/// Value of the config key `geonet.dcc.time_on_air`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DccTimeOnAir {
    /// For packets with up to 1 ms on air: table A.1 of TS 102 687.
    Millisecond,
    /// For packets with up to 500 us on air: table A.2 of TS 102 687.
    Half,
}

/// Data rates in Mbit/s; 4.5 is missing because it is no integer.
const DATA_RATE_KIND: ValueKind<u8> =
    value_kind("integer, 3, 6, 9, 12, 18, 24 or 27", "an integer from 3 to 27", read_data_rate);

static ALGORITHM: Key<DccAlgorithm> = key_with_default(
    "algorithm",
    words_kind(&[("reactive", DccAlgorithm::Reactive), ("adaptive", DccAlgorithm::Adaptive)]),
    "\"reactive\"",
    r#"`"reactive"` (5.3): a time between packets for each range of the busy ratio. `"adaptive"` (5.4,
       LIMERIC): a share of the channel, so that all stations together keep it below 68 %; packets are 25 ms
       to 1 s apart."#,
);
static TIME_ON_AIR: Key<DccTimeOnAir> = key_with_default(
    "time_on_air",
    words_kind(&[("1ms", DccTimeOnAir::Millisecond), ("500us", DccTimeOnAir::Half)]),
    "\"1ms\"",
    r#"With `"reactive"`: the table to use, by how long packets are on the air. `"1ms"` is A.1, 10 packets a
       second down to 1; `"500us"` is A.2, 20 down to 1. A longer packet closes the gate once for each time on
       air that it has begun."#,
);
static DATA_RATE: Key<u8> = key_with_default(
    "data_rate",
    DATA_RATE_KIND,
    "6",
    "Mbit/s to which the radio is set, a rate of 802.11p with 10 MHz; it says how long packets are on the air.
     4.5 is not possible.",
);
static QUEUE_LENGTH: Key<u16> = key_with_default(
    "queue_length",
    integer_kind(1, 100),
    "10",
    "Packets of each profile that wait at most; the oldest makes room. No packet waits beyond its lifetime.",
);
static ASSUMED_BUSY: Key<u8> = key_with_default(
    "assumed_busy",
    integer_kind(0, 100),
    "0",
    "Percent that the station takes the channel to be busy until the first report, and at least when reports
     stop.",
);

/// Keys of the config table `[geonet.dcc]`.
pub(in crate::config) static SECTION: Section = Section::new(
    "[geonet.dcc]",
    "geonet.dcc",
    &[&ALGORITHM, &TIME_ON_AIR, &DATA_RATE, &QUEUE_LENGTH, &ASSUMED_BUSY],
);

/// Reads the table; `None` if it has an error.
pub(super) fn read_table(table: &Table<'_>) -> Option<Dcc> {
    all!(Dcc {
        algorithm: table.read_key(&ALGORITHM),
        time_on_air: table.read_key(&TIME_ON_AIR),
        data_rate: table.read_key(&DATA_RATE),
        // The gate of congestion control passes at most 20 packets a second, so a longer queue would only
        // delay packets.
        queue_length: table.read_key(&QUEUE_LENGTH),
        assumed_busy: table.read_key(&ASSUMED_BUSY),
    })
}

fn read_data_rate(value: &LocatedValue<'_>) -> Option<u8> {
    let rate = value.read_integer(3, 27)?;
    match u8::try_from(rate) {
        Ok(rate) if [3, 6, 9, 12, 18, 24, 27].contains(&rate) => Some(rate),
        _ => {
            value.report_error(&format!(
                "{rate} Mbit/s is no rate of 802.11p with 10 MHz, expected 3, 6, 9, 12, 18, 24 or 27"
            ));
            None
        }
    }
}
