//! `[geonet.multicast]`: accepted configs, and refused ones with the place of the error.

use super::errors::errors;
use super::geonet::{SMALL_GEONET_CONFIG, geonet_of, refusals_of_lines};
use super::{CONFIG_WITH_EVERY_KEY, Duration, parse};

#[test]
fn config_reads_multicast_keys() {
    let with = |keys: &str| format!("ipv6_interface = 'gn0'\nmulticast = {{ {keys} }}\n");
    let multicast =
        |keys: &str| geonet_of(&format!("{SMALL_GEONET_CONFIG}{}", with(keys))).multicast.expect("multicast");
    let plain = multicast("lan = ['i0', 'i1']");
    assert_eq!(
        (plain.lan_interfaces, plain.forwards_unmapped_groups, plain.robustness_variable),
        (vec!["i0".into(), "i1".into()], false, 2)
    );
    let seconds = Duration::from_secs;
    assert_eq!((plain.query_interval, plain.query_response_interval), (seconds(125), seconds(10)));
    let other = multicast(
        "lan = ['i0'], unmapped = true, robustness = 3, query_interval = '20s', query_response_interval = \
         '500ms'",
    );
    assert_eq!(
        (other.forwards_unmapped_groups, other.robustness_variable, other.query_interval),
        (true, 3, seconds(20))
    );
    assert_eq!(other.query_response_interval, Duration::from_millis(500));
    let needs = "c.toml:7:13: needs IPv6 over GeoNetworking, expected `geonet.ipv6_interface`";
    assert_eq!(refusals_of_lines("multicast = { lan = ['i0'] }"), [needs]);
    for (keys, expected) in [
        ("", "c.toml:8:13: `geonet.multicast.lan` is missing, expected an array of interfaces"),
        (
            "lan = ['gn0']",
            "c.toml:8:22: \"gn0\" is an IPv6 interface already at c.toml:7:18, expected another",
        ),
        ("lan = ['i0', 'i0']", "c.toml:8:28: \"i0\" is in the lan already at c.toml:8:22, expected another"),
        (
            "lan = ['i0'], query_interval = '10s'",
            "c.toml:8:46: `geonet.multicast.query_interval`: hosts would have no time to answer, expected a \
             response interval shorter than the interval",
        ),
        (
            "lan = ['i0'], query_interval = '100ms'",
            "c.toml:8:46: `geonet.multicast.query_interval`: \"100ms\" is not permitted here, expected 1s to \
             31744s",
        ),
        (
            "lan = ['i0'], robustness = 0",
            "c.toml:8:42: `geonet.multicast.robustness`: 0 is out of range, expected an integer from 1 to 7",
        ),
    ] {
        assert_eq!(refusals_of_lines(&with(keys)), [expected], "{keys}");
    }
    // The interfaces may also be those of the mobile router's mobile network, but not its uplinks.
    let text = |lan: &str| {
        let more =
            format!("ipv6_interface = \"gn0\"\nmulticast = {{ lan = [\"{lan}\"] }}\ninterface = \"wlan1\"");
        CONFIG_WITH_EVERY_KEY.replace("interface = \"wlan1\"", &more)
    };
    assert_eq!(
        parse(&text("i0")).geonet.and_then(|it| it.multicast).map(|it| it.lan_interfaces),
        Some(vec!["i0".into()])
    );
    let found = errors(&text("wlan0"));
    assert!(matches!(found.as_slice(), [one] if one.contains("\"wlan0\" is an uplink already")), "{found:?}");
}
