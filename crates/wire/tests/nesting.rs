//! The options for nested mobile routers: the parser reads what the emitter wrote, and ignores other options.

use std::net::Ipv6Addr;

use carnet_wire::nd::address_registration::{is_later_transaction, next_transaction_id};
use carnet_wire::nd::nd_option::option_type;
use carnet_wire::nd::nesting::{MAX_PREFIXES, MAX_ROUTERS_IN_PATH};
use carnet_wire::nd::{
    AddressRegistration, NdOption, NdOptions, NeighborSolicitation, NestingInformation, RouterAdvertisement,
    RouterAdvertisementRepr, emit_router_advertisement,
};
use proptest::prelude::*;

fn any_address() -> impl Strategy<Value = Ipv6Addr> {
    any::<u128>().prop_map(Ipv6Addr::from)
}

fn any_network() -> impl Strategy<Value = Ipv6Addr> {
    // The range excludes multicast addresses, which are not valid targets.
    (0..0xff00_0000_0000_0000_u64).prop_map(|half| Ipv6Addr::from(u128::from(half) << 64))
}

fn any_nesting_information() -> impl Strategy<Value = NestingInformation> {
    (
        any::<bool>(),
        prop::collection::vec(any_network(), 0..=MAX_PREFIXES),
        prop::collection::vec(any_address(), 0..=MAX_ROUTERS_IN_PATH),
    )
        .prop_map(|(grounded, prefixes, path)| NestingInformation {
            grounded,
            prefixes,
            path_home_addresses: path,
        })
}

fn any_registration() -> impl Strategy<Value = AddressRegistration> {
    (any::<u8>(), any::<u8>(), any::<u16>(), any::<u64>()).prop_map(
        |(status, transaction, lifetime, owner)| AddressRegistration {
            status,
            transaction_id: transaction,
            lifetime,
            ownership_verifier: owner,
        },
    )
}

/// Returns the option as in a Router Advertisement.
fn emit_in_advertisement(information: &NestingInformation) -> Vec<u8> {
    let data = information.emit_data();
    let options =
        [NdOption::Mtu(1460), NdOption::Unknown { option_type: option_type::EXPERIMENT_1, data: &data }];
    emit_router_advertisement(&RouterAdvertisementRepr {
        options: &options,
        ..RouterAdvertisementRepr::default()
    })
}

proptest! {
    #[test]
    fn nesting_offer_option_is_encoded_and_decoded(information in any_nesting_information()) {
        let message = emit_in_advertisement(&information);
        prop_assert_eq!(message.len() % 8, 0);
        let advertisement = RouterAdvertisement::parse(&message).expect("what was sent");
        let mut read = advertisement.options().filter_map(|option| NestingInformation::read(&option));
        prop_assert_eq!(read.next(), Some(information));
        prop_assert_eq!(read.next(), None);
    }

    #[test]
    fn extended_address_registration_is_encoded_and_decoded(
        target in any_network(),
        registration in any_registration(),
    ) {
        let mut message = NeighborSolicitation { target, source_link_address: Some([2; 6]) }.emit();
        prop_assert_eq!(AddressRegistration::from_message(&message), None);
        registration.emit_into(&mut message);
        prop_assert_eq!(message.len(), 24 + 8 + 16);
        prop_assert_eq!(AddressRegistration::from_message(&message), Some(registration));
        prop_assert_eq!(NeighborSolicitation::parse(&message).map(|it| it.target), Ok(target));
    }

    /// Arbitrary octets never panic the parser; parsed values survive writing and reading.
    #[test]
    fn random_nesting_options_are_refused(data in prop::collection::vec(any::<u8>(), 0..=2038)) {
        let option = NdOption::Unknown { option_type: option_type::EXPERIMENT_1, data: &data };
        if let Some(read) = NestingInformation::read(&option) {
            prop_assert_eq!(6 + 8 * read.prefixes.len() + 16 * read.path_home_addresses.len(), data.len());
        }
        let _any = AddressRegistration::from_message(&data);
    }

    #[test]
    fn truncated_or_changed_nesting_option_is_refused(
        information in any_nesting_information(),
        at in 0usize..4,
        cut in 1usize..8,
    ) {
        let mut data = information.emit_data();
        let whole = data.len();
        let read = |data: &[u8]| {
            NestingInformation::read(&NdOption::Unknown { option_type: option_type::EXPERIMENT_1, data })
        };
        prop_assert_eq!(read(&data[..whole - cut.min(whole)]), None);
        data[at] ^= 1;
        prop_assert_eq!(read(&data), None);
    }

    /// RFC 6550 7.2: each number is later than the up to 16 numbers before it.
    #[test]
    fn registration_transaction_ids_are_ordered(start in any::<u8>(), steps in 1usize..=16) {
        let mut transaction = start;
        for _ in 0..steps {
            transaction = next_transaction_id(transaction);
        }
        prop_assert!(is_later_transaction(transaction, start), "{} {}", transaction, start);
        prop_assert!(!is_later_transaction(start, transaction), "{} {}", start, transaction);
        prop_assert!(!is_later_transaction(start, start));
    }
}

/// RFC 8505 4.1, figure 1: the option has these octets.
#[test]
fn extended_address_registration_has_the_layout_of_rfc_8505() {
    let registration = AddressRegistration {
        status: 1,
        transaction_id: 240,
        lifetime: 2,
        ownership_verifier: 0x0102_0304_0506_0708,
    };
    let mut octets = Vec::new();
    registration.emit_into(&mut octets);
    assert_eq!(octets, [33, 2, 1, 0, 3, 240, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(NdOptions::parse(&octets).map(Iterator::count), Ok(1));
}

/// The parser ignores longer owners and registrations without a transaction number.
#[test]
fn other_registration_forms_of_rfc_8505_are_ignored() {
    let mut message = NeighborSolicitation { target: Ipv6Addr::LOCALHOST, source_link_address: None }.emit();
    let fixed = message.clone();
    message.extend([33, 3, 0, 0, 3, 1, 0, 2]);
    message.extend([7; 16]);
    assert_eq!(AddressRegistration::from_message(&message), None);
    let mut message = fixed;
    message.extend([33, 2, 0, 0, 2, 1, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(AddressRegistration::from_message(&message), None);
}
