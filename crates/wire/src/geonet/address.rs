//! GeoNetworking addresses (clause 6).
//!
//! Sixty-four bits: M, manually configured (1 bit); ST, the station type (5); reserved (10, a country code up
//! to V1.2.1); MID, the link-layer address (48). The text form of an address has sixteen hexadecimal digits
//! in four groups, `9400:0200:0000:0001`.

use super::fields::field_at;
use crate::address::{ParseError, parse_hex_groups};
use crate::as_string;
use std::fmt;
use std::str::FromStr;

/// A GeoNetworking address, GN_ADDR. A comparison of addresses includes the reserved bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GnAddress(pub u64);

const MANUAL_FLAG: u64 = 1 << 63;
const STATION_TYPE_SHIFT: u32 = 58;

impl GnAddress {
    /// Returns the address with these parts and zero reserved bits.
    ///
    /// `manual` says whether the operator configured the address by hand; `mid` is the link-layer address.
    /// The address holds only the five low bits of a station type.
    pub const fn new(manual: bool, station_type: StationType, mid: [u8; 6]) -> GnAddress {
        let [a, b, c, d, e, f] = mid;
        let manual = if manual { MANUAL_FLAG } else { 0 };
        let station_type = (station_type.value() & 0x1f) as u64;
        GnAddress(manual | station_type << STATION_TYPE_SHIFT | u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
    }

    /// ST: the station type.
    pub const fn station_type(self) -> StationType {
        StationType::from_value((self.0 >> STATION_TYPE_SHIFT) as u8 & 0x1f)
    }

    /// MID: the link-layer address.
    pub fn mid(self) -> [u8; 6] {
        field_at::<2, 6, 8>(&self.0.to_be_bytes())
    }

    /// M: the operator configured the address by hand.
    pub const fn is_manual(self) -> bool {
        self.0 & MANUAL_FLAG != 0
    }

    /// The ten reserved bits. Stations of V1.2.1 and earlier put a country code (ITU-T E.218) here.
    pub const fn reserved_bits(self) -> u16 {
        (self.0 >> 48) as u16 & 0x3ff
    }
}

impl fmt::Display for GnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d] = [self.0 >> 48, self.0 >> 32, self.0 >> 16, self.0].map(|group| group as u16);
        write!(f, "{a:04x}:{b:04x}:{c:04x}:{d:04x}")
    }
}

impl FromStr for GnAddress {
    type Err = ParseError;

    /// Reads four groups of exactly four hexadecimal digits, upper or lower case, with colons between.
    fn from_str(text: &str) -> Result<GnAddress, ParseError> {
        parse_hex_groups(text, 4, 4).map(GnAddress).ok_or_else(|| ParseError {
            found: text.to_owned(),
            parsed_item: "GeoNetworking address",
            expected: "four groups of four hexadecimal digits such as 1400:0200:0000:000a",
        })
    }
}

as_string!(GnAddress);

/// Error for a name that is not a station type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("station type {found:?}: expected one of {}or a number under 32", StationType::NAMES)]
pub struct ParseStationTypeError {
    found: String,
}

/// Defines the station types, their values and their names from one list.
macro_rules! station_types {
    ($($variant:ident = $value:literal, $name:literal, $meaning:literal;)*) => {
        /// The station type in an address (clause 6.3 table 1, with the numbers of TS 102 894-2).
        ///
        /// `Display` and `FromStr` use the names of the config file, such as `passenger_car`. `Display`
        /// prints a type without a name as its number.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum StationType {
            $(#[doc = concat!($meaning, ": ", stringify!($value), ".")]
            $variant,)*
            /// A number that the standard leaves unassigned. [`StationType::from_value`] returns the named
            /// variant for every assigned number.
            Other(u8),
        }

        impl StationType {
            /// Names for error messages; a comma follows each name.
            const NAMES: &str = concat!($($name, ", ",)*);

            /// Returns the station type with this number.
            pub const fn from_value(value: u8) -> StationType {
                match value {
                    $($value => StationType::$variant,)*
                    _ => StationType::Other(value),
                }
            }

            /// Returns the number of the station type; an address holds only its five low bits.
            pub const fn value(self) -> u8 {
                match self {
                    $(StationType::$variant => $value,)*
                    StationType::Other(value) => value,
                }
            }

            /// Returns the name in the config file; `None` for a type without a name.
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(StationType::$variant => Some($name),)*
                    StationType::Other(_) => None,
                }
            }
        }

        impl FromStr for StationType {
            type Err = ParseStationTypeError;

            fn from_str(text: &str) -> Result<StationType, ParseStationTypeError> {
                match text {
                    $($name => Ok(StationType::$variant),)*
                    _ => match text.parse() {
                        Ok(value) if value < 32 => Ok(StationType::from_value(value)),
                        _ => Err(ParseStationTypeError { found: text.to_owned() }),
                    },
                }
            }
        }
    };
}

station_types! {
    Unknown = 0, "unknown", "Unknown";
    Pedestrian = 1, "pedestrian", "Pedestrian";
    Cyclist = 2, "cyclist", "Cyclist";
    Moped = 3, "moped", "Moped";
    Motorcycle = 4, "motorcycle", "Motorcycle";
    PassengerCar = 5, "passenger_car", "Passenger car";
    Bus = 6, "bus", "Bus";
    LightTruck = 7, "light_truck", "Light truck";
    HeavyTruck = 8, "heavy_truck", "Heavy truck";
    Trailer = 9, "trailer", "Trailer";
    SpecialVehicle = 10, "special_vehicle", "Special vehicle";
    Tram = 11, "tram", "Tram";
    RoadSideUnit = 15, "road_side_unit", "Road side unit";
}

impl From<u8> for StationType {
    fn from(value: u8) -> StationType {
        StationType::from_value(value)
    }
}

impl From<StationType> for u8 {
    fn from(station_type: StationType) -> u8 {
        station_type.value()
    }
}

impl fmt::Display for StationType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.value()),
        }
    }
}
