//! Refused keys and values: each case is one change of a good config, with all lines of the error.

use super::{CONFIG_WITH_EVERY_KEY, Config, TcpApi};

pub(super) fn errors(text: &str) -> Vec<String> {
    match Config::parse(text, "c.toml") {
        Ok(config) => panic!("accepted: {config:?}"),
        Err(errors) => errors.to_string().lines().map(str::to_owned).collect(),
    }
}

/// Makes one replacement in [`CONFIG_WITH_EVERY_KEY`] for each case, and compares the errors.
pub(super) fn check_errors(cases: &[(&str, &str, &[&str])]) {
    for (from, to, expected) in cases {
        assert_eq!(CONFIG_WITH_EVERY_KEY.matches(from).count(), 1, "{from} is not one place");
        assert_eq!(errors(&CONFIG_WITH_EVERY_KEY.replace(from, to)), *expected, "{from} -> {to}");
    }
}

#[test]
fn http_port_beyond_loopback_needs_tokens() {
    let http = |text: &str| {
        let lines = format!("http = {text}\nrecord = ");
        Config::parse(&CONFIG_WITH_EVERY_KEY.replace("record = ", &lines), "c.toml")
            .map(|config| config.station.tcp_api)
    };
    let good = |address: &str, tokens: Option<&str>| {
        Some(TcpApi {
            address: address.parse().expect("an address"),
            token_file: tokens.map(Into::into),
            dashboard_directory: "/usr/share/carnet/web".into(),
        })
    };
    assert_eq!(http("\"127.0.0.1:8440\"").expect("good"), good("127.0.0.1:8440", None));
    let tokens = "\"[2001:db8::1]:8440\"\nhttp_tokens = \"/etc/carnet/tokens\"";
    assert_eq!(http(tokens).expect("good"), good("[2001:db8::1]:8440", Some("/etc/carnet/tokens")));
    check_errors(&[
        (
            "record = ",
            "http = \"0.0.0.0:8440\" # ",
            &["c.toml:6:8: `station.http`: \"0.0.0.0:8440\" can be reached from afar, expected a loopback \
                 address, or http_tokens beside it"],
        ),
        (
            "record = ",
            "http = \"8440\" # ",
            &["c.toml:6:8: `station.http`: \"8440\" is no address with a port, expected an address of this \
                 machine with a port, such as \"127.0.0.1:8440\""],
        ),
        (
            "record = ",
            "http_tokens = ",
            &["c.toml:6:15: `station.http_tokens`: without `station.http`, expected both"],
        ),
    ]);
}

#[test]
fn unknown_config_keys_are_errors_with_a_suggestion() {
    check_errors(&[
        ("record = ", "recrod = ", &["c.toml:6:1: unknown key `recrod` in [station], expected `record`"]),
        (
            "record = ",
            "flavour = ",
            &["c.toml:6:1: unknown key `flavour` in [station], expected `name`, `socket`, `state_dir`, \
                 `private_key_file`, \
                 `record`, `http`, `http_tokens`, `http_pages` or `sandbox`"],
        ),
        (
            "[dataplane]\npath = \"tun\"",
            "[datplane]\npath = \"tun\"",
            &["c.toml:8:2: unknown key `datplane` in the config, expected `dataplane`"],
        ),
        (
            "[dataplane]\npath = \"tun\"",
            "[conformence]\nupper_tester = 1",
            &["c.toml:8:2: unknown key `conformence` in the config, expected `conformance`"],
        ),
        (
            "upper_tester = \"[::1]:12345\"\nanywhere = true",
            "upper_tester = \"[2001:db8::1]:12345\"",
            &["c.toml:77:16: `conformance.upper_tester`: \"[2001:db8::1]:12345\" is reachable from other \
               networks, expected a loopback or link-local address, or anywhere = true"],
        ),
        (
            "upper_tester = \"[::1]:12345\"",
            "upper_tester = \"[::1]:0\"",
            &["c.toml:77:16: `conformance.upper_tester`: \"[::1]:0\" is no address to listen on, expected \
                 [IPV6]:PORT or IPV4:PORT of this machine"],
        ),
        (
            "upper_tester = \"[::1]:12345\"",
            "upper_tester = \"localhost\"",
            &["c.toml:77:16: `conformance.upper_tester`: \"localhost\" is no address with a port, expected \
                 [IPV6]:PORT or IPV4:PORT"],
        ),
        (
            "replay = \"timestamp\"",
            "reply = \"timestamp\"",
            &[
                "c.toml:22:63: unknown key `reply` in auth, expected `replay`",
                "c.toml:22:93: `auth.window`: a window needs timestamps, expected replay = \
                 \"timestamp\" beside it",
            ],
        ),
        (
            "path = \"tun\"",
            "path = \"fast\"",
            &["c.toml:9:8: `dataplane.path`: \"fast\" is not known, expected \"auto\", \"bpf\", \"xdp\", \
                 \"kernel\" or \"tun\""],
        ),
        (
            "home_agent = \"2001:db8:1::1\"",
            "home_agent = [\"2001:db8:1::1\", \"2001:db8:1::2\", \"2001:db8:1::1\"]",
            &[
                "c.toml:32:49: 2001:db8:1::1 is there at c.toml:32:15 already, expected another",
                "c.toml:38:8: with one key for several home agents an attacker can replay Binding Updates \
                 to one at another, expected per_agent = true",
                "c.toml:39:19: there are 1 IPv4 addresses for 3 home agents, expected one for each in \
                 `home_agent`",
            ],
        ),
        (
            "ipv4_address = \"192.0.2.2\"",
            "peer = [{ address = \"2001:db8:2::9\" }, { address = \"2001:db8:2::9\" }]",
            &[
                "c.toml:18:52: 2001:db8:2::9 is a peer already at c.toml:18:21, expected another",
                "c.toml:22:8: with a [[home_agent.peer]] the key must say whether it differs for each home \
                 agent, expected per_agent = true, or per_agent = false for a key that no other home agent \
                 has",
            ],
        ),
        (
            "ipv4_address = \"192.0.2.2\"",
            "peer = [{ address = \"2001:db8:2::1\" }]",
            &[
                "c.toml:18:21: 2001:db8:2::1 is this home agent at c.toml:12:11, expected another",
                "c.toml:22:8: with a [[home_agent.peer]] the key must say whether it differs for each home \
                 agent, expected per_agent = true, or per_agent = false for a key that no other home agent \
                 has",
            ],
        ),
        (
            "home_agent = \"2001:db8:1::1\"",
            "home_agent = []",
            &["c.toml:32:14: `mobile_router.home_agent`: found no home agent, expected an address, \
                 \"discover\", or an array of addresses"],
        ),
        (
            "prefixes = [\"fd00:2::/64\"]\nauth = \"none\"",
            "prefixes = [\"fd00:2::/64\"]\nauth = \"psk\"",
            &["c.toml:27:8: `home_agent.mobile_router.auth`: \"psk\" is not known, expected authentication \
                 to be chosen: { public_key = \"...\" }, { spi = 300, key = \"...\" }, \"ipsec\" or \
                 \"none\""],
        ),
        (
            "registration = \"implicit\"",
            "registration = \"Implicit\"",
            &["c.toml:34:16: `mobile_router.registration`: \"Implicit\" is not known, expected \
                 \"explicit\" or \"implicit\""],
        ),
    ]);
}

#[test]
fn invalid_single_values_are_reported_with_line_and_column() {
    check_errors(&[
        (
            "name = \"bus-42\"",
            "name = \"bus/42\"",
            &["c.toml:3:8: `station.name`: \"bus/42\" is no name, expected 1 to 63 letters, digits, `.`, \
                 `_` or `-`, with a letter or digit first"],
        ),
        (
            "name = \"bus-42\"",
            "name = \"\"",
            &["c.toml:3:8: `station.name`: \"\" is no name, expected 1 to 63 letters, digits, `.`, `_` or \
                 `-`, with a letter or digit first"],
        ),
        (
            "name = \"bus-42\"",
            "name = 42",
            &["c.toml:3:8: `station.name`: an integer is not permitted here, expected 1 to 63 letters, \
               digits, \
                 `.`, `_` or `-`, with a letter or digit first"],
        ),
        (
            "\"/run/carnet/x.sock\"",
            "\"\"",
            &["c.toml:4:10: `station.socket`: the path is empty, expected a path"],
        ),
        (
            "\"/run/carnet/x.sock\"",
            "\"/run/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\
             xxxxxxxxxxxxxx\"",
            &["c.toml:4:10: `station.socket`: the path has 108 octets, expected 107 at most for a socket"],
        ),
        (
            "home_agent = \"2001:db8:1::1\"",
            "home_agent = \"192.0.2.1\"",
            &["c.toml:32:14: `mobile_router.home_agent`: \"192.0.2.1\" is an IPv4 address, expected a \
                 global or unique local unicast address such as \"2001:db8:1::1\""],
        ),
        (
            "home_agent = \"2001:db8:1::1\"",
            "home_agent = \"2001:db8:1::1/64\"",
            &["c.toml:32:14: `mobile_router.home_agent`: \"2001:db8:1::1/64\" is a prefix, expected a \
                 global or unique local unicast address such as \"2001:db8:1::1\""],
        ),
        (
            "home_agent = \"2001:db8:1::1\"",
            "home_agent = \"ha.example\"",
            &["c.toml:32:14: `mobile_router.home_agent`: \"ha.example\" is no IPv6 address, expected a \
                 global or unique local unicast address such as \"2001:db8:1::1\""],
        ),
        (
            "home_agent = \"2001:db8:1::1\"",
            "home_agent = \"fe80::1\"",
            &["c.toml:32:14: `mobile_router.home_agent`: fe80::1 is link-local, expected a global or \
                 unique local unicast address such as \"2001:db8:1::1\""],
        ),
        (
            "home_agent = \"2001:db8:1::1\"",
            "home_agent = \"ff02::1\"",
            &["c.toml:32:14: `mobile_router.home_agent`: ff02::1 is multicast, expected a global or unique \
                 local unicast address such as \"2001:db8:1::1\""],
        ),
        (
            "home_agent = \"2001:db8:1::1\"",
            "home_agent = \"::\"",
            &["c.toml:32:14: `mobile_router.home_agent`: :: is unspecified, expected a global or unique \
                 local unicast address such as \"2001:db8:1::1\""],
        ),
        (
            "home_agent = \"2001:db8:1::1\"",
            "home_agent = \"::1\"",
            &["c.toml:32:14: `mobile_router.home_agent`: ::1 is loopback, expected a global or unique \
                 local unicast address such as \"2001:db8:1::1\""],
        ),
        (
            "home_agent = \"2001:db8:1::1\"",
            "home_agent = \"::ffff:192.0.2.1\"",
            &["c.toml:32:14: `mobile_router.home_agent`: ::ffff:192.0.2.1 is IPv4-mapped, expected a \
                 global or unique local unicast address such as \"2001:db8:1::1\""],
        ),
        (
            "home_agent = \"2001:db8:1::1\"",
            "home_agent = \"fec0::1\"",
            &["c.toml:32:14: `mobile_router.home_agent`: fec0::1 is site-local (deprecated by RFC 3879), \
                 expected a global or unique local unicast address such as \"2001:db8:1::1\""],
        ),
        (
            "home_agent = \"2001:db8:1::1\"",
            "home_agent = 7",
            &["c.toml:32:14: `mobile_router.home_agent`: an integer is not permitted here, expected a \
               global or \
                 unique local unicast address such as \"2001:db8:1::1\""],
        ),
        (
            "home_prefix = \"2001:db8:1::/64\"",
            "home_prefix = \"2001:db8:1::1/64\"",
            &["c.toml:31:15: `mobile_router.home_prefix`: 2001:db8:1::1/64 has host bits that are not \
                 zero, expected 2001:db8:1::/64"],
        ),
        (
            "home_prefix = \"2001:db8:1::/64\"",
            "home_prefix = \"2001:db8:1::\"",
            &["c.toml:31:15: `mobile_router.home_prefix`: \"2001:db8:1::\" is an address without a prefix \
                 length, expected a prefix such as \"2001:db8:a::/64\""],
        ),
        (
            "home_prefix = \"2001:db8:1::/64\"",
            "home_prefix = \"2001:db8:1::/129\"",
            &["c.toml:31:15: `mobile_router.home_prefix`: \"2001:db8:1::/129\" is no IPv6 prefix, expected \
                 a prefix such as \"2001:db8:a::/64\""],
        ),
        (
            "\"2001:db8:a::/64\"",
            "\"::/0\"",
            &["c.toml:33:13: `mobile_router.prefixes`: ::/0 is everything, expected a global or unique \
                 local unicast prefix"],
        ),
        (
            "\"2001:db8:a::/64\"",
            "\"ff0e::/16\"",
            &["c.toml:33:13: `mobile_router.prefixes`: ff0e::/16 is multicast, expected a global or unique \
                 local unicast prefix"],
        ),
        (
            "\"2001:db8:a::/64\"",
            "\"2001:db8:a::/64\", 7, \"é\", \"fe80::/64\"",
            &[
                "c.toml:33:32: `mobile_router.prefixes`: an integer is not permitted here, expected a \
                 prefix such \
                 as \"2001:db8:a::/64\"",
                "c.toml:33:35: `mobile_router.prefixes`: \"é\" is no IPv6 prefix, expected a prefix such as \
                 \"2001:db8:a::/64\"",
                "c.toml:33:40: `mobile_router.prefixes`: fe80::/64 is link-local, expected a global or \
                 unique local unicast prefix",
            ],
        ),
        (
            "prefixes = [\"2001:db8:a::/64\"]",
            "prefixes = \"2001:db8:a::/64\"",
            &["c.toml:33:12: `mobile_router.prefixes`: a string is not permitted here, expected an \
                 array of prefixes"],
        ),
        (
            "lifetime = \"63s\"",
            "lifetime = \"3s\"",
            &["c.toml:35:12: `mobile_router.lifetime`: \"3s\" is out of range, expected 4s to 262140s"],
        ),
        (
            "lifetime = \"63s\"",
            "lifetime = \"73h\"",
            &["c.toml:35:12: `mobile_router.lifetime`: \"73h\" is out of range, expected 4s to 262140s"],
        ),
        (
            "lifetime = \"63s\"",
            "lifetime = 60",
            &["c.toml:35:12: `mobile_router.lifetime`: an integer is not permitted here, expected a \
                 duration such as \"60s\", \"10m\" or \"1h30m\""],
        ),
        (
            "max_lifetime = \"1h30m\"",
            "max_lifetime = \"90\"",
            &["c.toml:15:16: `home_agent.max_lifetime`: \"90\" is no duration, expected a duration such as \
                 \"60s\", \"10m\" or \"1h30m\""],
        ),
        (
            "preference = 10",
            "preference = 65536",
            &["c.toml:16:14: `home_agent.preference`: 65536 is out of range, expected an integer from 0 to \
                 65535"],
        ),
        (
            "preference = 10",
            "preference = -1",
            &["c.toml:16:14: `home_agent.preference`: -1 is out of range, expected an integer from 0 to \
                 65535"],
        ),
        (
            "priority = 127",
            "priority = 0",
            &["c.toml:42:12: `mobile_router.uplink.priority`: 0 is out of range, expected an integer from \
                 1 to 127"],
        ),
        (
            "priority = 127",
            "priority = 128",
            &["c.toml:42:12: `mobile_router.uplink.priority`: 128 is out of range, expected an integer \
                 from 1 to 127"],
        ),
        (
            "{ good = -49, poor = -69 }",
            "{ good = -69, poor = -49 }",
            &["c.toml:43:31: `mobile_router.uplink.signal.poor`: -49 dBm is not less than `good`, expected \
                 less than -69"],
        ),
        (
            "{ good = -49, poor = -69 }",
            "{ good = 490, poor = -69 }",
            &["c.toml:43:19: `mobile_router.uplink.signal.good`: 490 is out of range, expected an integer \
                 from -200 to 100"],
        ),
        (
            "{ good = -49, poor = -69 }",
            "{ good = -49 }",
            &["c.toml:43:10: `mobile_router.uplink.signal.poor` is missing, expected an integer from -200 \
                 to 100"],
        ),
        (
            "priority = 127",
            "priority = \"high\"",
            &["c.toml:42:12: `mobile_router.uplink.priority`: a string is not permitted here, expected an \
                 integer from 1 to 127"],
        ),
        (
            "home_link = \"h0\"",
            "home_link = \"a-very-long-name\"",
            &["c.toml:14:13: `home_agent.home_link`: \"a-very-long-name\" is too long, expected an \
                 interface name of 1 to 15 characters"],
        ),
        (
            "home_link = \"h0\"",
            "home_link = \"a b\"",
            &["c.toml:14:13: `home_agent.home_link`: \"a b\" has the character ' ', expected an interface \
                 name of 1 to 15 characters"],
        ),
        (
            "home_link = \"h0\"",
            "home_link = \"\"",
            &["c.toml:14:13: `home_agent.home_link`: \"\" is empty, expected an interface name of 1 to 15 \
                 characters"],
        ),
        (
            "advertise = false",
            "advertise = \"no\"",
            &["c.toml:37:13: `mobile_router.advertise`: a string is not permitted here, expected true or \
               false"],
        ),
        (
            "spi = 256",
            "spi = 255",
            &["c.toml:22:16: `auth.spi`: 255 is out of range, expected an integer from 256 to 4294967295"],
        ),
        (
            "spi = 256",
            "spi = 4294967296",
            &["c.toml:22:16: `auth.spi`: 4294967296 is out of range, expected an integer from 256 to \
                 4294967295"],
        ),
        (
            "key = \"000102030405060708090a0b0c0d0e0f\"",
            "key = \"0001\"",
            &["c.toml:22:27: `auth.key`: the key has 4 digits, expected 32 hexadecimal digits (16 octets)"],
        ),
        (
            "key = \"000102030405060708090a0b0c0d0e0f\"",
            "key = \"000102030405060708090a0b0c0d0e0x\"",
            &["c.toml:22:27: `auth.key`: the key has the character 'x', expected 32 hexadecimal digits (16 \
                 octets)"],
        ),
        (
            "key = \"000102030405060708090a0b0c0d0e0f\"",
            "key = 1",
            &["c.toml:22:27: `auth.key`: an integer is not permitted here, expected 32 hexadecimal digits \
               (16 \
                 octets)"],
        ),
        (
            "window = \"10s\"",
            "window = \"0s\"",
            &["c.toml:22:94: `auth.window`: \"0s\" is too short, expected a duration above zero"],
        ),
        (
            "replay = \"timestamp\"",
            "replay = \"sequence\"",
            &["c.toml:22:93: `auth.window`: a window needs timestamps, expected replay = \
                 \"timestamp\" beside it"],
        ),
        (
            "replay = \"timestamp\"",
            "replay = \"never\"",
            &["c.toml:22:72: `auth.replay`: \"never\" is not known, expected \"sequence\" or \"timestamp\""],
        ),
        (
            "dhaad = false",
            "dhaad = \"no\"",
            &["c.toml:17:9: `home_agent.dhaad`: a string is not permitted here, expected true or false"],
        ),
    ]);
}

#[test]
fn missing_required_keys_are_reported() {
    check_errors(&[
        (
            "name = \"bus-42\"\n",
            "",
            &["c.toml:2:1: `station.name` is missing, expected 1 to 63 letters, digits, `.`, `_` or `-`, \
                 with a letter or digit first"],
        ),
        (
            "home_agent = \"2001:db8:1::1\"\n",
            "",
            &["c.toml:29:1: `mobile_router.home_agent` is missing, expected a global or unique local \
                 unicast address such as \"2001:db8:1::1\""],
        ),
        (
            "address = \"2001:db8:2::1\"\n",
            "",
            &["c.toml:11:1: `home_agent.address` is missing, expected a global or unique local unicast \
                 address such as \"2001:db8:1::1\""],
        ),
        (
            "interface = \"wwan0\"\n",
            "",
            &["c.toml:44:1: `mobile_router.uplink.interface` is missing, expected an interface name of 1 \
                 to 15 characters"],
        ),
        (
            "prefixes = [\"fd00:2::/64\"]\nauth = \"none\"",
            "prefixes = [\"fd00:2::/64\"]",
            &["c.toml:24:1: `home_agent.mobile_router.auth` is missing, expected authentication to be \
                 chosen: { public_key = \"...\" }, { spi = 300, key = \"...\" }, \"ipsec\" or \"none\""],
        ),
        (
            "spi = 256, ",
            "",
            &["c.toml:22:8: `auth.spi` is missing, expected an integer from 256 to 4294967295"],
        ),
        (
            "key = \"000102030405060708090a0b0c0d0e0f\", ",
            "",
            &["c.toml:22:8: `auth.key` is missing, expected 32 hexadecimal digits (16 octets) or a \
                 `key_file`"],
        ),
        (
            "key = \"000102030405060708090a0b0c0d0e0f\"",
            "key = \"000102030405060708090a0b0c0d0e0f\", key_file = \"k\"",
            &["c.toml:22:74: `auth.key_file`: found both `key` and `key_file`, expected one of them"],
        ),
        (
            "[[mobile_router.uplink]]\ninterface = \"wlan0\"\npriority = 127\nsignal = \
             { good = -49, poor = -69 }\n[[mobile_router.uplink]]\ninterface = \"wwan0\"\nsignal_file = \
             \"/run/modem/signal\"\n",
            "",
            &["c.toml:29:1: `mobile_router.uplink` is missing, expected at least one table \
                 [[mobile_router.uplink]]"],
        ),
        (
            "[[mobile_router.uplink]]\ninterface = \"wlan0\"\npriority = 127\nsignal = \
             { good = -49, poor = -69 }\n[[mobile_router.uplink]]\ninterface = \"wwan0\"\nsignal_file = \
             \"/run/modem/signal\"\n",
            "uplink = []\n",
            &["c.toml:40:10: `mobile_router.uplink`: found no uplink, expected at least one table \
                 [[mobile_router.uplink]]"],
        ),
        (
            "[[mobile_router.uplink]]\ninterface = \"wlan0\"\npriority = 127\nsignal = \
             { good = -49, poor = -69 }\n[[mobile_router.uplink]]\ninterface = \"wwan0\"\nsignal_file = \
             \"/run/modem/signal\"\n",
            "uplink = \"wlan0\"\n",
            &["c.toml:40:10: `mobile_router.uplink`: a string is not permitted here, expected tables \
                 [[mobile_router.uplink]]"],
        ),
    ]);
}

#[test]
fn captive_portal_probe_is_a_plain_url_with_an_address() {
    let probe = |url: &str| {
        let text = CONFIG_WITH_EVERY_KEY
            .replace("[mobile_router]\n", &format!("[mobile_router]\ncaptive_portal_probe = \"{url}\"\n"));
        Config::parse(&text, "c.toml")
            .map(|config| config.mobile_router.and_then(|it| it.captive_portal_probe))
    };
    for (url, address, authority, path) in [
        ("http://192.0.2.80/generate_204", "192.0.2.80:80", "192.0.2.80", "/generate_204"),
        ("http://192.0.2.80", "192.0.2.80:80", "192.0.2.80", "/"),
        ("http://[2001:db8:80::1]:8080/?a=b", "[2001:db8:80::1]:8080", "[2001:db8:80::1]:8080", "/?a=b"),
        ("http://[2001:db8:80::1]/", "[2001:db8:80::1]:80", "[2001:db8:80::1]", "/"),
    ] {
        let found = probe(url).expect("good").expect("a URL");
        assert_eq!(
            (found.address.to_string().as_str(), found.host_and_port.as_str()),
            (address, authority),
            "{url}"
        );
        assert_eq!(found.path, path);
    }
    for (url, what) in [
        ("https://192.0.2.80/", "does not begin with http://"),
        ("http://portal.example/", "does not name the host by its address"),
        ("http://2001:db8::1/", "does not name the host by its address"),
        ("http://[192.0.2.80]/", "does not name the host by its address"),
        ("http://192.0.2.80:99999/", "does not name the host by its address"),
        ("http://192.0.2.80:0/", "has an address to which no packet can be sent"),
        ("http://127.0.0.1/", "has an address to which no packet can be sent"),
        ("http://[fe80::1]/", "has an address to which no packet can be sent"),
        ("http://192.0.2.80/a b", "has characters that no URL has"),
        ("http://192.0.2.80/\\r\\nX: y", "has characters that no URL has"),
        (&format!("http://192.0.2.80/{}", "x".repeat(240)), "the URL has 258 octets"),
    ] {
        let error = probe(url).expect_err(url).to_string();
        assert!(error.contains(what), "{url}: {error}");
    }
}
