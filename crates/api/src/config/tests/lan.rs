//! `[[mobile_router.lan]]`: accepted and refused tables.

use super::super::{AllowedPackets, Dhcp, InboundFilter, InboundPolicy, PolicyProtocol, disclose_config};
use super::*;

/// Returns the config of a mobile router with two prefixes; `lan` begins on line 10.
fn config_with_lan(lan: &str) -> String {
    format!(
        "[station]\nname = \"n\"\n[mobile_router]\nhome_address = \"2001:db8:1::1234\"\nhome_prefix = \
         \"2001:db8:1::/64\"\nhome_agent = \"2001:db8:1::1\"\nauth = \"none\"\nprefixes = \
         [\"2001:db8:a::/64\", \"2001:db8:b::/56\"]\nuplink = [{{ interface = \"wlan0\" }}]\n{lan}\n"
    )
}

fn lans_of(lan: &str) -> Vec<Lan> {
    parse(&config_with_lan(lan)).mobile_router.expect("a mobile router").lan_interfaces
}

fn refusals_of_lan(lan: &str) -> Vec<String> {
    let errors = Config::parse(&config_with_lan(lan), "c.toml").expect_err(lan);
    errors.to_string().lines().map(str::to_owned).collect()
}

fn lan_table(keys: &str) -> String {
    format!("[[mobile_router.lan]]\ninterface = 'i0'\n{keys}")
}

/// Returns the inbound filter of an interface whose table has no keys of the filter.
fn filter_of_table_without_keys() -> InboundFilter {
    InboundFilter { inbound_policy: InboundPolicy::Established, ..InboundFilter::default() }
}

#[test]
fn config_reads_host_values_of_lan_table() {
    let found = lans_of(&lan_table(
        "prefixes = ['2001:db8:b:7::/64']\ndns = ['2001:db8:53::53', 'fe80::1']\nsearch = ['Bus.example', \
         'example']\npref64 = '64:ff9b::/96'\nmtu = 1400\ncaptive_portal = \
         'https://portal.example/api?bus=42'\nadvertise = true\n[[mobile_router.lan]]\ninterface = 'i1'",
    ));
    let full = Lan {
        interface: "i0".into(),
        prefixes: vec![ipv6_net("2001:db8:b:7::/64")],
        ipv4_prefixes: Vec::new(),
        dns_servers: vec![ipv6_address("2001:db8:53::53").into(), ipv6_address("fe80::1").into()],
        search_domains: vec!["bus.example".into(), "example".into()],
        nat64_prefix: Some(ipv6_net("64:ff9b::/96")),
        mtu: Some(1400),
        captive_portal: Some("https://portal.example/api?bus=42".into()),
        delegated_prefix_length: None,
        sends_router_advertisements: true,
        dhcp: Dhcp::default(),
        inbound_filter: filter_of_table_without_keys(),
    };
    assert_eq!(
        found,
        [full, Lan { inbound_filter: filter_of_table_without_keys(), ..Lan::named("i1", true) }]
    );
}

#[test]
fn lan_table_with_only_an_interface_filters_inbound_packets_by_default() {
    let short = parse(&config_with_lan("lan = ['i0', 'i1']"));
    let tables = "[[mobile_router.lan]]\ninterface = 'i0'\n[[mobile_router.lan]]\ninterface = 'i1'";
    let open = tables.replace("'\n[", "'\ninbound = 'any'\n[") + "\ninbound = 'any'";
    assert_eq!(parse(&config_with_lan(&open)), short);
    assert_eq!(parse(&config_with_lan("lan = ['i0', { interface = 'i1', inbound = 'any' }]")), short);
    assert_eq!(
        short.mobile_router.map(|it| it.lan_interfaces),
        Some(vec![Lan::named("i0", true), Lan::named("i1", true)])
    );
    let doors: Vec<InboundFilter> = lans_of(tables).into_iter().map(|lan| lan.inbound_filter).collect();
    assert_eq!(doors, [filter_of_table_without_keys(), filter_of_table_without_keys()]);
}

#[test]
fn advertise_of_lan_table_overrides_that_of_the_router() {
    let advertise =
        |lan: &str| -> Vec<bool> { lans_of(lan).iter().map(|lan| lan.sends_router_advertisements).collect() };
    assert_eq!(
        advertise("advertise = false\nlan = ['i0', { interface = 'i1', advertise = true }]"),
        [false, true]
    );
    assert_eq!(advertise("lan = ['i0', { interface = 'i1', advertise = false }]"), [true, false]);
    // If carnet advertises no prefix, a prefix may have any length.
    let long = config_with_lan("lan = [{ interface = 'i1', advertise = false }]").replace("b::/56", "b::/72");
    assert!(Config::parse(&long, "c.toml").is_ok());
    let long = config_with_lan("advertise = false\nlan = [{ interface = 'i1', advertise = true }]")
        .replace("b::/56", "b::/72");
    let errors = Config::parse(&long, "c.toml").expect_err("too long").to_string();
    assert!(
        errors.contains("c.toml:8:32: 2001:db8:b::/72 is too long for Router Advertisements"),
        "{errors}"
    );
}

#[test]
fn config_reads_inbound_filter_of_lan_table() {
    let found = lans_of(&lan_table(
        "isolated = true\nallow = [{ protocol = 'tcp', ports = [443, '5000-5010'], to = \
         ['2001:db8:a::77'] }, { protocol = 'icmpv6' }]",
    ));
    let allow = vec![
        AllowedPackets {
            protocol: PolicyProtocol::Tcp,
            ports: vec![443..=443, 5000..=5010],
            destination_hosts: vec![ipv6_address("2001:db8:a::77").into()],
        },
        AllowedPackets { protocol: PolicyProtocol::Icmpv6, ports: Vec::new(), destination_hosts: Vec::new() },
    ];
    assert_eq!(
        found[0].inbound_filter,
        InboundFilter {
            inbound_policy: InboundPolicy::Established,
            allowed_packets: allow,
            is_isolated: true,
            rate_limit: None
        }
    );
}

#[test]
fn check_warns_of_lan_interface_without_inbound_filter() {
    let open = |lan: &str| {
        let warnings = parse(&config_with_lan(lan)).warnings();
        warnings.into_iter().filter(|warning| warning.contains("lan")).collect::<Vec<_>>()
    };
    assert_eq!(
        open("lan = ['i0', { interface = 'i1' }, { interface = 'i2', inbound = 'any' }]"),
        ["mobile_router.lan: everyone outside reaches the hosts on i0, i2; expected inbound = \
          \"established\" in a table [[mobile_router.lan]]"]
    );
    assert_eq!(open(&lan_table("")), Vec::<String>::new());
}

#[test]
fn check_warns_of_leases_that_do_not_survive() {
    let leases = |state: &str, prefixes: &str, lan: &str| {
        let text = config_with_lan(&format!("ipv4_prefixes = [{prefixes}]\n{lan}"));
        let text = text.replacen("[station]\n", &format!("[station]\n{state}\n"), 1);
        let warnings = parse(&text).warnings();
        warnings.into_iter().filter(|warning| warning.contains("DHCP")).collect::<Vec<_>>()
    };
    let lan = "lan = [{ interface = 'i0', prefixes = ['10.42.7.0/24'] }, { interface = 'i1', \
               prefixes = ['10.42.8.0/24'], dhcp_enabled = false }, { interface = 'i2', prefixes = \
               ['10.42.9.0/31'] }, { interface = 'i3', prefixes = ['10.42.10.0/24'] }]";
    let prefixes = "'10.42.7.0/24', '10.42.8.0/24', '10.42.9.0/31', '10.42.10.0/24'";
    assert_eq!(
        leases("", prefixes, lan),
        ["mobile_router.lan: DHCP on i0, i3 without station.state_dir: leases are lost at a restart, and \
          an address in use may be given to another host; expected station.state_dir, or \
          dhcp_enabled = false"]
    );
    assert_eq!(leases("state_dir = '/var/lib/carnet'", prefixes, lan), Vec::<String>::new());
    // On an interface without an IPv4 prefix, carnet gives hosts no addresses.
    assert_eq!(leases("", "", "lan = ['i0']"), Vec::<String>::new());
    assert_eq!(leases("", "'10.42.7.0/24'", "lan = ['i0']").len(), 1, "an interface by its name alone");
}

#[test]
fn rate_limit_is_in_bits_per_second() {
    for (text, rate) in [("100kbit", 100_000), ("20mbit", 20_000_000), ("10gbit", 10_000_000_000)] {
        assert_eq!(
            lans_of(&lan_table(&format!("rate_limit = '{text}'")))[0].inbound_filter.rate_limit,
            Some(rate),
            "{text}"
        );
    }
    let config = parse(&config_with_lan(&lan_table("rate_limit = '20mbit'")));
    let warning = "mobile_router.lan: rate_limit on i0: the fast path does not carry packets of these hosts";
    assert!(config.warnings().iter().any(|known| known == warning), "{:?}", config.warnings());
}

#[test]
fn every_config_error_of_the_inbound_filter_names_its_line() {
    let host = "expected an address of a host such as \"2001:db8:a::77\" or \"10.42.7.9\"";
    for (keys, expected) in [
        (
            "inbound = 'shut'",
            "c.toml:12:11: `mobile_router.lan.inbound`: \"shut\" is not known, expected \"established\" \
             or \"any\""
                .to_owned(),
        ),
        (
            "inbound = 'any'\nallow = [{ protocol = 'icmpv6' }]",
            "c.toml:13:9: everything passes already, expected inbound = \"established\"".into(),
        ),
        (
            "allow = [{ ports = [443] }]",
            "c.toml:12:10: `mobile_router.lan.allow.protocol` is missing, expected \"tcp\", \"udp\", \
             \"icmp\" or \"icmpv6\""
                .into(),
        ),
        (
            "allow = [{ protocol = 'icmpv6', ports = [1] }]",
            "c.toml:12:42: ICMP has no ports, expected none".into(),
        ),
        (
            "allow = [{ protocol = 'icmp', to = ['2001:db8:a::7'] }]",
            "c.toml:12:37: 2001:db8:a::7 is not of the protocol's family, expected IPv4".into(),
        ),
        (
            "allow = [{ protocol = 'tcp', to = ['2001:db8:c::7'] }]",
            "c.toml:12:36: 2001:db8:c::7 is not on board, expected an address of the mobile network".into(),
        ),
        (
            "rate_limit = '20'",
            "c.toml:12:14: `mobile_router.lan.rate_limit`: \"20\" is no rate, expected a rate from 100kbit \
             to 10gbit such as \"20mbit\""
                .into(),
        ),
        (
            "rate_limit = '99kbit'",
            "c.toml:12:14: `mobile_router.lan.rate_limit`: \"99kbit\" is out of range, expected a rate from \
             100kbit to 10gbit such as \"20mbit\""
                .into(),
        ),
        (
            "allow = [{ protocol = 'tcp', to = ['camera'] }]",
            format!("c.toml:12:36: `mobile_router.lan.allow.to`: \"camera\" is no address, {host}"),
        ),
    ] {
        assert_eq!(refusals_of_lan(&lan_table(keys)), [expected], "{keys}");
    }
    let exceptions = "{ protocol = 'icmpv6' }, ".repeat(33);
    assert!(
        refusals_of_lan(&lan_table(&format!("allow = [{exceptions}]")))[0]
            .ends_with("too many exceptions, expected at most 32")
    );
}

#[test]
fn prefixes_for_routers_need_room_beside_the_interfaces() {
    for keys in ["delegate = 64", "delegate = 58", "prefixes = ['2001:db8:b::/64']\ndelegate = 57"] {
        let length = keys.rsplit(' ').next().and_then(|length| length.parse().ok());
        assert_eq!(lans_of(&lan_table(keys))[0].delegated_prefix_length, length, "{keys}");
    }
    assert!(lans_of(&lan_table("delegate = 64"))[0].has_dhcpv6(false));
    let no_room = |length| {
        format!(
            "c.toml:12:12: no /{length} is left beside the interfaces, expected a shorter prefix in \
             `mobile_router.prefixes`"
        )
    };
    for (keys, expected) in [
        ("delegate = 56".to_owned(), no_room(56)),
        ("delegate = 55".to_owned(), no_room(55)),
        (
            "delegate = 65".to_owned(),
            "c.toml:12:12: `mobile_router.lan.delegate`: 65 is out of range, expected an integer from 32 to \
             64"
            .to_owned(),
        ),
        (
            "delegate = 64\ndhcp_enabled = false".to_owned(),
            "c.toml:12:12: routers get prefixes by DHCP, expected dhcp_enabled = true".to_owned(),
        ),
        (
            "delegate = 64\nadvertise = false".to_owned(),
            "c.toml:12:12: routers need Router Advertisements on this interface, expected advertise = true"
                .to_owned(),
        ),
    ] {
        assert_eq!(refusals_of_lan(&lan_table(&keys)), [expected], "{keys}");
    }
    // Routers on this interface get no part of a prefix that another interface's table has.
    let beside = |named: &str| {
        lan_table(&format!("delegate = 64\n[[mobile_router.lan]]\ninterface = 'i1'\nprefixes = ['{named}']"))
    };
    assert_eq!(refusals_of_lan(&beside("2001:db8:b::/56")), [no_room(64)]);
    assert_eq!(lans_of(&beside("2001:db8:b::/57"))[0].delegated_prefix_length, Some(64));
    // A /64 is the link of the interface, so no part of it can be delegated.
    let one = config_with_lan(&lan_table("delegate = 64")).replace(", \"2001:db8:b::/56\"", "");
    let errors = Config::parse(&one, "c.toml").expect_err("no room");
    assert_eq!(errors.to_string().trim_end(), no_room(64));
}

#[test]
fn every_config_error_names_its_line() {
    let server = "expected a unicast address such as \"2001:db8:53::53\" or \"192.0.2.53\"";
    let domain = "expected a domain name such as \"bus.example\"";
    let pref64 = "expected a prefix of 96, 64, 56, 48, 40 or 32 bits, such as \"64:ff9b::/96\"";
    let portal = "expected a URI such as \"https://portal.example/api\"";
    for (keys, expected) in [
        (
            "dns = ['ff02::1']",
            format!("c.toml:12:8: `mobile_router.lan.dns`: ff02::1 is multicast, {server}"),
        ),
        (
            "dns = ['192.0.2']",
            format!("c.toml:12:8: `mobile_router.lan.dns`: \"192.0.2\" is no address, {server}"),
        ),
        (
            "dns = ['192.0.2.1']",
            "c.toml:12:8: 192.0.2.1 is for DHCP, but this interface has no IPv4 prefix, expected IPv6 \
             addresses"
                .into(),
        ),
        (
            "dns = ['fd00::1', 'fd00::1']",
            "c.toml:12:19: fd00::1 is a server already at c.toml:12:8, expected another".into(),
        ),
        (
            "search = ['a..b']",
            format!("c.toml:12:11: `mobile_router.lan.search`: \"a..b\" has an empty label, {domain}"),
        ),
        (
            "search = ['bus.example.']",
            format!(
                "c.toml:12:11: `mobile_router.lan.search`: \"bus.example.\" has an empty label, {domain}"
            ),
        ),
        (
            "search = ['bü.example']",
            format!(
                "c.toml:12:11: `mobile_router.lan.search`: \"bü.example\" has the character 'ü', {domain}"
            ),
        ),
        (
            "search = ['-a.example']",
            format!(
                "c.toml:12:11: `mobile_router.lan.search`: \"-a.example\" has a hyphen at the end of a \
                 label, {domain}"
            ),
        ),
        (
            "search = ['a', 'A']",
            "c.toml:12:16: a is in the list already at c.toml:12:11, expected another".into(),
        ),
        (
            "pref64 = '64:ff9b::/95'",
            format!("c.toml:12:10: `mobile_router.lan.pref64`: 64:ff9b::/95 has 95 bits, {pref64}"),
        ),
        (
            "pref64 = '64:ff9b::1/96'",
            "c.toml:12:10: `mobile_router.lan.pref64`: 64:ff9b::1/96 has host bits that are not zero, \
             expected 64:ff9b::/96"
                .into(),
        ),
        (
            "pref64 = '2001:db8:0:0:100::/96'",
            format!(
                "c.toml:12:10: `mobile_router.lan.pref64`: 2001:db8:0:0:100::/96 has bits from 64 to 71 \
                 that are not zero, {pref64}"
            ),
        ),
        (
            "mtu = 1279",
            "c.toml:12:7: `mobile_router.lan.mtu`: 1279 is out of range, expected an integer from 1280 to \
             65535"
                .into(),
        ),
        (
            "captive_portal = 'http://a/'",
            format!(
                "c.toml:12:18: `mobile_router.lan.captive_portal`: \"http://a/\" does not begin with \
                 https://, {portal}"
            ),
        ),
        (
            "captive_portal = 'https:///api'",
            format!(
                "c.toml:12:18: `mobile_router.lan.captive_portal`: \"https:///api\" has no host, {portal}"
            ),
        ),
        (
            "captive_portal = 'https://a/ b'",
            format!(
                "c.toml:12:18: `mobile_router.lan.captive_portal`: \"https://a/ b\" has the character ' ', \
                 {portal}"
            ),
        ),
        (
            "prefixes = ['2001:db8:b:7::1/64']",
            "c.toml:12:13: `mobile_router.lan.prefixes`: 2001:db8:b:7::1/64 has host bits that are not \
             zero, expected 2001:db8:b:7::/64"
                .into(),
        ),
        (
            "prefixes = ['2001:db8:b:700::/64']",
            "c.toml:12:13: 2001:db8:b:700::/64 is outside, expected a part of one of \
             `mobile_router.prefixes`"
                .into(),
        ),
        (
            "prefixes = ['2001:db8:b:7::/72']",
            "c.toml:12:13: 2001:db8:b:7::/72 is too long for hosts, expected /64 or shorter".into(),
        ),
        (
            "advertise = false\ndns = ['fd00::1']",
            "c.toml:13:7: these values need Router Advertisements on this interface, expected advertise = \
             true"
                .into(),
        ),
        (
            "dsn = ['fd00::1']",
            "c.toml:12:1: unknown key `dsn` in [[mobile_router.lan]], expected `dns`".into(),
        ),
        (
            "[[mobile_router.lan]]\ninterface = 'i0'",
            "c.toml:13:13: \"i0\" is in the lan already at c.toml:11:13, expected another".into(),
        ),
        (
            "[[mobile_router.lan]]\ninterface = 'wlan0'",
            "c.toml:13:13: \"wlan0\" is an uplink already at c.toml:9:25, expected another".into(),
        ),
        (
            "prefixes = ['2001:db8:b:4::/62']\n[[mobile_router.lan]]\ninterface = 'i1'\nprefixes = \
             ['2001:db8:b:5::/64']",
            "c.toml:15:13: 2001:db8:b:5::/64 overlaps 2001:db8:b:4::/62 at c.toml:12:13, expected prefixes \
             that do not overlap"
                .into(),
        ),
        (
            "prefixes = ['2001:db8:a::/64', '2001:db8:b::/64']\n[[mobile_router.lan]]\ninterface = \
             'i1'\ndns = ['fd00::1']",
            "c.toml:15:7: no prefix is left for this interface, expected `prefixes` in its table".into(),
        ),
    ] {
        assert_eq!(refusals_of_lan(&lan_table(keys)), [expected], "{keys}");
    }
    let types = "expected an array of interfaces, or tables [[mobile_router.lan]]";
    assert_eq!(
        refusals_of_lan("lan = 'i0'"),
        [format!("c.toml:10:7: `mobile_router.lan`: a string is not permitted here, {types}")]
    );
    let missing = "c.toml:10:1: `mobile_router.lan.interface` is missing, expected an interface name of 1 to \
                   15 characters";
    assert_eq!(refusals_of_lan("[[mobile_router.lan]]"), [missing]);
}

#[test]
fn options_too_long_for_an_advertisement_are_refused() {
    let servers = |count: u32| -> String {
        let servers: Vec<String> = (0..count).map(|number| format!("'fd00::{number:x}:1'")).collect();
        lan_table(&format!("dns = [{}]", servers.join(", ")))
    };
    assert_eq!(lans_of(&servers(75)).iter().map(|lan| lan.dns_servers.len()).sum::<usize>(), 75);
    let found = refusals_of_lan(&servers(76));
    assert!(
        matches!(&found[..], [one] if one.ends_with("has room for 75 servers, expected no more")),
        "{found:?}"
    );

    // Each name has 62 characters, which are 64 octets in the option.
    let domains = |count: u32, last: &str| -> String {
        let domains: Vec<String> = (0..count).map(|number| format!("'{number:0>53}.bus.test'")).collect();
        lan_table(&format!("search = [{}, '{last}']", domains.join(", ")))
    };
    // The option holds 1208 octets: 18 names of 64 octets and one of 56.
    let (last, longer) = ("a".repeat(54), "a".repeat(55));
    assert_eq!(lans_of(&domains(18, &last)).iter().map(|lan| lan.search_domains.len()).sum::<usize>(), 19);
    let found = refusals_of_lan(&domains(18, &longer));
    assert!(
        matches!(&found[..], [one] if one.ends_with("has room for 1208 octets of names, expected no more")),
        "{found:?}"
    );
    assert!(
        refusals_of_lan(&lan_table(&format!("search = ['{}']", "a".repeat(64))))[0]
            .contains("more than 63 characters")
    );
    let long = vec!["abcd"; 51].join(".");
    assert!(
        refusals_of_lan(&lan_table(&format!("search = ['{long}']")))[0].contains("more than 253 characters")
    );
    let uri = format!("https://portal.example/{}", "a".repeat(255 - 23));
    assert_eq!(
        lans_of(&lan_table(&format!("captive_portal = '{uri}'")))[0].captive_portal.as_deref(),
        Some(&*uri)
    );
    assert!(
        refusals_of_lan(&lan_table(&format!("captive_portal = '{uri}a'")))[0]
            .contains("more than 255 characters")
    );
}

/// The support bundle shows the names and tables of the interfaces of the mobile network.
#[test]
fn bundle_shows_values_of_lan_table() {
    for lan in ["lan = ['i0', 'i1']", &lan_table("dns = ['fd00::1']")] {
        let text = config_with_lan(lan);
        let disclosed = disclose_config(&text).expect("TOML");
        assert_eq!(disclosed.left_out_keys, [""; 0], "{}", disclosed.config_text);
        assert_eq!(parse(&disclosed.config_text), parse(&text));
    }
}
