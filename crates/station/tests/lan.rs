//! Tests of a mobile network with several interfaces: the prefixes of each interface, and the Router
//! Advertisements for its hosts.

mod common;

use std::collections::BTreeMap;

use carnet_base::{LinkMessage, Rng, Time};
use carnet_nemo::forwarding::AllowedPackets;
use carnet_nemo::forwarding::desired::{EntryChange, EntryKey, ForwardingEntry};
use carnet_station::io::{Event, Input, NemoOutput, Output};
use carnet_station::{
    InboundFilter, InboundPackets, LanSettings, PersistentState, PortRange, Station, StationConfig,
};
use carnet_wire::nd::{NdOption, NestingInformation, RecursiveDnsServers, RouterAdvertisement};
use common::{WALL_TIME, address, interface, router_config};

/// The config of a router with these interfaces.
fn config(lan: Vec<LanSettings>) -> StationConfig {
    let mut config = router_config(&["2001:db8:a::/64", "2001:db8:b::/56", "2001:db8:c::/64"]);
    config.mobile_router.as_mut().expect("a mobile router").lan = lan;
    config
}

/// Returns the settings of an interface that has a prefix and a DNS server of its own.
fn own_lan_settings(interface: &str, dns: &str) -> LanSettings {
    let mut lan = LanSettings::from(interface);
    lan.prefixes = vec!["2001:db8:b:1::/64".parse().expect("a prefix")];
    lan.host_configuration.dns = vec![address(dns)];
    lan
}

/// Returns a station whose interfaces are up, and the advertisements that it has sent so far.
fn station_with_lans(lan: Vec<LanSettings>) -> (Station, AdvertisementsByInterface) {
    let mut station =
        Station::new(config(lan), PersistentState::default(), Rng::new(7), Time::ZERO, WALL_TIME);
    let mut found = take_outputs(&mut station).0;
    for name in ["i0", "i1", "i2"] {
        let interface = interface(name, "fe80::1", true);
        station.handle_input(Time::ZERO, WALL_TIME, Input::Interface(interface)).expect("accepted");
        found.extend(take_outputs(&mut station).0);
    }
    station.handle_input(Time::ZERO, WALL_TIME, Input::Timeout).expect("accepted");
    found.extend(take_outputs(&mut station).0);
    (station, found)
}

/// Returns the addresses of each interface.
fn interface_addresses(station: &Station) -> Vec<String> {
    let mut found: Vec<String> = station
        .nemo()
        .desired_entries()
        .filter_map(|entry| match entry {
            ForwardingEntry::Address(it) => {
                Some(format!("{} {}/{}", it.interface, it.address, it.prefix_length))
            }
            _ => None,
        })
        .collect();
    found.retain(|it| it.starts_with('i'));
    found.sort();
    found
}

/// Values of one advertisement: each prefix with its preferred lifetime, each DNS server with its lifetime.
type AdvertisedValues = (Vec<(String, u32)>, Vec<(String, u32)>);

/// The advertisements on each interface.
type AdvertisementsByInterface = BTreeMap<String, Vec<AdvertisedValues>>;

fn parse_advertised_values(message: &LinkMessage) -> Option<AdvertisedValues> {
    let advertisement = RouterAdvertisement::parse(&message.message).ok()?;
    let mut told = AdvertisedValues::default();
    for option in advertisement.options() {
        if let NdOption::PrefixInformation(it) = &option {
            told.0.push((it.prefix.to_string(), it.preferred_lifetime));
        }
        if let Some(it) = RecursiveDnsServers::read(&option) {
            told.1.extend(it.servers.iter().map(|server| (server.to_string(), it.lifetime)));
        }
    }
    Some(told)
}

/// Returns the advertisements on each interface, and the events.
fn take_outputs(station: &mut Station) -> (AdvertisementsByInterface, Vec<Event>) {
    let (mut found, mut events) = (AdvertisementsByInterface::new(), Vec::new());
    while let Some(output) = station.poll_output() {
        match output {
            Output::Nemo(NemoOutput::Icmpv6(message)) => {
                if let Some(told) = parse_advertised_values(&message) {
                    found.entry(message.interface).or_default().push(told);
                }
            }
            Output::Nemo(NemoOutput::Event(event)) => events.push(event),
            _ => {}
        }
    }
    (found, events)
}

fn advertised_values(prefixes: &[(&str, u32)], servers: &[(&str, u32)]) -> AdvertisedValues {
    let owned =
        |it: &[(&str, u32)]| it.iter().map(|(text, lifetime)| ((*text).to_owned(), *lifetime)).collect();
    (owned(prefixes), owned(servers))
}

const PREFERRED_LIFETIME: u32 = 604_800;

#[test]
fn lan_interface_with_own_prefixes_leaves_remaining_prefixes_to_others() {
    let (station, found) =
        station_with_lans(vec!["i0".into(), own_lan_settings("i1", "fd00::53"), "i2".into()]);
    // Interface `i1` has its own prefixes, so no other interface gets the first /64 of the /56.
    assert_eq!(
        interface_addresses(&station),
        ["i0 2001:db8:a::1/64", "i1 2001:db8:b:1::1/64", "i2 2001:db8:c::1/64"]
    );
    let expected = [
        ("i0", advertised_values(&[("2001:db8:a::", PREFERRED_LIFETIME)], &[])),
        ("i1", advertised_values(&[("2001:db8:b:1::", PREFERRED_LIFETIME)], &[("fd00::53", 180)])),
        ("i2", advertised_values(&[("2001:db8:c::", PREFERRED_LIFETIME)], &[])),
    ];
    assert_eq!(found, expected.map(|(name, told)| (name.to_owned(), vec![told])).into());
}

#[test]
fn last_lan_interface_gets_remaining_prefixes() {
    let (station, _) = station_with_lans(vec!["i0".into(), "i1".into()]);
    let expected = ["i0 2001:db8:a::1/64", "i1 2001:db8:b::1/64", "i1 2001:db8:c::1/64"];
    assert_eq!(interface_addresses(&station), expected);
}

#[test]
fn reload_withdraws_removed_dns_servers_from_hosts() {
    let (mut station, _) =
        station_with_lans(vec!["i0".into(), own_lan_settings("i1", "fd00::53"), "i2".into()]);
    station.reconfigure(
        Time::ZERO,
        WALL_TIME,
        config(vec!["i0".into(), own_lan_settings("i1", "fd00::54"), "i2".into()]),
    );
    let (found, events) = take_outputs(&mut station);
    let expected =
        advertised_values(&[("2001:db8:b:1::", PREFERRED_LIFETIME)], &[("fd00::53", 0), ("fd00::54", 180)]);
    assert_eq!(found["i1"], [expected], "one advertisement without a gap");
    let changed = vec!["mobile_router.lan i1".to_owned()];
    let expected = Event::Reloaded { added: vec![], removed: vec![], changed };
    assert!(format!("{events:?}").contains(&format!("{expected:?}")), "{events:?}");
}

#[test]
fn station_installs_inbound_filter_first_and_closes_lan_without_one() {
    let mut shut = LanSettings::from("i1");
    shut.inbound_filter = InboundFilter { inbound: InboundPackets::Established, ..InboundFilter::default() };
    let config = config(vec!["i0".into(), shut]);
    let mut station = Station::new(config, PersistentState::default(), Rng::new(7), Time::ZERO, WALL_TIME);
    let mut set = Vec::new();
    while let Some(output) = station.poll_output() {
        if let Output::Nemo(NemoOutput::Forwarding(EntryChange::Set(entry))) = output {
            set.push(entry);
        }
    }
    let rules = set.iter().take_while(|entry| matches!(entry.key(), EntryKey::PacketRule(_))).count();
    assert_eq!(rules, 7, "three source checks and the rules of one door: {set:?}");
    assert!(!set[rules..].iter().any(|entry| matches!(entry.key(), EntryKey::PacketRule(_))), "{set:?}");

    // Returns the networks that routing rules make unreachable. These are the networks of `i1` if the kernel
    // has no packet filter, because only `i1` has an inbound filter, which needs it.
    let closed = |station: &Station| -> Vec<(u32, String)> {
        let rules = station.nemo().desired_entries().filter_map(|entry| match entry {
            ForwardingEntry::Rule(rule) if (105..108).contains(&rule.priority) => {
                Some((rule.priority, rule.to.expect("a prefix").to_string()))
            }
            _ => None,
        });
        rules.collect()
    };
    let status = |station: &Station| station.nemo().lan_status()[1].closed.clone();
    assert_eq!((closed(&station), status(&station)), (vec![], None));
    let error = Some("no nf_tables".to_owned());
    station.handle_input(Time::ZERO, WALL_TIME, Input::PacketRules(error.clone())).expect("accepted");
    while station.poll_output().is_some() {}
    let networks = ["2001:db8:b::/64", "2001:db8:c::/64"];
    let all = (105..108).flat_map(|priority| networks.map(|network| (priority, network.to_owned())));
    assert_eq!((closed(&station), status(&station)), (all.collect(), error));
    station.handle_input(Time::ZERO, WALL_TIME, Input::PacketRules(None)).expect("accepted");
    assert_eq!((closed(&station), status(&station)), (vec![], None));
}

#[test]
fn lan_status_shows_the_inbound_filter_of_each_interface() {
    let mut shut = LanSettings::from("i1");
    let allowed = AllowedPackets {
        protocol: 6,
        ports: vec![PortRange { first: 443, last: 443 }, PortRange { first: 5000, last: 5010 }],
        destinations: ["2001:db8:b::77/128", "::ffff:10.42.7.9/128"].map(|it| it.parse().expect(it)).into(),
    };
    let ping = AllowedPackets { protocol: 58, ports: Vec::new(), destinations: Vec::new() };
    shut.inbound_filter = InboundFilter {
        inbound: InboundPackets::Established,
        allowed_exceptions: vec![allowed, ping],
        is_isolated: true,
        host_rate: None,
    };
    let config = config(vec!["i0".into(), shut]);
    let station = Station::new(config, PersistentState::default(), Rng::new(7), Time::ZERO, WALL_TIME);
    let lan = serde_json::to_value(station.nemo().lan_status()).expect("JSON");
    let expected = serde_json::json!([
        {"interface": "i0", "state": "no_such_interface", "inbound": "any", "allow": [], "isolated": false,
         "closed": null},
        {"interface": "i1", "state": "no_such_interface", "inbound": "established", "isolated": true,
         "closed": null, "allow": [
             {"protocol": "tcp", "ports": ["443", "5000-5010"], "to": ["2001:db8:b::77", "10.42.7.9"]},
             {"protocol": "icmpv6", "ports": [], "to": []},
         ]},
    ]);
    assert_eq!(lan, expected);
}

/// An operator's radvd takes over one of the interfaces.
#[test]
fn each_interface_has_its_own_advertise_setting() {
    let silent = LanSettings { send_router_advertisements: false, ..own_lan_settings("i1", "fd00::53") };
    let (fresh, found) = station_with_lans(vec!["i0".into(), silent.clone(), "i2".into()]);
    assert_eq!(interface_addresses(&fresh), ["i0 2001:db8:a::1/64", "i2 2001:db8:c::1/64"]);
    assert_eq!(found.into_keys().collect::<Vec<_>>(), ["i0", "i2"]);

    let (mut station, _) =
        station_with_lans(vec!["i0".into(), own_lan_settings("i1", "fd00::53"), "i2".into()]);
    let before = interface_addresses(&station);
    station.reconfigure(Time::ZERO, WALL_TIME, config(vec!["i0".into(), silent, "i2".into()]));
    assert_eq!(interface_addresses(&station), before, "it keeps the address");
    let (found, _) = take_outputs(&mut station);
    assert_eq!(found["i1"], [advertised_values(&[("2001:db8:b:1::", 0)], &[("fd00::53", 0)])]);
    assert_eq!(found["i0"], [advertised_values(&[("2001:db8:a::", PREFERRED_LIFETIME)], &[])]);
}

/// Returns whether an advertisement has information for mobile routers on board: home addresses and networks.
fn is_nesting_advertised(nesting: bool) -> bool {
    let mut config = config(vec![LanSettings::from("i0")]);
    config.mobile_router.as_mut().expect("a mobile router").nesting_enabled = nesting;
    let mut station = Station::new(config, PersistentState::default(), Rng::new(7), Time::ZERO, WALL_TIME);
    let mut found = Vec::new();
    let inputs = [Input::Interface(interface("i0", "fe80::1", true)), Input::Timeout];
    for input in [None].into_iter().chain(inputs.map(Some)) {
        if let Some(input) = input {
            station.handle_input(Time::ZERO, WALL_TIME, input).expect("accepted");
        }
        while let Some(output) = station.poll_output() {
            let Output::Nemo(NemoOutput::Icmpv6(message)) = output else { continue };
            let Ok(advertisement) = RouterAdvertisement::parse(&message.message) else { continue };
            found.push(advertisement.options().any(|option| NestingInformation::read(&option).is_some()));
        }
    }
    assert!(!found.is_empty(), "an advertisement");
    found.contains(&true)
}

#[test]
fn router_advertises_home_addresses_only_with_nesting() {
    assert!(is_nesting_advertised(true));
    assert!(!is_nesting_advertised(false));
}
