//! Home networks that contain the mobile networks (RFC 4887).

use carnet_mobility::home_agent::TranslatedPrefix;

use super::super::Config;
use super::errors::errors;
use super::{CONFIG_WITH_EVERY_KEY, ipv6_net, parse};

/// Returns the config of a home agent and a router with these prefixes.
fn home_agent_config(keys: &str, prefix: &str) -> String {
    format!(
        "[station]\nname = \"a\"\n[home_agent]\naddress = \"2001:db8:1::1\"\n{keys}\n\
         [[home_agent.mobile_router]]\nhome_address = \"2001:db8:1::a1\"\nprefixes = [\"{prefix}\"]\nauth = \
         \"none\"\n"
    )
}

#[test]
fn an_aggregated_home_network_contains_the_mobile_networks() {
    let text =
        home_agent_config("home_prefix = \"2001:db8:1::/48\"\nhome_link = \"h0\"", "2001:db8:1:a::/64");
    let config = parse(&text).home_agent.expect("a home agent");
    assert!(config.home_prefix.contains(&config.mobile_routers[0].prefixes[0]));
    // A mobile network prefix must not be the part of the home prefix that contains the home agent's address.
    let told = errors(&text.replace("2001:db8:1:a::/64", "2001:db8:1::/64"));
    assert!(told[0].contains("contains the home agent 2001:db8:1::1"), "{told:?}");
}

#[test]
fn an_extended_home_network_contains_the_home_prefix() {
    let home = "home_prefix = \"2001:db8:1::/64\"";
    let text = home_agent_config(&format!("{home}\nhome_network = \"2001:db8:1::/48\""), "2001:db8:1:a::/64");
    assert_eq!(
        parse(&text).home_agent.and_then(|agent| agent.home_network),
        Some(ipv6_net("2001:db8:1::/48"))
    );
    let text = text.replace("2001:db8:1::/48", "2001:db8:2::/48");
    let expected = "c.toml:6:16: 2001:db8:2::/48 does not contain the home prefix 2001:db8:1::/64 at \
                    c.toml:5:15, expected one that does";
    assert_eq!(errors(&text), [expected]);
    assert!(
        Config::parse(CONFIG_WITH_EVERY_KEY, "c.toml")
            .is_ok_and(|c| c.home_agent.is_some_and(|a| a.home_network.is_none()))
    );
}

#[test]
fn ndp_proxy_on_the_home_link_is_refused() {
    let keys = "home_prefix = \"2001:db8:1::/64\"\nhome_link = \"h0\"\nndp_proxy = \"h0\"";
    let expected = "c.toml:7:13: h0 is the home link at c.toml:6:13, where the home agent answers already, \
                    expected another interface";
    assert_eq!(errors(&home_agent_config(keys, "2001:db8:a::/64")), [expected]);
    let config = parse(&home_agent_config(&keys.replace("home_link = \"h0\"", ""), "2001:db8:a::/64"));
    assert_eq!(config.home_agent.and_then(|agent| agent.ndp_proxy).as_deref(), Some("h0"));
}

#[test]
fn check_warns_of_nat_that_no_mobile_network_needs() {
    let keys = "home_prefix = \"2001:db8:1::/64\"\nipv4_nat = \"e0\"\nipv6_nat = \"e1\"";
    let text = home_agent_config(keys, "2001:db8:a::/64");
    let warned = |text: &str| {
        let warnings = parse(text).warnings().into_iter();
        warnings.filter(|warning| warning.contains("_nat")).collect::<Vec<_>>()
    };
    let expected = [
        "home_agent.ipv4_nat: no mobile router has `ipv4_prefixes`",
        "home_agent.ipv6_nat: no mobile router has unique local `prefixes`",
    ];
    assert_eq!(warned(&text), expected);
    let text = text.replace(
        "prefixes = [\"2001:db8:a::/64\"]",
        "prefixes = [\"fd00:a::/64\"]\nipv4_prefixes = [\"10.42.7.0/24\"]",
    );
    assert!(warned(&text).is_empty(), "{:?}", warned(&text));
    let config = parse(&text).home_agent.expect("a home agent");
    assert_eq!((config.ipv4_nat.as_deref(), config.ipv6_nat.as_deref()), (Some("e0"), Some("e1")));
}

#[test]
fn nat_prefix_pairs_need_equal_lengths_and_may_not_overlap() {
    let keys = |pair: &str| {
        format!("home_prefix = \"2001:db8:1::/64\"\nipv6_nat = \"e1\"\nipv6_nat_prefixes = [\"{pair}\"]")
    };
    let text = |pair: &str| home_agent_config(&keys(pair), "fd00:42:1::/64");
    let config = parse(&text("fd00:42::/48 2001:db8:42::/48")).home_agent.expect("a home agent");
    let pair = TranslatedPrefix {
        inside_prefix: ipv6_net("fd00:42::/48"),
        outside_prefix: ipv6_net("2001:db8:42::/48"),
    };
    assert_eq!(config.ipv6_nat_prefixes, [pair]);
    let expected = "expected a unique local prefix and another one of the same length, such as \
                    \"fd00:42::/48 2001:db8:42::/48\"";
    for (pair, what) in [
        ("fd00:42::/48", "\"fd00:42::/48\" is no pair of prefixes"),
        ("fd00:42::/48 2001:db8:42::/56", "fd00:42::/48 and 2001:db8:42::/56 differ in length"),
        ("2001:db8:42::/48 2001:db8:43::/48", "2001:db8:42::/48 is not unique local"),
        ("fd00:42::/48 fd00:43::/48", "fd00:43::/48 is unique local"),
    ] {
        let told = errors(&text(pair));
        let wanted = format!("c.toml:7:22: `home_agent.ipv6_nat_prefixes`: {what}, {expected}");
        assert_eq!(told, [wanted], "{pair}");
    }
    let overlap = errors(&text("fd00:42::/64 2001:db8:1::/64"));
    assert_eq!(
        overlap,
        ["c.toml:7:22: 2001:db8:1::/64 overlaps 2001:db8:1::/64 at c.toml:5:15, expected a prefix without \
          another use"]
    );
    let without = text("fd00:42::/48 2001:db8:42::/48").replace("ipv6_nat = \"e1\"\n", "");
    assert_eq!(
        errors(&without),
        ["c.toml:6:22: these prefixes need an interface, expected the key `ipv6_nat`"]
    );
}
