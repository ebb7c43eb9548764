//! `ipv4_prefixes` of the mobile router and of the home agent's routers.

use super::errors::errors;
use super::{CONFIG_WITH_EVERY_KEY, Config};

const ROUTER_PREFIXES: &str = "prefixes = [\"2001:db8:a::/64\"]\n";
const FIRST_PREFIXES: &str = "prefixes = [\"2001:db8:c::/64\", \"fd00:1:2::/48\"]\n";
const SECOND_PREFIXES: &str = "prefixes = [\"fd00:2::/64\"]\n";

/// Returns the full config with IPv4 prefixes in the three tables that have prefixes.
fn config_with_prefixes(router: &str, first: &str, second: &str) -> String {
    let mut text = CONFIG_WITH_EVERY_KEY.to_owned();
    for (place, prefixes) in [(ROUTER_PREFIXES, router), (FIRST_PREFIXES, first), (SECOND_PREFIXES, second)] {
        assert_eq!(text.matches(place).count(), 1);
        // The new key goes onto the line behind `place`, so that the line numbers of later errors are known.
        text = text.replace(place, &format!("{place}ipv4_prefixes = [{prefixes}]\n"));
    }
    text
}

#[test]
fn config_reads_ipv4_prefixes_of_home_agent_and_mobile_router() {
    let text =
        config_with_prefixes("\"10.42.7.0/24\", \"192.0.2.64/26\"", "\"10.42.8.0/24\"", "\"203.0.113.7/32\"");
    let config = Config::parse(&text, "c.toml").expect("valid");
    let texts = |prefixes: &[ipnet::Ipv4Net]| prefixes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let router = config.mobile_router.expect("a router");
    assert_eq!(texts(&router.ipv4_prefixes), ["10.42.7.0/24", "192.0.2.64/26"]);
    let of_agent = config.home_agent.expect("a home agent").mobile_routers;
    assert_eq!(texts(&of_agent[0].ipv4_prefixes), ["10.42.8.0/24"]);
    assert_eq!(texts(&of_agent[1].ipv4_prefixes), ["203.0.113.7/32"]);
    let config = Config::parse(CONFIG_WITH_EVERY_KEY, "c.toml").expect("valid");
    assert!(config.mobile_router.expect("a router").ipv4_prefixes.is_empty(), "none by default");
}

#[test]
fn ipv4_prefix_that_no_network_has_is_refused() {
    const EXPECTED_UNICAST_PREFIX: &str = "expected a unicast prefix such as \"10.42.7.0/24\"";
    for (prefix, message) in [
        ("10.42.7.1/24", "10.42.7.1/24 has host bits that are not zero, expected 10.42.7.0/24".to_owned()),
        (
            "10.42.7.0",
            "\"10.42.7.0\" is an address without a prefix length, expected an IPv4 prefix such as \
                       \"10.42.7.0/24\""
                .to_owned(),
        ),
        (
            "10.42.7.0/33",
            "\"10.42.7.0/33\" is no IPv4 prefix, expected an IPv4 prefix such as \"10.42.7.0/24\"".to_owned(),
        ),
        (
            "2001:db8::/64",
            "\"2001:db8::/64\" is no IPv4 prefix, expected an IPv4 prefix such as \"10.42.7.0/24\""
                .to_owned(),
        ),
        ("0.0.0.0/0", format!("0.0.0.0/0 is everything, {EXPECTED_UNICAST_PREFIX}")),
        ("0.1.0.0/16", format!("0.1.0.0/16 is in 0.0.0.0/8, which no host has, {EXPECTED_UNICAST_PREFIX}")),
        ("127.0.0.0/8", format!("127.0.0.0/8 is loopback, {EXPECTED_UNICAST_PREFIX}")),
        ("64.0.0.0/2", format!("64.0.0.0/2 is loopback, {EXPECTED_UNICAST_PREFIX}")),
        ("169.254.1.0/24", format!("169.254.1.0/24 is link-local, {EXPECTED_UNICAST_PREFIX}")),
        ("169.0.0.0/8", format!("169.0.0.0/8 is link-local, {EXPECTED_UNICAST_PREFIX}")),
        ("224.0.0.0/4", format!("224.0.0.0/4 is multicast, {EXPECTED_UNICAST_PREFIX}")),
        ("255.255.255.255/32", format!("255.255.255.255/32 is reserved, {EXPECTED_UNICAST_PREFIX}")),
    ] {
        let found = errors(&config_with_prefixes(&format!("\"{prefix}\""), "", ""));
        assert_eq!(found.len(), 1, "{prefix}: {found:?}");
        assert!(
            found[0].contains("`mobile_router.ipv4_prefixes`") && found[0].ends_with(&message),
            "{found:?}"
        );
    }
    let found = errors(&config_with_prefixes("7", "\"10.0.0.0/40\"", ""));
    assert!(found[0].contains("`home_agent.mobile_router.ipv4_prefixes`"), "{found:?}");
    assert!(found[1].contains("an integer is not permitted here"), "{found:?}");
}

#[test]
fn overlapping_ipv4_prefixes_are_refused_in_one_router_and_between_routers() {
    const EXPECTED_DISJOINT_PREFIXES: &str = "expected prefixes that do not overlap";
    let found = errors(&config_with_prefixes("\"10.42.0.0/16\", \"10.42.7.0/24\"", "", ""));
    assert_eq!(
        found,
        [format!(
            "c.toml:36:34: 10.42.7.0/24 overlaps 10.42.0.0/16 at c.toml:36:18, {EXPECTED_DISJOINT_PREFIXES}"
        )]
    );
    for (first, second) in [("10.42.7.0/24", "10.42.7.0/24"), ("10.42.7.128/25", "10.42.0.0/16")] {
        let found = errors(&config_with_prefixes("", &format!("\"{first}\""), &format!("\"{second}\"")));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains(&format!("{second} overlaps {first} at c.toml:22:18")), "{found:?}");
    }
    // Adjacent prefixes do not overlap.
    let text = config_with_prefixes("", "\"10.42.7.0/25\"", "\"10.42.7.128/25\", \"10.42.8.0/21\"");
    assert!(Config::parse(&text, "c.toml").is_ok());
}

#[test]
fn ipv4_prefix_with_a_home_agent_inside_is_refused() {
    let found = errors(&config_with_prefixes("\"192.0.2.0/24\"", "", ""));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("192.0.2.0/24 contains the home agent 192.0.2.1 at c.toml:"), "{found:?}");
    let found = errors(&config_with_prefixes("", "", "\"192.0.2.0/30\""));
    assert!(found[0].contains("192.0.2.0/30 contains the home agent 192.0.2.2 at c.toml:18:"), "{found:?}");
}
