//! Types of values that occur in several tables. `values` has the checks of strings.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::{Ipv4Net, Ipv6Net};

use super::keys::{Disclosure, Kind, text, value, words};
use super::reader::List;
use super::values;

pub(super) const ADDRESS: Kind<Ipv6Addr> = text("address", values::ADDRESS, values::address);
pub(super) const IPV4_ADDRESS: Kind<Ipv4Addr> =
    text("IPv4 address", values::IPV4_ADDRESS, values::ipv4_address);
pub(super) const PREFIX: Kind<Ipv6Net> = text("prefix", values::PREFIX, values::prefix);
pub(super) const PREFIXES: Kind<List<Ipv6Net>> =
    value("array of prefixes", "an array of prefixes", |value| {
        List::read(value, "an array of prefixes", |item| PREFIX.read(item))
    });
pub(super) const IPV4_PREFIXES: Kind<List<Ipv4Net>> =
    value("array of IPv4 prefixes", "an array of IPv4 prefixes", |value| {
        List::read(value, "an array of IPv4 prefixes", |item| {
            item.parse(values::IPV4_PREFIX, values::ipv4_prefix)
        })
    });
pub(super) const INTERFACE: Kind<String> = text("interface", values::INTERFACE, values::interface);
pub(super) const INTERFACES: Kind<List<String>> =
    value("array of interfaces", "an array of interfaces", |value| {
        List::read(value, "an array of interfaces", |item| INTERFACE.read(item))
    });
pub(super) const NAME: Kind<String> = text("name", values::NAME, values::name);
pub(super) const BOOLEAN: Kind<bool> = value("boolean", "true or false", |value| value.boolean());
pub(super) const ON_OR_OFF: Kind<bool> = words(&[("on", true), ("off", false)]);
pub(super) const DURATION: Kind<Duration> = duration(values::duration);
pub(super) const LIFETIME: Kind<Duration> = text("lifetime", values::DURATION, values::lifetime);
pub(super) const LENGTH: Kind<u16> = text("length", values::LENGTH, values::length);

/// The path of a file or folder in which there is no secret.
pub(super) const PATH: Kind<PathBuf> = text("path", "a path", values::path);
/// The path of a file or folder that holds secrets.
pub(super) const PATH_OF_SECRET: Kind<PathBuf> = PATH.disclosed(Disclosure::PathOfSecret);

/// Creates the type of a duration that `parse` accepts.
pub(super) const fn duration(parse: fn(&str) -> Result<Duration, String>) -> Kind<Duration> {
    text("duration", values::DURATION, parse)
}
