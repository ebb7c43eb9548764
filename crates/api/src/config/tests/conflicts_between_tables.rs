//! Refused configs whose values are valid alone but conflict, and refused whole files.

use super::super::Config;
use super::SMALL_ROUTER_CONFIG;
use super::errors::{check_errors, errors};

#[test]
fn contradicting_values_of_several_sections_are_refused() {
    check_errors(&[
        (
            "\"2001:db8:1::1234\"",
            "\"2001:db8:9::1234\"",
            &["c.toml:30:16: home address 2001:db8:9::1234 is outside, expected an address in \
                 2001:db8:1::/64 or in one of the prefixes"],
        ),
        (
            "\"2001:db8:2::1234\"",
            "\"2001:db8:9::1234\"",
            &["c.toml:20:16: home address 2001:db8:9::1234 is outside, expected an address in \
                 2001:db8:2::/64 or in one of the prefixes"],
        ),
        (
            "\"2001:db8:2::1234\"",
            "\"fd00:2::1\"",
            &[
                "c.toml:20:16: home address fd00:2::1 is outside, expected an address in 2001:db8:2::/64 or \
                 in one of the prefixes",
                "c.toml:25:16: fd00:2::1 is the home address at c.toml:20:16, expected another",
            ],
        ),
        (
            "\"2001:db8:2::1234\"",
            "\"2001:db8:2::1\"",
            &["c.toml:20:16: 2001:db8:2::1 is the home agent at c.toml:12:11, expected another"],
        ),
        (
            "\"2001:db8:1::1234\"",
            "\"2001:db8:1::1\"",
            &["c.toml:32:14: 2001:db8:1::1 is the home address at c.toml:30:16, expected another"],
        ),
        (
            "\"2001:db8:c::/64\", ",
            "\"2001:db8:c::/64\", \"2001:db8:c::/65\", ",
            &["c.toml:21:32: 2001:db8:c::/65 overlaps 2001:db8:c::/64 at c.toml:21:13, expected prefixes \
                 that do not overlap"],
        ),
        (
            "[\"fd00:2::/64\"]",
            "[\"fd00:2::/64\", \"2001:db8::/44\"]",
            &[
                "c.toml:26:28: 2001:db8::/44 contains the home agent 2001:db8:2::1 at c.toml:12:11, expected \
                 a prefix without it",
                "c.toml:26:28: 2001:db8::/44 overlaps 2001:db8:c::/64 at c.toml:21:13, expected prefixes \
                 that do not overlap",
            ],
        ),
        (
            "\"fd00:1:2::/48\"",
            "\"2001:db8:2::/48\"",
            &["c.toml:21:32: 2001:db8:2::/48 contains the home agent 2001:db8:2::1 at c.toml:12:11, \
                 expected a prefix without it"],
        ),
        (
            "[\"2001:db8:a::/64\"]",
            "[\"2001:db8:a::/64\", \"2001:db8:a::/64\"]",
            &["c.toml:33:32: 2001:db8:a::/64 overlaps 2001:db8:a::/64 at c.toml:33:13, expected prefixes \
                 that do not overlap"],
        ),
        (
            "[\"2001:db8:a::/64\"]",
            "[\"2001:db8:1::/64\"]",
            &["c.toml:33:13: 2001:db8:1::/64 contains the home agent 2001:db8:1::1 at c.toml:32:14, \
                 expected a prefix without it"],
        ),
        (
            "[\"2001:db8:a::/64\"]\nregistration",
            "[]\nregistration",
            &["c.toml:36:8: the mobile network has no prefix, expected `mobile_router.prefixes`"],
        ),
        (
            "[\"2001:db8:a::/64\"]\nregistration = \"implicit\"\nlifetime = \"63s\"\nlan = [\"i0\", \
             \"i1\"]\nadvertise = false",
            "[\"2001:db8:a::/65\", \"2001:db8:b::/64\"]\nlan = [\"i0\"]",
            &["c.toml:33:13: 2001:db8:a::/65 is too long for Router Advertisements, expected /64 or \
                 shorter, or advertise = false"],
        ),
        (
            "\"wwan0\"",
            "\"wlan0\"",
            &["c.toml:45:13: \"wlan0\" is an uplink already at c.toml:41:13, expected another"],
        ),
        (
            "[\"i0\", \"i1\"]",
            "[\"i0\", \"wwan0\", \"i0\"]",
            &[
                "c.toml:36:14: \"wwan0\" is an uplink already at c.toml:45:13, expected another",
                "c.toml:36:23: \"i0\" is in the lan already at c.toml:36:8, expected another",
            ],
        ),
        (
            "address = \"2001:db8:2::1\"",
            "address = \"2001:db8:1::1\"",
            &["c.toml:32:14: 2001:db8:1::1 is this station's own home agent at c.toml:12:11, expected \
                 another home agent"],
        ),
        (
            "home_agent = \"2001:db8:1::1\"",
            "home_agent = \"2001:db8:2::1\"",
            &["c.toml:32:14: 2001:db8:2::1 is this station's own home agent at c.toml:12:11, expected \
                 another home agent"],
        ),
        (
            "\"fd00:2::1\"",
            "\"2001:db8:1::1234\"",
            &[
                "c.toml:25:16: home address 2001:db8:1::1234 is outside, expected an address in \
                 2001:db8:2::/64 or in one of the prefixes",
                "c.toml:25:16: 2001:db8:1::1234 is this station's own home address at c.toml:30:16, expected \
                 another",
            ],
        ),
        (
            "[[home_agent.mobile_router]]\nhome_address = \"2001:db8:2::1234\"",
            "[home_agent.mobile_router]\nhome_address = \"2001:db8:2::1234\"",
            &["c.toml:24:14: duplicate key `mobile_router`, expected it once"],
        ),
    ]);
}

#[test]
fn example_config_files_are_accepted() {
    let cases: &[(&str, &[&str])] = &[
        (
            "[station]\nname = \"a\"\n[conformance]\nupper_tester = \"127.0.0.1:1\"\n",
            &[
                "c.toml:1:1: the station has no role, expected [home_agent], [mobile_router], [mobile_node] \
                 or [geonet]",
                "c.toml:3:1: the upper tester needs GeoNetworking, expected a section [geonet]",
            ],
        ),
        (
            "",
            &[
                "c.toml:1:1: `station` is missing, expected a table [station] with a `name`",
                "c.toml:1:1: the station has no role, expected [home_agent], [mobile_router], [mobile_node] \
                 or [geonet]",
            ],
        ),
        (
            "# nothing\n",
            &[
                "c.toml:1:1: `station` is missing, expected a table [station] with a `name`",
                "c.toml:1:1: the station has no role, expected [home_agent], [mobile_router], [mobile_node] \
                 or [geonet]",
            ],
        ),
        (
            "[station]\nname = \"a\"\n",
            &["c.toml:1:1: the station has no role, expected [home_agent], [mobile_router], [mobile_node] \
                 or [geonet]"],
        ),
        (
            "station = 1\n",
            &[
                "c.toml:1:1: the station has no role, expected [home_agent], [mobile_router], [mobile_node] \
                 or [geonet]",
                "c.toml:1:11: `station`: an integer is not permitted here, expected a table [station]",
            ],
        ),
        (
            "[[station]]\nname = \"a\"\n",
            &[
                "c.toml:1:1: `station`: an array is not permitted here, expected a table [station]",
                "c.toml:1:1: the station has no role, expected [home_agent], [mobile_router], [mobile_node] \
                 or [geonet]",
            ],
        ),
        (
            "[station]\nname = \"a\"\nname = \"b\"\n[station]\n",
            &[
                "c.toml:3:1: duplicate key `name`, expected it once",
                "c.toml:4:2: duplicate key `station`, expected it once",
            ],
        ),
        (
            "[station]\nname = bus\nsocket =\n\t[home\n",
            &[
                "c.toml:2:8: bus is no TOML value, expected a string in quotes: name = \"bus\"",
                "c.toml:3:9: string values must be quoted, expected literal string",
                "c.toml:4:7: unclosed table, expected `]`",
            ],
        ),
        (
            "[station]\n\"é\" = 1\n",
            &[
                "c.toml:1:1: `station.name` is missing, expected 1 to 63 letters, digits, `.`, `_` or `-`, \
                 with a letter or digit first",
                "c.toml:1:1: the station has no role, expected [home_agent], [mobile_router], [mobile_node] \
                 or [geonet]",
                "c.toml:2:1: unknown key `é` in [station], expected `name`, `socket`, `state_dir`, \
                 `private_key_file`, `record`, \
                 `http`, `http_tokens`, `http_pages` or `sandbox`",
            ],
        ),
        (
            "[station]\nname = 'a'\n[home_agent]\naddress = 'fd00::1'\nhome_prefix = \
             'fd00::/64'\n[home_agent.mobile_router]\nauth = 'none'\n",
            &["c.toml:6:1: `home_agent.mobile_router`: a table is not permitted here, expected tables \
                 [[home_agent.mobile_router]]"],
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(errors(text), *expected, "{text}");
    }
}

/// If two errors are at the first octet of the file, they must be in the order of the sections.
#[test]
fn config_errors_of_one_line_are_in_the_order_of_the_sections() {
    let found = errors("mobile_node.udp = true\n[mobile_router]\n");
    assert_eq!(
        &found[..2],
        [
            "c.toml:1:1: `station` is missing, expected a table [station] with a `name`",
            "c.toml:1:1: `mobile_node`: found [mobile_router] and [mobile_node], expected one of the two",
        ]
    );
}

#[test]
fn all_errors_of_a_file_are_reported_together() {
    let text = SMALL_ROUTER_CONFIG
        .replace("\"bus-42\"", "\"bus 42\"")
        .replace("2001:db8:1::1234", "fe80::1")
        .replace("auth = \"none\"", "colour = \"red\"")
        .replace("wlan0", "wlan0-and-too-long");
    assert_eq!(
        errors(&text),
        [
            "c.toml:3:8: `station.name`: \"bus 42\" is no name, expected 1 to 63 letters, digits, `.`, `_` \
             or `-`, with a letter or digit first",
            "c.toml:4:1: `mobile_router.auth` is missing, expected authentication to be chosen: \
             { public_key = \"...\" }, { spi = 300, key = \"...\" }, \"ipsec\" or \"none\", or \
             `home_agent_key`",
            "c.toml:5:16: `mobile_router.home_address`: fe80::1 is link-local, expected a global or unique \
             local unicast address such as \"2001:db8:1::1\"",
            "c.toml:8:1: unknown key `colour` in [mobile_router], expected `home_address`, `home_prefix`, \
             `home_agent`, `home_agent_ipv4`, `udp`, `heartbeat`, `heartbeat_idle`, `prefixes`, \
             `ipv4_prefixes`, `registration`, `lifetime`, `lan`, `advertise`, `dns_forward`, \
             `when_home_agent_is_away`, `own_traffic`, `nesting`, \
             `nested_routers`, `direct_routes`, `direct_encryption`, `prefix_discovery`, \
             `captive_portal_probe`, `auth`, \
             `home_agent_key`, `preshared_key_file`, `home_agent_port`, \
             `uplink` or `policy`",
            "c.toml:9:25: `mobile_router.uplink.interface`: \"wlan0-and-too-long\" is too long, expected an \
             interface name of 1 to 15 characters",
        ]
    );
}

/// Config keys that cannot be combined with IPsec: IPsec works between two fixed addresses, and the kernel
/// must process all packets.
#[test]
fn config_keys_that_ipsec_excludes_are_refused() {
    let config = |path: &str, home_agent: &str, more: &str| {
        format!(
            "[station]\nname = 'bus'\n[dataplane]\npath = '{path}'\n[mobile_router]\nhome_address = \
             '2001:db8:1::1234'\nhome_prefix = '2001:db8:1::/64'\nhome_agent = {home_agent}\nprefixes = \
             ['2001:db8:a::/64']\nauth = 'ipsec'\n{more}[[mobile_router.uplink]]\ninterface = 'wlan0'\n"
        )
    };
    let one = "'2001:db8:1::1'";
    let parsed = Config::parse(&config("tun", one, ""), "c.toml").expect("a config");
    assert!(parsed.has_ipsec());
    for (text, expected) in [
        (
            config("kernel", one, ""),
            "c.toml:10:8: with the kernel's tunnel devices packets bypass IPsec, expected another \
             `dataplane.path` than \"kernel\"",
        ),
        (
            config("tun", "['2001:db8:1::1', '2001:db8:1::2']", ""),
            "c.toml:10:8: IPsec supports only one home agent, expected only its address in `home_agent`",
        ),
        (
            config("tun", "'discover'", ""),
            "c.toml:10:8: IPsec supports only one home agent, expected only its address in `home_agent`",
        ),
        (
            config("tun", one, "home_agent_ipv4 = '192.0.2.1'\n"),
            "c.toml:10:8: IPsec does not protect messages inside IPv4, expected no `home_agent_ipv4`",
        ),
    ] {
        assert_eq!(errors(&text), [expected]);
    }
    let agent = "[station]\nname = 'home'\n[home_agent]\naddress = '2001:db8:1::1'\nhome_prefix = \
                 '2001:db8:1::/64'\n[[home_agent.peer]]\naddress = \
                 '2001:db8:1::2'\n[[home_agent.mobile_router]]\nhome_address = '2001:db8:1::1234'\nauth = \
                 'ipsec'\n";
    assert_eq!(
        errors(agent),
        ["c.toml:10:8: IPsec supports only one home agent, expected no \
                                [[home_agent.peer]]"]
    );
}
