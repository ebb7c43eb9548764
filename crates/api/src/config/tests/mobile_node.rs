//! `[mobile_node]`: a mobile router without a mobile network.

use super::super::{Config, RegistrationMode};
use super::errors::errors;
use super::{SMALL_ROUTER_CONFIG, parse};

fn mobile_node_config() -> String {
    SMALL_ROUTER_CONFIG.replace("[mobile_router]", "[mobile_node]")
}

#[test]
fn mobile_node_is_a_mobile_router_without_prefixes() {
    let node = parse(&mobile_node_config()).mobile_router.expect("a mobile node");
    let router = parse(SMALL_ROUTER_CONFIG).mobile_router.expect("a mobile router");
    assert!(router.is_router() && !node.is_router());
    assert_eq!(node.registration, RegistrationMode::Host);
    assert_eq!(super::super::MobileRouter { registration: router.registration, ..node }, router);
}

#[test]
fn config_reads_and_checks_ipv4_home_address_of_mobile_node() {
    let with = |text: &str| mobile_node_config().replace("auth", &format!("{text}\nauth"));
    let config = parse(&with("ipv4_home_address = \"192.0.2.7\"")).mobile_router.expect("a mobile node");
    assert_eq!(config.ipv4_prefixes, ["192.0.2.7/32".parse().expect("a prefix")]);
    let found = errors(&with("ipv4_home_address = \"192.0.2.7/24\""));
    assert!(found[0].starts_with("c.toml:8:21: `mobile_node.ipv4_home_address`: "), "{found:?}");
    let found = errors(&with("home_agent_ipv4 = \"192.0.2.7\"\nipv4_home_address = \"192.0.2.7\""));
    assert!(found[0].starts_with("c.toml:9:21: 192.0.2.7/32 contains the home agent 192.0.2.7"), "{found:?}");
    let found = errors(&SMALL_ROUTER_CONFIG.replace("auth", "ipv4_home_address = \"192.0.2.7\"\nauth"));
    assert!(found[0].contains("unknown key `ipv4_home_address` in [mobile_router]"), "{found:?}");
}

#[test]
fn keys_of_the_mobile_network_are_refused_for_a_mobile_node() {
    for key in [
        "prefixes = [\"2001:db8:a::/64\"]",
        "registration = \"explicit\"",
        "lan = [\"i0\"]",
        "advertise = true",
    ] {
        let text = mobile_node_config().replace("auth", &format!("{key}\nauth"));
        let name = key.split(' ').next().expect("a name");
        let told = errors(&text);
        let start = format!("c.toml:8:1: unknown key `{name}` in [mobile_node], expected");
        assert!(matches!(told.as_slice(), [one] if one.starts_with(&start)), "{told:?}");
    }
    let both = format!("{}[mobile_router]\n", mobile_node_config());
    let told = errors(&both);
    let expected = "`mobile_node`: found [mobile_router] and [mobile_node], expected one of the two";
    assert!(told.iter().any(|error| error.contains(expected)), "{told:?}");
}

#[test]
fn errors_name_the_mobile_node_table() {
    let told = errors(&mobile_node_config().replace("uplink = [{ interface = \"wlan0\" }]", "uplink = [{}]"));
    assert!(told[0].contains("`mobile_node.uplink.interface` is missing"), "{told:?}");
    let warnings = Config::parse(&mobile_node_config(), "c.toml").expect("a node").warnings();
    assert!(
        warnings[0].starts_with("mobile_node: auth = \"none\"") && warnings[0].ends_with("this mobile node")
    );
}
