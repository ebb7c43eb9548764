//! The options that configure hosts: the parser reads what the emitter wrote, and ignores invalid options.

use std::net::Ipv6Addr;

use carnet_wire::nd::host_configuration::{MAX_DNS_SERVERS, MAX_PREF64_LIFETIME, encode_domain_name};
use carnet_wire::nd::nd_option::option_type;
use carnet_wire::nd::{
    CaptivePortal, DnsSearchList, NdOption, Pref64, RecursiveDnsServers, RouterAdvertisement,
    RouterAdvertisementRepr, emit_router_advertisement,
};
use ipnet::Ipv6Net;
use proptest::prelude::*;

fn any_address() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(Ipv6Addr::from)
}

fn any_label() -> impl Strategy<Value = String> {
    "[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?"
}

fn any_domain() -> impl Strategy<Value = String> {
    prop::collection::vec(any_label(), 1..5).prop_map(|labels| labels.join("."))
}

/// Returns random octets. Many of them are valid lengths of DNS labels.
fn any_encoded_names() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop::sample::select(vec![0, 1, 2, 63, 64, 192, b'a', b'.']), 0..300)
}

fn any_pref64() -> impl Strategy<Value = Pref64> {
    (any_address(), prop::sample::select(vec![96, 64, 56, 48, 40, 32]), any::<u16>()).prop_map(
        |(prefix, length, lifetime)| {
            Pref64::new(Ipv6Net::new(prefix, length).expect("a length"), lifetime).expect("a length")
        },
    )
}

/// Puts an option into a Router Advertisement, and returns the option that `read` finds in it; `None` if it
/// finds none.
fn emit_and_parse<T>(option_type: u8, data: &[u8], read: impl Fn(&NdOption<'_>) -> Option<T>) -> Option<T> {
    let options = [NdOption::Mtu(1460), NdOption::Unknown { option_type, data }, NdOption::Mtu(1280)];
    let repr = RouterAdvertisementRepr { options: &options, ..RouterAdvertisementRepr::default() };
    let message = emit_router_advertisement(&repr);
    assert_eq!(message.len() % 8, 0);
    let advertisement = RouterAdvertisement::parse(&message).expect("what was sent");
    let mut found = advertisement.options().filter_map(|option| read(&option));
    let option = found.next();
    assert!(found.next().is_none());
    option
}

fn parse_option<T>(option_type: u8, data: &[u8], read: fn(&NdOption<'_>) -> Option<T>) -> Option<T> {
    read(&NdOption::Unknown { option_type, data })
}

proptest! {
    #[test]
    fn dns_server_option_is_encoded_and_decoded(
        lifetime: u32,
        servers in prop::collection::vec(any_address(), 1..=MAX_DNS_SERVERS),
    ) {
        let option = RecursiveDnsServers { lifetime, servers };
        let read =
            emit_and_parse(option_type::RECURSIVE_DNS_SERVER, &option.emit_data(), RecursiveDnsServers::read);
        prop_assert_eq!(read, Some(option));
    }

    #[test]
    fn dns_search_list_option_is_encoded_and_decoded(
        lifetime: u32,
        domains in prop::collection::vec(any_domain(), 1..15),
    ) {
        let option = DnsSearchList { lifetime, domains };
        let read = emit_and_parse(option_type::DNS_SEARCH_LIST, &option.emit_data(), DnsSearchList::read);
        prop_assert_eq!(read, Some(option));
    }

    #[test]
    fn pref64_option_is_encoded_and_decoded(option in any_pref64()) {
        prop_assert_eq!(option.lifetime() % 8, 0);
        prop_assert_eq!(emit_and_parse(option_type::PREF64, &option.emit_data(), Pref64::read), Some(option));
    }

    #[test]
    fn captive_portal_option_is_encoded_and_decoded(uri in "https://[a-z0-9./?=-]{1,240}") {
        let option = CaptivePortal { uri };
        prop_assert_eq!(
            emit_and_parse(option_type::CAPTIVE_PORTAL, &option.emit_data(), CaptivePortal::read),
            Some(option),
        );
    }

    /// Arbitrary octets never panic the parser; parsed values survive writing and reading.
    #[test]
    fn random_host_configuration_options_cause_no_panic(
        which in 0usize..4,
        data in prop::collection::vec(any::<u8>(), 0..=2038),
    ) {
        match which {
            0 => {
                let option_type = option_type::RECURSIVE_DNS_SERVER;
                if let Some(read) = parse_option(option_type, &data, RecursiveDnsServers::read) {
                    prop_assert_eq!(&read.emit_data()[2..], &data[2..]);
                }
            }
            1 => {
                if let Some(read) = parse_option(option_type::DNS_SEARCH_LIST, &data, DnsSearchList::read) {
                    let again =
                        parse_option(option_type::DNS_SEARCH_LIST, &read.emit_data(), DnsSearchList::read);
                    prop_assert_eq!(again, Some(read));
                }
            }
            2 => {
                if let Some(read) = parse_option(option_type::PREF64, &data, Pref64::read) {
                    prop_assert_eq!(
                        parse_option(option_type::PREF64, &read.emit_data(), Pref64::read),
                        Some(read),
                    );
                }
            }
            _ => {
                if let Some(read) = parse_option(option_type::CAPTIVE_PORTAL, &data, CaptivePortal::read) {
                    let again =
                        parse_option(option_type::CAPTIVE_PORTAL, &read.emit_data(), CaptivePortal::read);
                    prop_assert_eq!(again, Some(read));
                }
            }
        }
    }

    /// The test uses octets that look like names, because they reach further into the parser.
    #[test]
    fn invalid_domain_names_are_refused(names in any_encoded_names()) {
        let data = [&[0; 6][..], &names].concat();
        if let Some(read) = parse_option(option_type::DNS_SEARCH_LIST, &data, DnsSearchList::read) {
            let again = parse_option(option_type::DNS_SEARCH_LIST, &read.emit_data(), DnsSearchList::read);
            prop_assert_eq!(again, Some(read));
        }
    }

    #[test]
    fn truncated_host_configuration_option_is_ignored(
        servers in prop::collection::vec(any_address(), 1..5),
        cut in 1usize..16,
    ) {
        let mut data = RecursiveDnsServers { lifetime: 180, servers }.emit_data();
        data.truncate(data.len() - cut);
        prop_assert_eq!(
            parse_option(option_type::RECURSIVE_DNS_SERVER, &data, RecursiveDnsServers::read),
            None,
        );
    }
}

/// RFC 8781 4: the codes of the prefix lengths, and the lifetime in units of 8 seconds in the upper bits.
#[test]
fn pref64_option_has_the_octets_of_rfc_8781() {
    let octets = |prefix: &str, lifetime| {
        let prefix = prefix.parse().expect("a prefix");
        Pref64::new(prefix, lifetime).map(|option| option.emit_data()[..6].to_vec())
    };
    assert_eq!(octets("64:ff9b::/96", 180), Some(vec![0, 23 << 3, 0, 0x64, 0xff, 0x9b]));
    for (code, length) in [(0, 96), (1, 64), (2, 56), (3, 48), (4, 40), (5, 32)] {
        assert_eq!(octets(&format!("64:ff9b::/{length}"), 8).map(|it| it[1]), Some(8 | code));
    }
    assert_eq!(octets("64:ff9b::/95", 180), None);
    // RFC 8781 4.1: the lifetime is rounded up, and is at most 8191 units.
    let lifetime =
        |seconds| Pref64::new("64:ff9b::/96".parse().expect("a prefix"), seconds).map(|it| it.lifetime());
    assert_eq!(lifetime(1), Some(8));
    assert_eq!(lifetime(u16::MAX), Some(MAX_PREF64_LIFETIME));
    assert_eq!(lifetime(0), Some(0));
    // Bits behind the prefix do not belong to the prefix. The codes 6 and 7 have no meaning, and the parser
    // ignores the option.
    let mut data = vec![0, 1];
    data.extend([0xff; 12]);
    let read = parse_option(option_type::PREF64, &data, Pref64::read);
    assert_eq!(read.map(|it| it.prefix().to_string()), Some("ffff:ffff:ffff:ffff::/64".into()));
    for code in [6, 7] {
        data[1] = code;
        assert_eq!(parse_option(option_type::PREF64, &data, Pref64::read), None);
    }
    data[1] = 0;
    data.extend([0; 8]);
    assert_eq!(parse_option(option_type::PREF64, &data, Pref64::read), None);
}

/// RFC 1035 3.1 defines the octets of a domain name. By RFC 8106 5.2 no name is compressed.
#[test]
fn domain_names_have_the_octets_of_rfc_1035() {
    assert_eq!(encode_domain_name("bus.example"), Some(b"\x03bus\x07example\x00".to_vec()));
    let longest = [&*"a".repeat(63), &"b".repeat(63), &"c".repeat(63), &"d".repeat(61)].join(".");
    assert_eq!(encode_domain_name(&longest).map(|it| it.len()), Some(255));
    let longer = format!("{longest}d");
    for wrong in ["", ".", "a..b", "bus.example.", &"a".repeat(64), "a b", "b\u{fc}s", &longer] {
        assert_eq!(encode_domain_name(wrong), None, "{wrong}");
    }
    let read = |names: &[u8]| {
        let data = [&[0, 0, 0, 0, 0, 180], names].concat();
        parse_option(option_type::DNS_SEARCH_LIST, &data, DnsSearchList::read).map(|it| it.domains)
    };
    assert_eq!(read(b"\x01a\x01b\x00\x01c\x00\x00\x00"), Some(vec!["a.b".to_owned(), "c".to_owned()]));
    for wrong in [&b""[..], b"\x00\x00", b"\x01a", b"\x02a\x00", b"\x01a\xc0\x00", b"\x01.\x00", b"\x01 \x00"]
    {
        assert_eq!(read(wrong), None, "{wrong:?}");
    }
}

/// An option omits servers and names that exceed the largest length of an option.
#[test]
fn names_beyond_option_length_are_omitted() {
    let servers = vec![Ipv6Addr::LOCALHOST; MAX_DNS_SERVERS + 1];
    let data = RecursiveDnsServers { lifetime: 1, servers }.emit_data();
    let read = emit_and_parse(option_type::RECURSIVE_DNS_SERVER, &data, RecursiveDnsServers::read);
    assert_eq!(read.map(|it| it.servers.len()), Some(127));
    let domains: Vec<String> = (0..40).map(|number| format!("{number:0>60}")).collect();
    let data = DnsSearchList { lifetime: 1, domains: domains.clone() }.emit_data();
    let read = emit_and_parse(option_type::DNS_SEARCH_LIST, &data, DnsSearchList::read);
    assert_eq!(read.map(|it| it.domains), Some(domains[..32].to_vec()));
}
