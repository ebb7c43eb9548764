//! The keys of `[[mobile_router.lan]]` for the DHCP server of IPv4.

use std::fmt::Display;
use std::net::Ipv4Addr;
use std::time::Duration;

use ipnet::Ipv4Net;

use carnet_wire::address::MacAddress;

use super::super::super::errors::ErrorSink;
use super::super::super::keys::{
    DeclaredKey, Key, OptionalKey, ValueKind, key_with_default, optional_key, text_kind, value_kind,
};
use super::super::super::reader::{List, Located};
use super::super::super::table::{Table, all};
use super::super::super::{kinds, values};

/// Maximum number of addresses in a range, which limits the memory of the server.
const MAX_RANGE_ADDRESSES: u32 = 16_384;
/// Maximum number of reservations, and of options.
const MAX_RESERVATIONS: usize = 1024;
const MAX_EXTRA_OPTIONS: usize = 64;
/// Codes of the DHCP options that the operator cannot set, because other config keys or the DHCP server
/// determine their values.
const OPTIONS_SENT_BY_CARNET: [u8; 26] =
    [0, 1, 3, 6, 12, 15, 26, 28, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 61, 80, 81, 82, 108, 114, 119, 255];

/// DHCP for IPv4 on an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dhcp {
    /// Whether carnet gives hosts addresses.
    pub enabled: bool,
    /// First and last address for hosts without reservation; `None` for the upper half of the prefix.
    pub address_range: Option<(Ipv4Addr, Ipv4Addr)>,
    /// Lease time.
    pub lease_time: Duration,
    /// Addresses for certain hosts.
    pub reservations: Vec<DhcpReservation>,
    /// Further options, which no other key of the config sets.
    pub options: Vec<DhcpOption>,
}

/// An address for one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpReservation {
    /// Link-layer address of the host.
    pub mac: MacAddress,
    /// Address of the host.
    pub address: Ipv4Addr,
    /// Name of the host.
    pub name: Option<String>,
}

/// A DHCP option that the operator has configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DhcpOption {
    /// Code of the option.
    pub code: u8,
    /// Value of the option.
    pub value: Vec<u8>,
}

impl Default for Dhcp {
    fn default() -> Dhcp {
        Dhcp {
            enabled: true,
            address_range: None,
            lease_time: Duration::from_secs(3600),
            reservations: Vec::new(),
            options: Vec::new(),
        }
    }
}

impl Dhcp {
    /// Returns the addresses for hosts without reservation in this prefix: the configured range, or otherwise
    /// the upper half of the prefix. Returns `None` if the prefix has no room for hosts.
    pub fn default_range_in(&self, prefix: Ipv4Net) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let (first, last) = host_range_of(prefix)?;
        let half = u32::from(prefix.network()) + (1 << (31 - prefix.prefix_len()));
        let upper =
            half.max(u32::from(last).saturating_sub(MAX_RANGE_ADDRESSES - 1)).max(u32::from(first) + 1);
        Some(self.address_range.unwrap_or((Ipv4Addr::from(upper), last)))
    }
}

/// Returns the first and the last address of a prefix that nodes may have. The first address belongs to the
/// router. Returns `None` if the prefix has no room for the router and a host.
fn host_range_of(prefix: Ipv4Net) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let (first, last) = (u32::from(prefix.network()) + 1, u32::from(prefix.broadcast()).checked_sub(1)?);
    (prefix.prefix_len() <= 30).then(|| (Ipv4Addr::from(first), Ipv4Addr::from(last)))
}

const EXPECTED_RANGE: &str = "two addresses such as \"10.42.7.100-10.42.7.199\"";
const EXPECTED_LEASE: &str = "a duration from 2m to 30d such as \"12h\"";
const EXPECTED_RESERVATIONS: &str = "an array of reservations";
const EXPECTED_RESERVATION: &str = "a link-layer address, an IPv4 address and perhaps a name, such as \
     \"02:00:00:00:00:0a 10.42.7.9 camera\"";
const EXPECTED_OPTIONS: &str = "an array of options";
const EXPECTED_OPTION: &str =
    "a code, `address`, `text` or `hex`, and the value, such as \"42 address 10.42.7.1\"";

const RESERVATIONS_KIND: ValueKind<List<DhcpReservation>> =
    value_kind("array of reservations", EXPECTED_RESERVATIONS, |value| {
        List::read_array(value, EXPECTED_RESERVATIONS, |item| {
            item.parse(EXPECTED_RESERVATION, parse_reservation)
        })
    });
const OPTIONS_KIND: ValueKind<List<DhcpOption>> = value_kind("array of options", EXPECTED_OPTIONS, |value| {
    List::read_array(value, EXPECTED_OPTIONS, |item| item.parse(EXPECTED_OPTION, parse_option))
});

pub(super) static DHCP_ENABLED: Key<bool> = key_with_default(
    "dhcp_enabled",
    kinds::BOOLEAN_KIND,
    "true",
    "Give hosts IPv4 addresses by DHCP, if the interface has an IPv4 prefix of at most 30 bits, see
     [on-board.md](on-board.md). With `false` another program does so, or hosts have fixed addresses.",
);
pub(super) static ADDRESS_RANGE: OptionalKey<(Ipv4Addr, Ipv4Addr)> = optional_key(
    "dhcp_range",
    text_kind("two addresses", EXPECTED_RANGE, parse_range),
    "First and last address for hosts, with `-` between, at most 16384 addresses. Without this key it is the
     upper half of the prefix, and the lower half is left to devices with fixed addresses.",
);
pub(super) static LEASE_TIME: Key<Duration> = key_with_default(
    "dhcp_lease",
    kinds::duration_kind(parse_lease_time),
    r#""1h""#,
    "Lease time, from 2m to 30d. Hosts renew after half of it.",
);
pub(super) static RESERVATIONS_KEY: Key<List<DhcpReservation>> = key_with_default(
    "dhcp_reservations",
    RESERVATIONS_KIND,
    "[]",
    r#"Addresses for certain hosts, each `"MAC ADDRESS"` or `"MAC ADDRESS NAME"`, at most 1024. An address may
       be outside of `dhcp_range`."#,
);
pub(super) static OPTIONS_KEY: Key<List<DhcpOption>> = key_with_default(
    "dhcp_options",
    OPTIONS_KIND,
    "[]",
    r#"Further DHCP options for hosts that ask for them: `"CODE address A,B"`, `"CODE text T"` or `"CODE hex
       00ff"`, at most 64. carnet sets those for addresses, times, DNS, MTU, NAT64 and captive portal
       itself."#,
);

/// The parsed DHCP keys of an interface, with the values that the checks compare.
#[derive(Clone, Default)]
pub(super) struct UncheckedDhcp {
    enabled: Option<bool>,
    address_range: Option<Located<(Ipv4Addr, Ipv4Addr)>>,
    reservations: List<DhcpReservation>,
    options: List<DhcpOption>,
    /// Position of the first DHCP key other than `dhcp_enabled`; `None` if there is no such key.
    first_key_offset: Option<usize>,
    pub config: Option<Dhcp>,
}

impl UncheckedDhcp {
    pub(super) fn read_table(table: &Table<'_>) -> UncheckedDhcp {
        let enabled = table.read_key(&DHCP_ENABLED);
        let range = table.find_key_with_offset(&ADDRESS_RANGE);
        let reservations = table.read_key(&RESERVATIONS_KEY).unwrap_or_default();
        let options = table.read_key(&OPTIONS_KEY).unwrap_or_default();
        let config = all!(Dhcp {
            enabled: enabled,
            address_range: range.map(|range| range.map(|range| range.value)),
            lease_time: table.read_key(&LEASE_TIME),
            reservations: reservations.complete_items(),
            options: options.complete_items(),
        });
        let keys: [&dyn DeclaredKey; 4] = [&ADDRESS_RANGE, &LEASE_TIME, &RESERVATIONS_KEY, &OPTIONS_KEY];
        let first = keys.iter().find_map(|key| table.value_of_key(*key)).map(|value| value.offset());
        UncheckedDhcp {
            enabled,
            address_range: range.flatten(),
            reservations,
            options,
            first_key_offset: first,
            config,
        }
    }

    /// Returns the values for an interface that the config file only names.
    pub(super) fn from_interface_name() -> UncheckedDhcp {
        UncheckedDhcp { enabled: Some(true), config: Some(Dhcp::default()), ..UncheckedDhcp::default() }
    }

    /// Returns whether carnet gives hosts of this prefix addresses.
    pub(super) fn serves_prefix(&self, prefix: Option<Ipv4Net>) -> bool {
        self.enabled == Some(true) && prefix.is_some_and(|prefix| host_range_of(prefix).is_some())
    }

    /// Reports conflicts of the values with each other, and with the IPv4 prefix of the interface.
    pub(super) fn check_values(&self, prefix: Option<Ipv4Net>, sink: &ErrorSink<'_>) {
        let Some(prefix) = prefix else {
            if let Some(first) = self.first_key_offset {
                let message = "this interface has no IPv4 prefix, expected one in \
                               `mobile_router.ipv4_prefixes`";
                sink.push(first, message);
            }
            return;
        };
        let Some((first, last)) = host_range_of(prefix) else {
            if let Some(at) = self.first_key_offset {
                let message =
                    format!("{prefix} has no room for hosts, expected an IPv4 prefix of at most 30 bits");
                sink.push(at, message);
            }
            return;
        };
        let outside = |address: Ipv4Addr, at: usize| {
            if !(first..=last).contains(&address) {
                let message = format!(
                    "{address} is no host's address in {prefix}, expected one from {first} to {last}"
                );
                sink.push(at, message);
            }
        };
        if let Some(Located { value: (from, to), offset: at }) = self.address_range {
            outside(from, at);
            if to != from {
                outside(to, at);
            }
        }
        for reservation in &self.reservations.valid_items {
            outside(reservation.value.address, reservation.offset);
            if reservation.value.address == first {
                let message = format!("{first} is carnet's own address, expected another");
                sink.push(reservation.offset, message);
            }
        }
        self.check_reservations_and_options(sink);
    }

    /// Checks that no reservation and no option occurs twice, and that neither list is too long.
    fn check_reservations_and_options(&self, sink: &ErrorSink<'_>) {
        check_unique(&self.reservations.valid_items, "reserved", |it| Some(it.mac), sink);
        check_unique(&self.reservations.valid_items, "reserved", |it| Some(it.address), sink);
        check_unique(&self.reservations.valid_items, "the name of a host", |it| it.name.as_ref(), sink);
        check_unique(&self.options.valid_items, "set", |it| Some(it.code), sink);
        if let Some(more) = self.reservations.valid_items.get(MAX_RESERVATIONS) {
            let message = format!("there are more than {MAX_RESERVATIONS} reservations, expected fewer");
            sink.push(more.offset, message);
        }
        if let Some(more) = self.options.valid_items.get(MAX_EXTRA_OPTIONS) {
            sink.push(
                more.offset,
                format!("there are more than {MAX_EXTRA_OPTIONS} options, expected fewer"),
            );
        }
    }
}

/// Checks that no two items have the same value.
fn check_unique<'a, T, V: PartialEq + Display>(
    items: &'a [Located<T>],
    what: &str,
    of: impl Fn(&'a T) -> Option<V>,
    sink: &ErrorSink<'_>,
) {
    for (index, item) in items.iter().enumerate() {
        let Some(value) = of(&item.value) else { continue };
        if let Some(other) = items.iter().take(index).find(|other| of(&other.value).as_ref() == Some(&value))
        {
            let place = sink.format_position(other.offset);
            sink.push(item.offset, format!("{value} is {what} already at {place}, expected another"));
        }
    }
}

/// Parses the first and the last address of a range.
fn parse_range(text: &str) -> Result<(Ipv4Addr, Ipv4Addr), String> {
    let wrong = |what: &str| Err(format!("{text:?} {what}, expected {EXPECTED_RANGE}"));
    let Some((first, last)) = text.split_once('-') else { return wrong("is no range") };
    let (Ok(first), Ok(last)) = (first.trim().parse::<Ipv4Addr>(), last.trim().parse::<Ipv4Addr>()) else {
        return wrong("has something that is no address");
    };
    if last < first {
        return wrong("ends before it begins");
    }
    if u32::from(last) - u32::from(first) >= MAX_RANGE_ADDRESSES {
        return wrong(&format!("has more than {MAX_RANGE_ADDRESSES} addresses"));
    }
    Ok((first, last))
}

/// Parses a lease time.
fn parse_lease_time(text: &str) -> Result<Duration, String> {
    let lease = values::parse_duration(text)?;
    if !(Duration::from_secs(120)..=Duration::from_secs(30 * 86_400)).contains(&lease) {
        return Err(format!("{text:?} is out of range, expected {EXPECTED_LEASE}"));
    }
    Ok(Duration::from_secs(lease.as_secs()))
}

/// Parses a reservation.
fn parse_reservation(text: &str) -> Result<DhcpReservation, String> {
    let wrong = |what: &str| Err(format!("{text:?} {what}, expected {EXPECTED_RESERVATION}"));
    let mut words = text.split_ascii_whitespace();
    let (Some(mac), Some(address), name, None) = (words.next(), words.next(), words.next(), words.next())
    else {
        return wrong("does not have two or three words");
    };
    let mac = values::parse_own_mac(mac)?;
    let Ok(address) = address.parse() else { return wrong(&format!("has {address:?}, which is no address")) };
    let is_letter = |octet: u8| octet.is_ascii_lowercase() || octet.is_ascii_digit() || octet == b'-';
    let is_name = |name: &str| {
        name.len() <= 63 && name.bytes().all(is_letter) && !name.starts_with('-') && !name.ends_with('-')
    };
    if let Some(name) = name.filter(|name| !is_name(name)) {
        return wrong(&format!("has {name:?}, which is no name of small letters, digits and hyphens"));
    }
    Ok(DhcpReservation { mac, address, name: name.map(str::to_owned) })
}

/// Parses an option.
fn parse_option(text: &str) -> Result<DhcpOption, String> {
    let wrong = |what: &str| Err(format!("{text:?} {what}, expected {EXPECTED_OPTION}"));
    let mut words = text.splitn(3, ' ');
    let (Some(code), Some(kind), Some(value)) = (words.next(), words.next(), words.next()) else {
        return wrong("does not have three parts");
    };
    let Ok(code) = code.parse::<u8>() else { return wrong("does not begin with a code from 1 to 254") };
    if OPTIONS_SENT_BY_CARNET.contains(&code) {
        return wrong(&format!("has the code {code}, which carnet sets itself"));
    }
    let value = match kind {
        "text" => Some(value.as_bytes().to_vec()),
        "hex" => value.parse::<carnet_wire::address::Octets>().ok().map(|octets| octets.0),
        "address" => parse_addresses(value),
        _ => return wrong(&format!("has the type {kind:?}")),
    };
    match value.filter(|value| (1..=255).contains(&value.len())) {
        Some(value) => Ok(DhcpOption { code, value }),
        None => wrong("has a value that does not fit its type"),
    }
}

/// Parses addresses with commas between.
fn parse_addresses(text: &str) -> Option<Vec<u8>> {
    let mut octets = Vec::new();
    for address in text.split(',') {
        octets.extend(address.trim().parse::<Ipv4Addr>().ok()?.octets());
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dhcp_range_defaults_to_upper_half_of_prefix() {
        let range = |prefix: &str| {
            let range = Dhcp::default().default_range_in(prefix.parse().expect("a prefix"))?;
            Some(format!("{}-{}", range.0, range.1))
        };
        assert_eq!(range("10.42.7.0/24").as_deref(), Some("10.42.7.128-10.42.7.254"));
        assert_eq!(range("10.42.7.0/30").as_deref(), Some("10.42.7.2-10.42.7.2"));
        assert_eq!(range("10.42.4.0/22").as_deref(), Some("10.42.6.0-10.42.7.254"));
        // The default range of a large prefix has only the last 16384 addresses before its upper end.
        assert_eq!(range("10.42.0.0/16").as_deref(), Some("10.42.191.255-10.42.255.254"));
        assert_eq!(range("10.42.7.0/31"), None);
        assert_eq!(range("10.42.7.1/32"), None);
    }
}
