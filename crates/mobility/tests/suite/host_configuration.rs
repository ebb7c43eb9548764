//! Values for hosts in Router Advertisements, beside prefixes: RFC 8106 5, RFC 8781 4, RFC 8910 2.3.

use std::net::Ipv6Addr;
use std::time::Duration;

use carnet_base::{Interface, LinkMessage, Rng, Time};
use carnet_mobility::router_advertiser::{AdvertiserConfig, HostConfiguration, RouterAdvertiser};
use carnet_wire::icmpv6;
use carnet_wire::nd::{
    self, CaptivePortal, DnsSearchList, NdOption, Pref64, RecursiveDnsServers, RouterAdvertisement,
};

use crate::test_messages::addr;
use crate::test_setup::addresses;

fn interface(mtu: u32) -> Interface {
    Interface {
        name: "i0".into(),
        running: true,
        mtu,
        link_address: Some([2, 0, 0, 0, 0, 1]),
        addresses: addresses(&["fe80::1"]),
        ..Interface::default()
    }
}

fn example_configuration() -> HostConfiguration {
    HostConfiguration {
        dns: vec![addr("2001:db8:53::53"), addr("fe80::1")],
        search: vec!["bus.example".into(), "example".into()],
        pref64: vec!["64:ff9b::/96".parse().expect("a prefix")],
        captive_portal: Some("https://portal.example/api".into()),
        is_dns_server: false,
        has_dhcpv6: false,
    }
}

/// Returns an advertiser on a link that is up.
fn advertiser(hosts: HostConfiguration, mtu: Option<u32>) -> RouterAdvertiser {
    let prefixes = vec!["2001:db8:a::/64".parse().expect("a prefix")];
    let config =
        AdvertiserConfig { interface: "i0".into(), prefixes, mtu, host_values: hosts, home_agent: None };
    RouterAdvertiser::new(config, Rng::new(1))
}

/// Returns the messages that are due next, and their time.
fn next_advertisements(advertiser: &mut RouterAdvertiser) -> (Time, Vec<LinkMessage>) {
    let now = advertiser.poll_timeout().expect("due");
    advertiser.handle_timeout(now);
    (now, take_messages(advertiser))
}

fn take_messages(advertiser: &mut RouterAdvertiser) -> Vec<LinkMessage> {
    std::iter::from_fn(|| advertiser.poll_output()).collect()
}

/// The values that a host reads in advertisements.
#[derive(Debug, Default, PartialEq)]
struct AdvertisedValues {
    dns: Vec<(u32, Vec<Ipv6Addr>)>,
    search: Vec<(u32, Vec<String>)>,
    pref64: Vec<(u16, String)>,
    portals: Vec<String>,
    mtu: Vec<u32>,
    prefix_count: usize,
}

fn read_advertised_values(messages: &[LinkMessage]) -> AdvertisedValues {
    let mut told = AdvertisedValues::default();
    for message in messages {
        assert_eq!(icmpv6::verify_checksum(message.source, message.destination, &message.message), Ok(()));
        let advertisement = RouterAdvertisement::parse(&message.message).expect("an advertisement");
        let mut options = advertisement.options();
        assert_eq!(options.next(), Some(NdOption::SourceLinkAddress([2, 0, 0, 0, 0, 1])));
        for option in options {
            let dns = RecursiveDnsServers::read(&option);
            told.dns.extend(dns.map(|it| (it.lifetime, it.servers)));
            let search = DnsSearchList::read(&option);
            told.search.extend(search.map(|it| (it.lifetime, it.domains)));
            let pref64 = Pref64::read(&option);
            told.pref64.extend(pref64.map(|it| (it.lifetime(), it.prefix().to_string())));
            told.portals.extend(CaptivePortal::read(&option).map(|it| it.uri));
            match option {
                NdOption::Mtu(mtu) => told.mtu.push(mtu),
                NdOption::PrefixInformation(_) => told.prefix_count += 1,
                _ => {}
            }
        }
    }
    told
}

/// RFC 8106 5.1, 5.2, RFC 8781 4, RFC 8910 2.3: the options, to the octet.
#[test]
fn router_advertisements_have_configured_host_values() {
    let mut advertiser = advertiser(example_configuration(), Some(1400));
    advertiser.handle_interface(Time::ZERO, &interface(1500));
    advertiser.set_mtu_and_validity(Time::ZERO, Some(1460), true);
    let (_, messages) = next_advertisements(&mut advertiser);
    let [message] = &messages[..] else { panic!("{messages:?}") };
    let mut expected = vec![1, 1, 2, 0, 0, 0, 0, 1];
    // MTU option with the value of the config, not with that of the tunnel.
    expected.extend([5, 1, 0, 0, 0, 0, 0x05, 0x78]);
    expected.extend([3, 4, 64, 0xc0, 0, 0x27, 0x8d, 0, 0, 0x09, 0x3a, 0x80, 0, 0, 0, 0]);
    expected.extend(addr("2001:db8:a::").octets());
    expected.extend([37, 4]);
    expected.extend(b"https://portal.example/api\0\0\0\0");
    // Lifetime of 180 s: three times MaxRtrAdvInterval.
    expected.extend([25, 5, 0, 0, 0, 0, 0, 180]);
    expected.extend(addr("2001:db8:53::53").octets());
    expected.extend(addr("fe80::1").octets());
    expected.extend([31, 4, 0, 0, 0, 0, 0, 180]);
    expected.extend(b"\x03bus\x07example\0\x07example\0\0\0");
    // PREF64 option with a lifetime of 23 units of 8 s, and prefix length code 0 for 96 bits.
    expected.extend([38, 2, 0, 23 << 3, 0, 0x64, 0xff, 0x9b, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(message.message[16..], expected);
}

#[test]
fn router_advertisements_without_config_contain_prefix_and_mtu() {
    let mut advertiser = advertiser(HostConfiguration::default(), None);
    advertiser.handle_interface(Time::ZERO, &interface(1500));
    advertiser.set_mtu_and_validity(Time::ZERO, Some(1460), true);
    let (_, messages) = next_advertisements(&mut advertiser);
    assert_eq!(
        read_advertised_values(&messages),
        AdvertisedValues { mtu: vec![1460], prefix_count: 1, ..AdvertisedValues::default() }
    );
}

/// RFC 8106 5.1: a lifetime of 0 withdraws a server. The router repeats the withdrawal three times, as RFC
/// 4861 10 does for a router that ceases to advertise.
#[test]
fn removed_host_values_are_withdrawn_three_times() {
    let mut old = advertiser(example_configuration(), None);
    old.handle_interface(Time::ZERO, &interface(1500));
    next_advertisements(&mut old);
    let kept =
        HostConfiguration { dns: vec![addr("fe80::1"), addr("fd00::1")], ..HostConfiguration::default() };
    let mut new = advertiser(kept.clone(), None);
    let mut now = Time::from_secs(5);
    old.handle_withdrawal(now, Some(&mut new));
    assert_eq!(take_messages(&mut old), [], "the successor has the same prefixes");
    new.handle_interface(now, &interface(1500));
    for _ in 0..3 {
        let (due, messages) = next_advertisements(&mut new);
        assert!(due <= now + Duration::from_secs(16), "{due}");
        now = due;
        let expected = AdvertisedValues {
            dns: vec![(0, vec![addr("2001:db8:53::53")]), (180, kept.dns.clone())],
            search: vec![(0, vec!["bus.example".into(), "example".into()])],
            pref64: vec![(0, "64:ff9b::/96".into())],
            portals: vec![CaptivePortal::UNRESTRICTED.into()],
            mtu: vec![],
            prefix_count: 1,
        };
        assert_eq!(read_advertised_values(&messages), expected);
    }
    let (due, messages) = next_advertisements(&mut new);
    assert!(due >= now + Duration::from_secs(16), "{due}");
    assert_eq!(
        read_advertised_values(&messages),
        AdvertisedValues { dns: vec![(180, kept.dns)], prefix_count: 1, ..AdvertisedValues::default() }
    );
}

/// A second reload comes before the router has repeated the withdrawal of the first reload three times.
#[test]
fn second_reload_continues_running_withdrawal() {
    let mut first = advertiser(example_configuration(), None);
    first.handle_interface(Time::ZERO, &interface(1500));
    next_advertisements(&mut first);
    let with = |dns: &[&str]| HostConfiguration {
        dns: dns.iter().map(|text| addr(text)).collect(),
        ..HostConfiguration::default()
    };
    let mut second = advertiser(with(&["fd00::2"]), None);
    first.handle_withdrawal(Time::from_secs(1), Some(&mut second));
    second.handle_interface(Time::from_secs(1), &interface(1500));
    next_advertisements(&mut second);
    let mut third = advertiser(with(&["fe80::1"]), None);
    second.handle_withdrawal(Time::from_secs(2), Some(&mut third));
    third.handle_interface(Time::from_secs(2), &interface(1500));
    let (_, messages) = next_advertisements(&mut third);
    let ended = [addr("fd00::2"), addr("2001:db8:53::53")];
    let found = read_advertised_values(&messages);
    assert_eq!(found.dns[1], (180, vec![addr("fe80::1")]));
    let (lifetime, servers) = &found.dns[0];
    assert!(*lifetime == 0 && servers.len() == 2 && ended.iter().all(|it| servers.contains(it)), "{found:?}");
    assert_eq!(found.pref64, [(0, "64:ff9b::/96".into())]);
}

/// The new config does not have the interface, or the router no longer sends advertisements on it.
#[test]
fn last_lan_interface_withdraws_all_values_at_once() {
    let mut advertiser = advertiser(example_configuration(), None);
    advertiser.handle_interface(Time::ZERO, &interface(1500));
    next_advertisements(&mut advertiser);
    advertiser.handle_withdrawal(Time::from_secs(5), None);
    let messages = take_messages(&mut advertiser);
    let lifetimes = |found: &AdvertisedValues| (found.dns[0].0, found.search[0].0, found.pref64[0].0);
    let found = read_advertised_values(&messages);
    assert_eq!(lifetimes(&found), (0, 0, 0));
    assert_eq!(found.portals, [CaptivePortal::UNRESTRICTED]);
    assert_eq!(advertiser.poll_timeout(), None);
}

/// A router withdraws its DNS servers when it stops and when the home agent refuses its prefixes: hosts no
/// longer reach the servers through it.
#[test]
fn stopping_router_withdraws_dns_servers() {
    let mut stopping = advertiser(example_configuration(), None);
    stopping.handle_interface(Time::ZERO, &interface(1500));
    stopping.handle_shutdown(Time::ZERO);
    let mut refused = advertiser(example_configuration(), None);
    refused.handle_interface(Time::ZERO, &interface(1500));
    refused.set_mtu_and_validity(Time::ZERO, Some(1460), false);
    let (_, of_refused) = next_advertisements(&mut refused);
    for messages in [take_messages(&mut stopping), of_refused] {
        assert_eq!(read_advertised_values(&messages).dns, [(0, example_configuration().dns)]);
    }
    // The home agent accepts the prefixes: the router advertises the DNS servers again.
    refused.set_mtu_and_validity(Time::from_secs(60), Some(1460), true);
    let (_, messages) = next_advertisements(&mut refused);
    assert_eq!(read_advertised_values(&messages).dns, [(180, example_configuration().dns)]);
}

/// RFC 4861 6.2.3: options that do not fit into the link's MTU go into several advertisements.
#[test]
fn long_lists_go_into_several_advertisements() {
    let servers: Vec<Ipv6Addr> = (0..75).map(|number| addr(&format!("fd00::{number:x}:1"))).collect();
    let domains: Vec<String> = (0..18).map(|number| format!("{number:0>53}.bus.test")).collect();
    let long = HostConfiguration { dns: servers.clone(), search: domains.clone(), ..example_configuration() };
    for (link, mtu, count) in [(1280, None, 3), (1500, None, 2), (1500, Some(1280), 3), (9000, None, 1)] {
        let mut advertiser = advertiser(long.clone(), mtu);
        advertiser.handle_interface(Time::ZERO, &interface(link));
        let (_, messages) = next_advertisements(&mut advertiser);
        let room = mtu.unwrap_or(link);
        assert_eq!(messages.len(), count, "{link} {mtu:?}");
        for message in &messages {
            assert!(40 + message.message.len() <= usize::try_from(room).expect("small"), "{link} {mtu:?}");
            let advertisement = RouterAdvertisement::parse(&message.message).expect("an advertisement");
            assert_eq!((advertisement.router_lifetime, advertisement.hop_limit), (1800, 64));
        }
        let found = read_advertised_values(&messages);
        assert_eq!(found.dns, [(180, servers.clone())]);
        assert_eq!(found.search, [(180, domains.clone())]);
        assert_eq!((found.pref64.len(), found.portals.len(), found.prefix_count), (1, 1, 1));
        assert_eq!(read_advertised_values(&messages[..1]).prefix_count, 1, "the prefix is in the first");
    }
}

/// The values that two earlier configs had do not fit into one option of each type.
#[test]
fn a_withdrawal_of_many_prefixes_uses_several_options() {
    let with = |net: u32| HostConfiguration {
        dns: (0..75).map(|number| addr(&format!("fd00:{net}::{number:x}:1"))).collect(),
        search: (0..18).map(|number| format!("{net}{number:0>52}.bus.test")).collect(),
        ..HostConfiguration::default()
    };
    let mut first = advertiser(with(1), None);
    let mut second = advertiser(with(2), None);
    let mut third = advertiser(HostConfiguration::default(), None);
    first.handle_withdrawal(Time::ZERO, Some(&mut second));
    second.handle_withdrawal(Time::ZERO, Some(&mut third));
    third.handle_interface(Time::ZERO, &interface(1280));
    let (_, messages) = next_advertisements(&mut third);
    let found = read_advertised_values(&messages);
    assert!(messages.iter().all(|message| 40 + message.message.len() <= 1280));
    assert_eq!(
        found.dns.iter().map(|(lifetime, servers)| (*lifetime, servers.len())).collect::<Vec<_>>(),
        [(0, 75), (0, 75)]
    );
    assert_eq!(found.search.iter().map(|(_, domains)| domains.len()).sum::<usize>(), 36);
}

/// Returns an advertisement of another router on the link.
fn foreign_advertisement(source: &str, router_lifetime: u16) -> LinkMessage {
    let source = addr(source);
    let mut message = nd::emit_router_advertisement(&nd::RouterAdvertisementRepr {
        hop_limit: 64,
        managed: false,
        other_configuration: false,
        home_agent: false,
        preference: nd::RoutePreference::Medium,
        router_lifetime,
        reachable_time: 0,
        retrans_timer: 0,
        options: &[],
    });
    icmpv6::set_checksum(&mut message, source, nd::ALL_NODES);
    LinkMessage {
        interface: "i0".into(),
        source,
        destination: nd::ALL_NODES,
        hop_limit: 255,
        peer: None,
        message,
    }
}

#[test]
fn another_router_on_the_link_is_reported_once() {
    let mut advertiser = advertiser(HostConfiguration::default(), None);
    advertiser.handle_interface(Time::ZERO, &interface(1500));
    let mut hear = |source: &str, lifetime: u16| {
        let heard = advertiser.handle_link_message(Time::ZERO, &foreign_advertisement(source, lifetime));
        assert_eq!(heard, Ok(()));
        advertiser.take_new_other_router()
    };
    assert_eq!(hear("fe80::9", 0), None, "no default router");
    assert_eq!(hear("2001:db8::9", 1800), None, "no router of the link");
    assert_eq!(hear("fe80::9", 1800), Some(addr("fe80::9")));
    assert_eq!(hear("fe80::9", 1800), None);
    // Reports of other routers are limited, because their advertisements may be forged.
    assert_eq!(hear("fe80::a", 1800), None);
    assert_eq!(advertiser.other_router(), Some(addr("fe80::a")));
}

#[test]
fn router_is_the_first_dns_server_by_its_own_address() {
    let config = HostConfiguration { is_dns_server: true, has_dhcpv6: true, ..HostConfiguration::default() };
    let mut advertiser = advertiser(config, None);
    let mut up = interface(1500);
    advertiser.handle_interface(Time::ZERO, &up);
    assert_eq!(advertiser.host_configuration().dns, [] as [std::net::Ipv6Addr; 0]);
    up.addresses.extend(addresses(&["2001:db8:a::1"]));
    advertiser.handle_interface(Time::ZERO, &up);
    assert_eq!(advertiser.host_configuration().dns, [addr("2001:db8:a::1")]);
    let (_, messages) = next_advertisements(&mut advertiser);
    // Of the M and O flags only the O flag is set.
    assert_eq!(messages[0].message[5] & 0xc0, 0x40);
}
