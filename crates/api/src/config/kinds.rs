//! Types of values that occur in several tables. `values` has the checks of strings.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};

use super::keys::{Disclosure, ValueKind, text_kind, value_kind, words_kind};
use super::reader::List;
use super::values;

pub(super) const ADDRESS_KIND: ValueKind<Ipv6Addr> =
    text_kind("address", values::EXPECTED_ADDRESS, values::parse_address);
pub(super) const IPV4_ADDRESS_KIND: ValueKind<Ipv4Addr> =
    text_kind("IPv4 address", values::EXPECTED_IPV4_ADDRESS, values::parse_ipv4_address);
pub(super) const PREFIX_KIND: ValueKind<Ipv6Net> =
    text_kind("prefix", values::EXPECTED_PREFIX, values::parse_prefix);
pub(super) const PREFIXES_KIND: ValueKind<List<Ipv6Net>> =
    value_kind("array of prefixes", "an array of prefixes", |value| {
        List::read_array(value, "an array of prefixes", |item| PREFIX_KIND.read_value(item))
    });
pub(super) const IPV4_PREFIXES_KIND: ValueKind<List<Ipv4Net>> =
    value_kind("array of IPv4 prefixes", "an array of IPv4 prefixes", |value| {
        List::read_array(value, "an array of IPv4 prefixes", |item| {
            item.parse(values::EXPECTED_IPV4_PREFIX, values::parse_ipv4_prefix)
        })
    });
pub(super) const INTERFACE_KIND: ValueKind<String> =
    text_kind("interface", values::EXPECTED_INTERFACE, values::parse_interface);
pub(super) const INTERFACES_KIND: ValueKind<List<String>> =
    value_kind("array of interfaces", "an array of interfaces", |value| {
        List::read_array(value, "an array of interfaces", |item| INTERFACE_KIND.read_value(item))
    });
pub(super) const NAME_KIND: ValueKind<String> = text_kind("name", values::EXPECTED_NAME, values::parse_name);
pub(super) const BOOLEAN_KIND: ValueKind<bool> =
    value_kind("boolean", "true or false", |value| value.read_boolean());
pub(super) const ON_OR_OFF_KIND: ValueKind<bool> = words_kind(&[("on", true), ("off", false)]);
pub(super) const DURATION_KIND: ValueKind<Duration> = duration_kind(values::parse_duration);
pub(super) const LIFETIME_KIND: ValueKind<Duration> =
    text_kind("lifetime", values::EXPECTED_DURATION, values::parse_lifetime);
pub(super) const LENGTH_KIND: ValueKind<u16> =
    text_kind("length", values::EXPECTED_LENGTH, values::parse_length);

/// The path of a file or folder in which there is no secret.
pub(super) const PATH_KIND: ValueKind<PathBuf> = text_kind("path", "a path", values::parse_path);
/// The path of a file or folder that holds secrets.
pub(super) const SECRET_PATH_KIND: ValueKind<PathBuf> = PATH_KIND.with_disclosure(Disclosure::PathOfSecret);

/// Creates the type of a duration that `parse` accepts.
pub(super) const fn duration_kind(parse: fn(&str) -> Result<Duration, String>) -> ValueKind<Duration> {
    text_kind("duration", values::EXPECTED_DURATION, parse)
}
