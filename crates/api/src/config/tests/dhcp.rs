//! The keys of `[[mobile_router.lan]]` for IPv4: accepted and refused values.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::*;
use crate::config::{Dhcp, DhcpOption, DhcpReservation};
use carnet_wire::address::MacAddress;

/// Returns the config of a mobile router with two IPv4 prefixes; `lan` begins on line 11.
fn config_with_lan(lan: &str) -> String {
    format!(
        "[station]\nname = \"n\"\n[mobile_router]\nhome_address = \"2001:db8:1::1234\"\nhome_prefix = \
         \"2001:db8:1::/64\"\nhome_agent = \"2001:db8:1::1\"\nauth = \"none\"\nprefixes = \
         [\"2001:db8:a::/64\"]\nipv4_prefixes = [\"10.42.7.0/24\", \"10.42.8.0/22\"]\nuplink = [{{ interface \
         = \"wlan0\" }}]\n{lan}\n"
    )
}

fn lan_table(keys: &str) -> String {
    format!("[[mobile_router.lan]]\ninterface = 'i0'\n{keys}")
}

fn refusals_of_lan(lan: &str) -> Vec<String> {
    let errors = Config::parse(&config_with_lan(lan), "c.toml").expect_err(lan);
    errors.to_string().lines().map(str::to_owned).collect()
}

fn ipv4_address(text: &str) -> Ipv4Addr {
    text.parse().expect("an IPv4 address")
}

#[test]
fn config_reader_returns_every_key_of_dhcp() {
    let router = parse(&config_with_lan(&lan_table(
        "prefixes = ['10.42.8.0/23']\ndns = ['192.0.2.53', '2001:db8:53::53']\ndhcp_enabled = \
         false\ndhcp_range = '10.42.9.10-10.42.9.19'\ndhcp_lease = '12h'\ndhcp_reservations = \
         ['02:00:00:00:00:0A 10.42.8.9 camera', '02:00:00:00:00:0b 10.42.8.10']\ndhcp_options = ['42 \
         address 10.42.8.1,10.42.8.2', '66 text boot server', '43 hex 0a0b']",
    )));
    let router = router.mobile_router.expect("a mobile router");
    let reservation = |last: u8, address: &str, name: Option<&str>| DhcpReservation {
        mac: MacAddress([2, 0, 0, 0, 0, last]),
        address: ipv4_address(address),
        name: name.map(str::to_owned),
    };
    let option = |code, value: &[u8]| DhcpOption { code, value: value.to_vec() };
    let dhcp = Dhcp {
        enabled: false,
        address_range: Some((ipv4_address("10.42.9.10"), ipv4_address("10.42.9.19"))),
        lease_time: Duration::from_secs(43_200),
        reservations: vec![reservation(10, "10.42.8.9", Some("camera")), reservation(11, "10.42.8.10", None)],
        options: vec![
            option(42, &[10, 42, 8, 1, 10, 42, 8, 2]),
            option(66, b"boot server"),
            option(43, &[10, 11]),
        ],
    };
    assert_eq!(router.lan_interfaces[0].dhcp, dhcp);
    assert_eq!(
        router.lan_interfaces[0].dns_servers,
        [IpAddr::V4(ipv4_address("192.0.2.53")), "2001:db8:53::53".parse().expect("ok")]
    );
    assert_eq!(router.lan_interfaces[0].ipv4_prefixes, ["10.42.8.0/23".parse().expect("a prefix")]);
}

#[test]
fn interfaces_share_ipv4_prefixes_in_order() {
    let shares = |lan: &str| -> Vec<Option<String>> {
        let router = parse(&config_with_lan(lan)).mobile_router.expect("a mobile router");
        router.lans_with_ipv4_prefix().map(|(_, prefix)| Some(prefix?.to_string())).collect()
    };
    let named = |names: &[&str]| names.iter().map(|name| Some((*name).to_owned())).collect::<Vec<_>>();
    assert_eq!(shares("lan = ['i0']"), named(&["10.42.7.0/24"]));
    assert_eq!(shares("lan = ['i0', 'i1']"), named(&["10.42.7.0/24", "10.42.8.0/22"]));
    let mut three = named(&["10.42.7.0/24", "10.42.8.0/22"]);
    three.push(None);
    assert_eq!(shares("lan = ['i0', 'i1', 'i2']"), three);
    assert_eq!(
        shares("lan = ['i0', { interface = 'i1', prefixes = ['10.42.7.0/25'] }]"),
        named(&["10.42.8.0/22", "10.42.7.0/25"])
    );
}

#[test]
fn every_error_of_dhcp_names_its_line() {
    let range = "expected two addresses such as \"10.42.7.100-10.42.7.199\"";
    let reservation = "expected a link-layer address, an IPv4 address and perhaps a name, such as \
                       \"02:00:00:00:00:0a 10.42.7.9 camera\"";
    let option =
        "expected a code, `address`, `text` or `hex`, and the value, such as \"42 address 10.42.7.1\"";
    for (keys, expected) in [
        (
            "dhcp_range = '10.42.7.100'",
            format!("c.toml:13:14: `mobile_router.lan.dhcp_range`: \"10.42.7.100\" is no range, {range}"),
        ),
        (
            "dhcp_range = '10.42.7.9-10.42.7.8'",
            format!(
                "c.toml:13:14: `mobile_router.lan.dhcp_range`: \"10.42.7.9-10.42.7.8\" ends before it \
                 begins, {range}"
            ),
        ),
        (
            "dhcp_range = '10.42.7.9-10.42.8.8'",
            "c.toml:13:14: 10.42.8.8 is no host's address in 10.42.7.0/24, expected one from 10.42.7.1 to \
             10.42.7.254"
                .into(),
        ),
        (
            "dhcp_range = '10.0.0.0-10.0.64.0'",
            format!(
                "c.toml:13:14: `mobile_router.lan.dhcp_range`: \"10.0.0.0-10.0.64.0\" has more than 16384 \
                 addresses, {range}"
            ),
        ),
        (
            "dhcp_lease = '1m'",
            "c.toml:13:14: `mobile_router.lan.dhcp_lease`: \"1m\" is out of range, expected a duration \
             from 2m to 30d such as \"12h\""
                .into(),
        ),
        (
            "dhcp_reservations = ['02:00:00:00:00:0a']",
            format!(
                "c.toml:13:22: `mobile_router.lan.dhcp_reservations`: \"02:00:00:00:00:0a\" does not have \
                 two or three words, {reservation}"
            ),
        ),
        (
            "dhcp_reservations = ['02:00:00:00:00:0a 10.42.7.9 Camera']",
            format!(
                "c.toml:13:22: `mobile_router.lan.dhcp_reservations`: \"02:00:00:00:00:0a 10.42.7.9 \
                 Camera\" has \"Camera\", which is no name of small letters, digits and hyphens, \
                 {reservation}"
            ),
        ),
        (
            "dhcp_reservations = ['02:00:00:00:00:0a 10.42.7.9', '02:00:00:00:00:0a 10.42.7.10']",
            "c.toml:13:53: 02:00:00:00:00:0a is reserved already at c.toml:13:22, expected another".into(),
        ),
        (
            "dhcp_reservations = ['02:00:00:00:00:0a 10.42.7.9', '02:00:00:00:00:0b 10.42.7.9']",
            "c.toml:13:53: 10.42.7.9 is reserved already at c.toml:13:22, expected another".into(),
        ),
        (
            "dhcp_reservations = ['02:00:00:00:00:0a 10.42.7.1']",
            "c.toml:13:22: 10.42.7.1 is carnet's own address, expected another".into(),
        ),
        (
            "dhcp_reservations = ['02:00:00:00:00:0a 10.42.8.9']",
            "c.toml:13:22: 10.42.8.9 is no host's address in 10.42.7.0/24, expected one from 10.42.7.1 to \
             10.42.7.254"
                .into(),
        ),
        (
            "dhcp_options = ['42 10.42.7.1']",
            format!(
                "c.toml:13:17: `mobile_router.lan.dhcp_options`: \"42 10.42.7.1\" does not have three \
                 parts, {option}"
            ),
        ),
        (
            "dhcp_options = ['51 hex 00000001']",
            format!(
                "c.toml:13:17: `mobile_router.lan.dhcp_options`: \"51 hex 00000001\" has the code 51, which \
                 carnet sets itself, {option}"
            ),
        ),
        (
            "dhcp_options = ['42 address ten']",
            format!(
                "c.toml:13:17: `mobile_router.lan.dhcp_options`: \"42 address ten\" has a value that does \
                 not fit its type, {option}"
            ),
        ),
        (
            "dhcp_options = ['42 hex 00', '42 hex 01']",
            "c.toml:13:30: 42 is set already at c.toml:13:17, expected another".into(),
        ),
        (
            "prefixes = ['10.43.0.0/24']",
            "c.toml:13:13: 10.43.0.0/24 is outside, expected a part of one of \
             `mobile_router.ipv4_prefixes`"
                .into(),
        ),
        (
            "prefixes = ['10.42.7.0/31']\ndhcp_lease = '1h'",
            "c.toml:14:14: 10.42.7.0/31 has no room for hosts, expected an IPv4 prefix of at most 30 bits"
                .into(),
        ),
        (
            "prefixes = ['10.42.7.0/24', '10.42.7.0/25']",
            "c.toml:13:29: 10.42.7.0/25 overlaps 10.42.7.0/24 at c.toml:13:13, expected prefixes that do \
             not overlap"
                .into(),
        ),
    ] {
        assert_eq!(refusals_of_lan(&lan_table(keys)), [expected], "{keys}");
    }
}

#[test]
fn interface_without_ipv4_prefix_has_no_values_for_ipv4() {
    let third = |keys: &str| {
        format!(
            "[[mobile_router.lan]]\ninterface = 'i1'\n[[mobile_router.lan]]\n\
                                      interface = 'i2'\n{}",
            lan_table(keys)
        )
    };
    assert_eq!(
        refusals_of_lan(&third("dhcp_lease = '1h'")),
        ["c.toml:17:14: this interface has no IPv4 prefix, expected one in `mobile_router.ipv4_prefixes`"]
    );
    let found = refusals_of_lan(&third("dns = ['192.0.2.53']"));
    let expected = "c.toml:17:8: 192.0.2.53 is for DHCP, but this interface has no IPv4 prefix";
    assert!(found.iter().any(|error| error.starts_with(expected)), "{found:?}");
    // Without Router Advertisements, the values reach hosts by DHCP.
    assert!(
        Config::parse(&config_with_lan(&lan_table("advertise = false\nsearch = ['bus']")), "c.toml").is_ok()
    );
}
