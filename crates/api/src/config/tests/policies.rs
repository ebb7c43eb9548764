//! Binding identifiers, IPv4, heartbeats and policies.

use std::time::Duration;

use super::super::{
    FlowAction, HeartbeatIntervals, OwnTraffic, PolicyAction, PolicyProtocol, RoamingUse, VolumeAction,
    VolumePeriod,
};
use super::{Config, SMALL_ROUTER_CONFIG, parse};

const UPLINKS_CONFIG: &str = r#"uplink = [
    { interface = "wlan0", bid = 1 },
    { interface = "wwan0", bid = 2, cost = 3, capacity = 20000, volume = "5GB", volume_period = "day" },
    { interface = "s0" },
]"#;

fn router_config(more: &str) -> String {
    SMALL_ROUTER_CONFIG.replace(r#"uplink = [{ interface = "wlan0" }]"#, &format!("{UPLINKS_CONFIG}\n{more}"))
}

fn errors(text: &str) -> String {
    Config::parse(&router_config(text), "c.toml").expect_err("an error").to_string()
}

#[test]
fn heartbeats_are_on_by_default_with_bids() {
    let heartbeat = |text: &str| parse(text).mobile_router.expect("a router").heartbeat_intervals;
    let every = |busy, idle| {
        Some(HeartbeatIntervals {
            busy_interval: Duration::from_millis(busy),
            idle_interval: Duration::from_millis(idle),
        })
    };
    assert_eq!(heartbeat(SMALL_ROUTER_CONFIG), None);
    assert_eq!(heartbeat(&router_config("")), every(250, 1000));
    assert_eq!(heartbeat(&router_config("heartbeat = \"off\"")), None);
    assert_eq!(heartbeat(&router_config("heartbeat = \"5s\"")), every(5000, 5000));
    assert_eq!(
        heartbeat(&router_config("heartbeat = \"100ms\"\nheartbeat_idle = \"30s\"")),
        every(100, 30_000)
    );
    assert!(errors("heartbeat = \"1ms\"").contains("expected 50ms to 1h"));
}

#[test]
fn policies_name_existing_uplinks() {
    let policy = "[[mobile_router.policy]]\nname = \"video\"\ndscp = [46, 0]\nprotocol = \"udp\"\n\
                  ports = [5000, \"6000-6010\"]\nprefixes = [\"2001:db8:100::/48\"]\naction = \"balance\"\n\
                  uplinks = [\"wwan0\", \"wlan0\"]\n";
    let router = parse(&router_config(&format!("home_agent_ipv4 = \"192.0.2.1\"\nudp = true\n{policy}")));
    let router = router.mobile_router.expect("a router");
    assert_eq!(router.home_agents.ipv4_addresses, [std::net::Ipv4Addr::new(192, 0, 2, 1)]);
    assert!(router.always_uses_udp);
    let uplinks: Vec<_> = router
        .uplinks
        .iter()
        .map(|uplink| (uplink.bid, uplink.uplink_cost, uplink.capacity_kbit_s))
        .collect();
    assert_eq!(uplinks, [(Some(1), 0, None), (Some(2), 3, Some(20_000)), (None, 0, None)]);
    let [policy] = &router.policies[..] else { panic!("{:?}", router.policies) };
    assert_eq!(policy.code_points, [46, 0]);
    assert_eq!(policy.protocol, Some(PolicyProtocol::Udp));
    assert_eq!(policy.ports, [5000..=5000, 6000..=6010]);
    assert_eq!(policy.policy_action, PolicyAction::Tunnel(FlowAction::Balance));
    assert_eq!(policy.uplinks, ["wwan0", "wlan0"]);
}

#[test]
fn config_parses_volume_limits_of_uplinks() {
    let uplinks = parse(&router_config("")).mobile_router.expect("a router").uplinks;
    let volumes: Vec<_> = uplinks.iter().map(|uplink| (uplink.volume_limit, uplink.volume_period)).collect();
    let month = VolumePeriod::Month;
    assert_eq!(volumes, [(None, month), (Some(5_000_000_000), VolumePeriod::Day), (None, month)]);
    let with = |text: &str| {
        let text = router_config("").replace("volume = \"5GB\", volume_period = \"day\"", text);
        match Config::parse(&text, "c.toml") {
            Ok(config) => Ok(config.mobile_router.expect("a router").uplinks[1].volume_limit),
            Err(errors) => Err(errors.to_string()),
        }
    };
    assert_eq!(with("volume = \"750kB\""), Ok(Some(750_000)));
    let text = "volume = \"5GB\", volume_day = 17, volume_action = \"stop\", roaming = \"never\"";
    let text = router_config("").replace("volume = \"5GB\", volume_period = \"day\"", text);
    let uplink = &parse(&text).mobile_router.expect("a router").uplinks[1];
    let read = (uplink.volume_day, uplink.volume_action, uplink.roaming_use);
    assert_eq!(read, (17, VolumeAction::Stop, RoamingUse::Never));
    for (text, expected) in [
        ("volume_day = 0", "expected"),
        ("volume_day = 32", "expected"),
        ("volume_action = \"throttle\"", "\"last_resort\""),
        ("roaming = \"always\"", "\"allowed\""),
    ] {
        let error = with(text).expect_err(text);
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(with("volume = \"2TB\", volume_period = \"week\""), Ok(Some(2_000_000_000_000)));
    for wrong in ["5", "GB", "+5GB", "5 GB", "5gb", "5GiB", "1.5GB", "-1GB", "99999999999TB"] {
        let error = with(&format!("volume = \"{wrong}\"")).expect_err(wrong);
        assert!(error.contains("is no volume, expected a volume such as"), "{error}");
    }
    let forgets =
        "mobile_router.uplink wwan0: volume without station.state_dir: the used volume is lost at a restart";
    assert!(parse(&router_config("")).warnings().iter().any(|warning| warning == forgets));
    assert!(with("volume = \"0MB\"").expect_err("nothing").contains("permits no packets"));
    assert!(with("volume_period = \"year\"").expect_err("a year").contains("\"year\""));
}

#[test]
fn config_reads_the_signal_timeout_of_an_uplink() {
    let with = |text: &str| {
        let text = router_config("").replace("volume = \"5GB\"", text);
        match Config::parse(&text, "c.toml") {
            Ok(config) => Ok(config.mobile_router.expect("a router").uplinks[1].signal_timeout.as_secs()),
            Err(errors) => Err(errors.to_string()),
        }
    };
    assert_eq!(with("signal_timeout = \"2m\""), Ok(120));
    for wrong in ["4s", "25h"] {
        let error = with(&format!("signal_timeout = \"{wrong}\"")).expect_err(wrong);
        assert!(error.contains("is out of range, expected 5s to 1d"), "{error}");
    }
}

#[test]
fn check_warns_that_own_ipv4_traffic_needs_an_ipv4_prefix() {
    let with = |text: &str| parse(&router_config(&format!("own_traffic = \"tunnel\"\n{text}")));
    let warns = |config: &Config| config.warnings().iter().any(|line| line.contains("without ipv4_prefixes"));
    let config = with("");
    assert!(warns(&config));
    assert_eq!(config.mobile_router.expect("a router").own_traffic, OwnTraffic::Tunnel);
    assert!(!warns(&with("ipv4_prefixes = [\"10.42.7.0/24\"]\n")));
    assert!(!warns(&parse(&router_config(""))));
    assert!(errors("own_traffic = \"direct\"").contains("expected \"uplinks\" or \"tunnel\""));
}

#[test]
fn policies_select_interfaces_and_ipv4_networks() {
    let networks = |policy: &str| {
        let text = router_config(&format!(
            "[[mobile_router.policy]]\nname = \"a\"\naction = \"failover\"\n{policy}\n"
        ));
        let text = text.replace(
            "home_agent = ",
            "prefixes = [\"2001:db8:a::/64\", \"2001:db8:b::/64\"]\nipv4_prefixes = [\"10.42.7.0/24\"]\n\
             lan = [\"eth0\", \"eth1\"]\nhome_agent = ",
        );
        let router = Config::parse(&text, "c.toml").map_err(|errors| errors.to_string())?;
        let router = router.mobile_router.expect("a router");
        let networks = router.policies[0].prefix_combinations(&router).into_iter();
        let text = |prefix: Option<ipnet::IpNet>| prefix.map_or("any".into(), |it| it.to_string());
        Ok::<_, String>(networks.map(|it| (text(it.remote), text(it.on_board))).collect::<Vec<_>>())
    };
    let of = |rest: &str| {
        let found = networks(&format!("uplinks = [\"wlan0\"]\n{rest}")).expect(rest);
        let pairs: Vec<String> = found.iter().map(|(one, other)| format!("{one} {other}")).collect();
        pairs.join(", ")
    };
    assert_eq!(of(""), "any any");
    assert_eq!(of("protocol = \"icmp\""), "any any");
    assert_eq!(of("lan = [\"eth1\"]"), "any 2001:db8:b::/64");
    assert_eq!(of("lan = [\"eth0\"]"), "any 2001:db8:a::/64, any 10.42.7.0/24");
    assert_eq!(of("lan = [\"eth0\"]\nprotocol = \"icmp\""), "any 10.42.7.0/24");
    assert_eq!(of("lan = [\"eth0\"]\nprotocol = \"icmpv6\""), "any 2001:db8:a::/64");
    assert_eq!(of("prefixes = [\"192.0.2.0/24\"]\nlan = [\"eth0\"]"), "192.0.2.0/24 10.42.7.0/24");
    let both = "prefixes = [\"192.0.2.0/24\", \"2001:db8:c::/48\"]";
    assert_eq!(of(both), "192.0.2.0/24 any, 2001:db8:c::/48 any");
    for (wrong, expected) in [
        ("lan = [\"wlan0\"]", "\"wlan0\" is not in `mobile_router.lan`"),
        ("prefixes = [\"192.0.2.0/24\"]\nlan = [\"eth1\"]", "no packet can match the policy"),
        ("prefixes = [\"192.0.2.0/24\"]\nprotocol = \"icmpv6\"", "no packet can match the policy"),
        ("prefixes = [\"192.0.2.1/24\"]", "192.0.2.1/24"),
    ] {
        let error = networks(&format!("uplinks = [\"wlan0\"]\n{wrong}")).expect_err(wrong);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn router_does_not_break_out_by_default_while_home_agent_is_away() {
    let with = |text: &str| parse(&router_config(text));
    let warns = |config: &Config| config.warnings().iter().any(|line| line.contains("no packet can leave"));
    let config = with("when_home_agent_is_away = \"breakout\"");
    assert!(warns(&config) && config.mobile_router.expect("a router").breaks_out_without_home_agent);
    let config = with("");
    assert!(!warns(&config) && !config.mobile_router.expect("a router").breaks_out_without_home_agent);
}

#[test]
fn breakout_policy_needs_lan_interfaces_and_names_no_uplinks() {
    let with = |more: &str, lan: &str| {
        let policy = format!("[[mobile_router.policy]]\nname = \"a\"\naction = \"breakout\"\n{more}\n");
        let network = format!("prefixes = [\"2001:db8:a::/64\"]\nlan = {lan}\nhome_agent = ");
        let text = router_config(&policy).replace("home_agent = ", &network);
        let config = Config::parse(&text, "c.toml").map_err(|errors| errors.to_string())?;
        Ok::<_, String>(config.mobile_router.expect("a router").policies[0].clone())
    };
    let policy = with("", "[\"eth0\"]").expect("a policy");
    assert_eq!((policy.policy_action, policy.uplinks.len()), (PolicyAction::Breakout, 0));
    let policy = with("uplinks = [\"s0\"]", "[\"eth0\"]").expect("an uplink without bid");
    assert_eq!(policy.uplinks, ["s0"]);
    assert!(with("", "[]").expect_err("no lan").contains("expected `mobile_router.lan`"));
    let error = with("uplinks = [\"eth9\"]", "[\"eth0\"]").expect_err("an unknown uplink");
    assert!(error.contains("\"eth9\" is no uplink, expected one"), "{error}");
}

#[test]
fn wrong_policies_are_refused() {
    let policy = |text: &str| {
        errors(&format!("[[mobile_router.policy]]\nname = \"a\"\naction = \"failover\"\n{text}\n"))
    };
    assert!(policy("uplinks = []").contains("the policy has no uplink"));
    assert!(policy("uplinks = [\"s0\"]").contains("\"s0\" is no uplink with a `bid`"));
    assert!(policy("uplinks = [\"eth9\"]").contains("\"eth9\" is no uplink with a `bid`"));
    assert!(policy("").contains("the policy has no uplink"));
    assert!(policy("uplinks = [\"wlan0\"]\nports = [0]").contains("0 is out of range"));
    assert!(policy("uplinks = [\"wlan0\"]\nports = [\"9-5\"]").contains("is no range of ports"));
    assert!(policy("uplinks = [\"wlan0\"]\ndscp = [64]").contains("64 is out of range"));
    let ports: Vec<String> = (1..=17).map(|port| port.to_string()).collect();
    let many = policy(&format!("uplinks = [\"wlan0\"]\nports = [{}]", ports.join(", ")));
    assert!(many.contains("more than 32 flow bindings"), "{many}");
    let twice = "[[mobile_router.policy]]\nname = \"a\"\naction = \"failover\"\nuplinks = [\"wlan0\"]\n";
    assert!(policy(&format!("uplinks = [\"wlan0\"]\n{twice}")).contains("expected another name"));
}
