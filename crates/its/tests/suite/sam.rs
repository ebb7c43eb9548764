//! Tests of the Service Announcement Message against the octets of another ASN.1 compiler, and of the service
//! in virtual time.

use carnet_base::Rng;
use carnet_geonet::geodesy::Position;
use carnet_its::cdd::{ItsPduHeader, MessageId, ProtocolVersion, StationId};
use carnet_its::sa::{
    AdvertisementChange, AnnouncedService, MAX_SERVICES_PER_MESSAGE, MAX_STORED_SERVICES, SaParameters,
    SaService,
};
use carnet_its::sam::{
    Address, ChangeCount, ChannelDataRate, ChannelIndex, ChannelInfo, ChannelNumber, ChannelOptions,
    ContentCount, Extensions, ItsAid, OperatingClass, PrefixLength, RouterLifetime, RoutingAdvertisement,
    SaId, Saem, Sam, SamBody, ServiceInfo, TxPower, UnboundedList, VERSION, reference,
};
use carnet_its::uper::{decode, encode};
use carnet_its::{ItsDrop, MessageTransmission};
use carnet_wire::btp::{BtpB, port};
use carnet_wire::geonet::{GnAddress, StationType};

use crate::support::{now_at_milliseconds, octets_of_hex};

/// ITS PDU header in front of the SrvAdvMsg of IEEE 1609.3.
const ITS_PDU_HEADER: &str = "010c0000002a";

fn saem_with_body(body: SamBody) -> Saem {
    let header = ItsPduHeader {
        protocol_version: ProtocolVersion(1),
        message_id: MessageId::SAEM,
        station_id: StationId(42),
    };
    Saem { header, sam: Sam { version: VERSION, body } }
}

fn service_info(its_aid: u32, channel: u8) -> ServiceInfo {
    ServiceInfo {
        service_id: ItsAid(its_aid),
        channel_index: ChannelIndex(channel),
        options: ChannelOptions::default(),
    }
}

fn channel_info(class: u8, number: u8, power: i8, adaptable: bool, rate: u8) -> ChannelInfo {
    ChannelInfo {
        operating_class: OperatingClass(class),
        channel_number: ChannelNumber(number),
        power_level: TxPower(power),
        adaptable,
        data_rate: ChannelDataRate(rate),
        ..ChannelInfo::default()
    }
}

fn extensions_of(elements: &[(u8, &[u8])]) -> Extensions {
    let mut extensions = Extensions::default();
    elements.iter().for_each(|(number, value)| extensions.add(*number, value));
    extensions
}

fn change_count_of(sa_id: u8, content_count: u8) -> ChangeCount {
    ChangeCount { sa_id: SaId(sa_id), content_count: ContentCount(content_count) }
}

/// Returns values with their octets. OSS ASN.1 tools made the octets from the module IEEE-1609-3-WSA, as
/// published with a library for this module.
fn encoded_examples() -> Vec<(SamBody, &'static str)> {
    let first = channel_info(17, 172, -128, false, 6);
    let least = SamBody {
        service_infos: Some(UnboundedList(vec![service_info(0, 1)])),
        channel_infos: Some(UnboundedList(vec![first.clone()])),
        ..SamBody::default()
    };
    let mut threshold = least.clone();
    let mut service = service_info(0, 1);
    service.options.extensions = Some(extensions_of(&[(19, &[10])]));
    threshold.service_infos = Some(UnboundedList(vec![service]));
    let octets: [u8; 16] = std::array::from_fn(|index| index as u8);
    let sixteen = Address(octets.into());
    let whole = SamBody {
        extensions: Some(extensions_of(&[
            (reference::REPEAT_RATE, &[0]),
            (5, &[0; 8]),
            (6, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
            (reference::ADVERTISER_IDENTIFIER, &[1, b'0']),
        ])),
        routing_advertisement: Some(RoutingAdvertisement {
            lifetime: RouterLifetime(1),
            ip_prefix: sixteen,
            ip_prefix_length: PrefixLength(1),
            default_gateway: sixteen,
            primary_dns: sixteen,
            extensions: extensions_of(&[(13, &octets), (14, &octets[..6])]),
        }),
        ..least.clone()
    };
    let channels = UnboundedList(vec![first, channel_info(18, 175, -127, true, 24)]);
    vec![
        (least, "36000100080111ac000600"),
        (threshold, "36000100090113010a0111ac000600"),
        (
            SamBody {
                change_count: change_count_of(1, 0),
                service_infos: Some(UnboundedList(vec![
                    service_info(0, 1),
                    service_info(1, 1),
                    service_info(2, 1),
                    service_info(3, 2),
                ])),
                channel_infos: Some(channels.clone()),
                ..SamBody::default()
            },
            "36100400080108020803100211ac00060012af019800",
        ),
        (
            SamBody {
                change_count: change_count_of(1, 0),
                service_infos: Some(UnboundedList(vec![
                    service_info(0, 0),
                    service_info(1, 1),
                    service_info(2, 3),
                    service_info(3, 2),
                ])),
                ..SamBody::default()
            },
            "3410040000010802180310",
        ),
        (
            SamBody {
                change_count: change_count_of(1, 0),
                channel_infos: Some(channels),
                ..SamBody::default()
            },
            "32100211ac00060012af019800",
        ),
        (
            whole,
            "3f00041101000508000000000000000006 0a00000000000000000001070201300100080111ac0006000001 \
             000102030405060708090a0b0c0d0e0f01 000102030405060708090a0b0c0d0e0f \
             000102030405060708090a0b0c0d0e0f 020d10000102030405060708090a0b0c0d0e0f0e06000102030405",
        ),
    ]
}

#[test]
fn messages_of_another_asn1_compiler_are_decoded() {
    for (body, octets) in encoded_examples() {
        let octets = octets_of_hex(&format!("{ITS_PDU_HEADER}{}", octets.replace(' ', "")));
        let message = saem_with_body(body);
        assert_eq!(message.to_octets(), Ok(octets.clone()), "{message:?}");
        assert_eq!(Saem::from_octets(&octets), Ok(message));
    }
}

/// pycrate made the octets from ISO's module ITSee. IEEE 1609.3 counts the longitude from -179.9999999
/// degrees, which makes no visible difference.
#[test]
fn advertisement_contains_position_of_advertiser() {
    for (number, octets, expected) in [
        (reference::LOCATION_2D, "52c0ebd86c8a6080", Some((488_375_000, 21_008_000))),
        (reference::LOCATION_2D, "217d8e3f00000001", Some((-338_123_457, -1_799_999_999))),
        (reference::LOCATION_3D, "52c0ebd86c8a6080107b", Some((488_375_000, 21_008_000))),
        (reference::LOCATION_3D, "52c0ebd86c8a60", None),
        (reference::LOCATION_2D, "ffffffffffffffff", None),
        (reference::REPEAT_RATE, "52c0ebd86c8a6080", None),
    ] {
        let found = extensions_of(&[(number, &octets_of_hex(octets))]).advertiser_position();
        assert_eq!(
            found,
            expected.map(|(latitude, longitude)| Position::new(latitude, longitude)),
            "{octets}"
        );
    }
}

#[test]
fn its_aids_take_one_to_four_octets() {
    // ISO 17419: the number of ones at the front of the encoding is the number of further octets. The
    // ITS-AIDs of each length begin where those of the shorter length end.
    for (number, octets) in [
        (0, "00"),
        (36, "24"),
        (127, "7f"),
        (128, "8000"),
        (16_511, "bfff"),
        (16_512, "c00000"),
        // ITS-AID of the service announcement service (TS 102 965).
        (540_801, "c80001"),
        (2_113_663, "dfffff"),
        (2_113_664, "e0000000"),
        (ItsAid::MAX_ITS_AID, "efffffff"),
    ] {
        assert_eq!(encode(&ItsAid(number)), Ok(octets_of_hex(octets)), "{number}");
        assert_eq!(decode(&octets_of_hex(octets)), Ok(ItsAid(number)), "{octets}");
    }
    encode(&ItsAid(ItsAid::MAX_ITS_AID + 1)).expect_err("too much");
    decode::<ItsAid>(&octets_of_hex("f0000000")).expect_err("more than four octets");
    decode::<ItsAid>(&octets_of_hex("80")).expect_err("cut off");
}

#[test]
fn decoder_refuses_mutated_saem_or_encodes_it_to_an_equal_message() {
    let mut rng = Rng::new(1);
    let messages: Vec<Vec<u8>> = encoded_examples()
        .into_iter()
        .map(|(body, _)| saem_with_body(body).to_octets().expect("encodes"))
        .collect();
    let mut understood = 0;
    for round in 0..20_000 {
        let mut octets = messages[round % messages.len()].clone();
        for _ in 0..=rng.number_below(3) {
            let place = rng.number_below(octets.len() as u64) as usize;
            octets[place] ^= 1 << rng.number_below(8);
        }
        if rng.is_true_with_probability(0.2) {
            octets.truncate(rng.number_below(octets.len() as u64) as usize);
        }
        if let Ok(message) = Saem::from_octets(&octets) {
            let again = message.to_octets().expect("encodes");
            assert_eq!(Saem::from_octets(&again), Ok(message));
            understood += 1;
        }
        let mut service = SaService::new(SaParameters::default(), StationId(1));
        let _whatever = service.handle_message(now_at_milliseconds(0), gn_address(2), &octets);
    }
    assert!(understood > 3000, "the test reaches the inside: {understood}");
}

fn test_services() -> Vec<AnnouncedService> {
    vec![
        AnnouncedService {
            its_aid: ItsAid(36),
            address: Some("2001:db8::1".parse().expect("an address")),
            port: Some(8080),
            context: vec![1, 2, 3],
        },
        AnnouncedService { its_aid: ItsAid(540_801), ..AnnouncedService::default() },
    ]
}

/// Returns the GN address of a station.
fn gn_address(station: u8) -> GnAddress {
    GnAddress::new(false, StationType::PassengerCar, [2, 0, 0, 0, 0, station])
}

/// Returns the sent message without the BTP header.
fn sent_message(transmission: &MessageTransmission) -> Vec<u8> {
    let (header, message) = BtpB::parse(&transmission.payload).expect("BTP-B");
    assert_eq!(header.destination_port, port::SAEM);
    message.to_vec()
}

#[test]
fn services_are_announced_at_once_and_then_once_in_an_interval() {
    let mut service = SaService::new(SaParameters::default(), StationId(1));
    assert_eq!((service.poll_timeout(), service.poll_transmit()), (None, None));
    service
        .announce_services(now_at_milliseconds(100), Some("kiosk 7".into()), test_services())
        .expect("announced");
    let mut times = Vec::new();
    let mut octets = Vec::new();
    let mut now = 100;
    while now < 4000 {
        service.handle_timeout(now_at_milliseconds(now));
        if let Some(transmission) = service.poll_transmit() {
            assert_eq!((transmission.maximum_hop_limit, transmission.traffic_class.id), (Some(1), 3));
            octets.push(sent_message(&transmission));
            times.push(now);
        }
        now = service.poll_timeout().expect("a next one").as_nanos() / 1_000_000;
    }
    assert_eq!(times, [100, 1100, 2100, 3100]);
    assert!(octets.windows(2).all(|pair| pair[0] == pair[1]), "nothing changed, so nothing changes");
    let message = Saem::from_octets(&octets[0]).expect("a message");
    let body = message.sam.body;
    let header = body.extensions.expect("extensions");
    assert_eq!(header.extension_octet(reference::REPEAT_RATE), Some(5));
    assert_eq!(header.extension_text(reference::ADVERTISER_IDENTIFIER), Some("kiosk 7"));
    // If the services change, the content count increases. If the same services are set again, it stays.
    let count = |service: &mut SaService, now| {
        let octets = sent_message(&service.poll_transmit().unwrap_or_else(|| panic!("something at {now}")));
        Saem::from_octets(&octets).expect("a message").sam.body.change_count.content_count.0
    };
    assert_eq!(body.change_count.content_count.0, 1);
    service
        .announce_services(now_at_milliseconds(5000), Some("kiosk 7".into()), test_services())
        .expect("announced");
    assert_eq!(count(&mut service, 5000), 1);
    service
        .announce_services(now_at_milliseconds(6000), Some("kiosk 7".into()), test_services()[..1].to_vec())
        .expect("announced");
    assert_eq!(count(&mut service, 6000), 2);
    service.announce_services(now_at_milliseconds(7000), None, Vec::new()).expect("announced");
    assert_eq!((service.poll_timeout(), service.poll_transmit()), (None, None));
}

#[test]
fn oversized_service_list_is_refused_and_changes_nothing() {
    let mut service = SaService::new(SaParameters::default(), StationId(1));
    service.announce_services(now_at_milliseconds(0), None, test_services()).expect("announced");
    let long = AnnouncedService { context: vec![0; 32], ..AnnouncedService::default() };
    let far = AnnouncedService { its_aid: ItsAid(ItsAid::MAX_ITS_AID + 1), ..AnnouncedService::default() };
    for (name, refused) in [
        (None, vec![long]),
        (None, vec![far]),
        (None, vec![AnnouncedService::default(); MAX_SERVICES_PER_MESSAGE + 1]),
        (Some(String::new()), test_services()),
        (Some("x".repeat(33)), test_services()),
    ] {
        assert_eq!(
            service.announce_services(now_at_milliseconds(0), name, refused),
            Err(ItsDrop::NotEncodable)
        );
    }
    assert_eq!(service.announced_services(), test_services());
    // An announcement of the largest size fits a frame.
    let most = AnnouncedService {
        address: Some(std::net::Ipv6Addr::LOCALHOST),
        port: Some(1),
        context: vec![0; 31],
        ..services_of_greatest_size()
    };
    service
        .announce_services(
            now_at_milliseconds(10),
            Some("x".repeat(32)),
            vec![most; MAX_SERVICES_PER_MESSAGE],
        )
        .expect("announced");
    let octets = service.poll_transmit().expect("announced").payload.len();
    assert!(octets < 1398, "{octets} octets are more than itsGnMaxSduSize");
}

fn services_of_greatest_size() -> AnnouncedService {
    AnnouncedService { its_aid: ItsAid(ItsAid::MAX_ITS_AID), ..AnnouncedService::default() }
}

#[test]
fn advertisements_of_other_stations_are_stored_and_expire() {
    let mut other = SaService::new(SaParameters::default(), StationId(2));
    let mut station = SaService::new(SaParameters::default(), StationId(1));
    let mut hear = |station: &mut SaService, now| {
        other
            .announce_services(now_at_milliseconds(now), Some("bus".into()), test_services())
            .expect("announced");
        let octets = sent_message(&other.poll_transmit().expect("announced"));
        station.handle_message(now_at_milliseconds(now), gn_address(2), &octets)
    };
    hear(&mut station, 0).expect("new");
    hear(&mut station, 1000).expect("again");
    let known: Vec<_> = station.known_advertisements().cloned().collect();
    assert_eq!(known.len(), 1);
    assert_eq!((known[0].services.clone(), known[0].identifier.as_deref()), (test_services(), Some("bus")));
    let change = (gn_address(2), SaId(0));
    assert_eq!(station.poll_change(), Some(AdvertisementChange::Advertised(change.0, change.1)));
    assert_eq!(station.poll_change(), None, "the same again is no news");
    // The station sends an announcement each second, and a receiver stores it until three announcements are
    // missing.
    assert_eq!(station.poll_timeout(), Some(now_at_milliseconds(4000).time));
    station.handle_timeout(now_at_milliseconds(3999));
    assert_eq!(station.known_advertisements().count(), 1);
    station.handle_timeout(now_at_milliseconds(4000));
    assert_eq!(
        (station.known_advertisements().count(), station.poll_change()),
        (0, Some(AdvertisementChange::Gone(change.0, change.1)))
    );
}

#[test]
fn advertisement_without_repeat_rate_is_stored_for_default_time() {
    let mut station = SaService::new(SaParameters::default(), StationId(1));
    let octets = saem_with_body(SamBody {
        service_infos: Some(UnboundedList(vec![service_info(36, 0)])),
        ..SamBody::default()
    });
    let octets = octets.to_octets().expect("encodes");
    station.handle_message(now_at_milliseconds(0), gn_address(2), &octets).expect("new");
    assert_eq!(station.poll_timeout(), Some(now_at_milliseconds(5000).time));
}

/// Returns the message of a station with `services` services.
fn advertisement_of(station: u32, sa_id: u8, services: usize) -> Vec<u8> {
    let mut message = saem_with_body(SamBody {
        change_count: ChangeCount { sa_id: SaId(sa_id), content_count: ContentCount(0) },
        service_infos: Some(UnboundedList(vec![service_info(36, 0); services])),
        ..SamBody::default()
    });
    message.header.station_id = StationId(station);
    message.to_octets().expect("encodes")
}

/// Returns the advertisers and the numbers of their advertisements.
fn stored_advertisers(station: &SaService) -> Vec<(GnAddress, u8)> {
    station.known_advertisements().map(|it| (it.source, it.sa_id.0)).collect()
}

#[test]
fn invalid_service_announcement_has_no_effect() {
    let mut station = SaService::new(SaParameters::default(), StationId(1));
    let of = |station: u32, edit: fn(&mut Saem)| {
        let mut message = saem_with_body(SamBody::default());
        message.header.station_id = StationId(station);
        edit(&mut message);
        message.to_octets().expect("encodes")
    };
    let same: fn(&mut Saem) = |_| {};
    let mut tell = |octets: &[u8]| station.handle_message(now_at_milliseconds(0), gn_address(2), octets);
    assert_eq!(tell(&of(1, same)), Err(ItsDrop::OwnMessage));
    assert_eq!(tell(&of(2, |it| it.header.message_id = MessageId::CAM)), Err(ItsDrop::WrongMessage));
    assert_eq!(
        tell(&of(2, |it| it.header.protocol_version = ProtocolVersion(3))),
        Err(ItsDrop::WrongVersion)
    );
    assert_eq!(tell(&of(2, |it| it.sam.version.0 = 2)), Err(ItsDrop::WrongVersion));
    assert_eq!(tell(&of(2, same)[..6]), Err(ItsDrop::Malformed));
    assert_eq!(tell(&of(2, same)), Ok(()));
}

#[test]
fn full_table_replaces_longest_silent_advertiser() {
    let parameters = SaParameters { max_advertisements: 2, ..SaParameters::default() };
    let mut station = SaService::new(parameters, StationId(1));
    let mut tell = |from: u8, now| {
        station
            .handle_message(now_at_milliseconds(now), gn_address(from), &advertisement_of(from.into(), 0, 1))
            .expect("taken");
        stored_advertisers(&station)
    };
    tell(2, 0);
    tell(3, 1000);
    tell(2, 2000);
    assert_eq!(tell(4, 3000), [(gn_address(2), 0), (gn_address(4), 0)], "3 was silent longest");
    let changes: Vec<_> = std::iter::from_fn(|| station.poll_change()).collect();
    assert!(changes.contains(&AdvertisementChange::Gone(gn_address(3), SaId(0))), "{changes:?}");
    let mut nothing = SaService::new(SaParameters { max_advertisements: 0, ..parameters }, StationId(1));
    assert_eq!(
        nothing.handle_message(now_at_milliseconds(0), gn_address(2), &advertisement_of(2, 0, 1)),
        Err(ItsDrop::TableFull)
    );
}

#[test]
fn station_can_change_only_its_own_advertisements() {
    let mut station = SaService::new(SaParameters::default(), StationId(1));
    station.handle_message(now_at_milliseconds(0), gn_address(2), &advertisement_of(2, 0, 1)).expect("new");
    // Station 3 claims the station ID 2 and uses all advertisement numbers.
    for sa_id in 0..16 {
        station
            .handle_message(
                now_at_milliseconds(1 + u64::from(sa_id)),
                gn_address(3),
                &advertisement_of(2, sa_id, 5),
            )
            .expect("taken");
    }
    assert_eq!(
        stored_advertisers(&station),
        [
            (gn_address(2), 0),
            (gn_address(3), 12),
            (gn_address(3), 13),
            (gn_address(3), 14),
            (gn_address(3), 15)
        ]
    );
    assert_eq!(
        station.known_advertisements().next().map(|it| it.services.len()),
        Some(1),
        "what 2 said stands"
    );
}

#[test]
fn stored_services_are_bounded() {
    let parameters = SaParameters { max_services: 70, ..SaParameters::default() };
    let mut station = SaService::new(parameters, StationId(1));
    station
        .handle_message(now_at_milliseconds(0), gn_address(2), &advertisement_of(2, 0, 100))
        .expect("taken");
    assert_eq!(
        station.known_advertisements().map(|it| it.services.len()).sum::<usize>(),
        MAX_STORED_SERVICES
    );
    station
        .handle_message(now_at_milliseconds(1), gn_address(3), &advertisement_of(3, 0, 32))
        .expect("taken");
    station.handle_message(now_at_milliseconds(2), gn_address(4), &advertisement_of(4, 0, 7)).expect("taken");
    assert_eq!(
        stored_advertisers(&station),
        [(gn_address(3), 0), (gn_address(4), 0)],
        "71 services are too many"
    );
    // A further advertisement with more services than the whole table may have does not replace a stored one.
    let mut station = SaService::new(SaParameters { max_services: 5, ..parameters }, StationId(1));
    station.handle_message(now_at_milliseconds(0), gn_address(2), &advertisement_of(2, 0, 5)).expect("taken");
    assert_eq!(
        station.handle_message(now_at_milliseconds(1), gn_address(3), &advertisement_of(3, 0, 6)),
        Err(ItsDrop::TableFull)
    );
    assert_eq!(
        station.handle_message(now_at_milliseconds(1), gn_address(2), &advertisement_of(2, 0, 6)),
        Err(ItsDrop::TableFull)
    );
    assert_eq!(stored_advertisers(&station), [(gn_address(2), 0)]);
}

#[test]
fn advertised_service_expires_a_second_after_last_message() {
    let mut station = SaService::new(SaParameters::default(), StationId(1));
    let mut extensions = Extensions::default();
    extensions.add(reference::REPEAT_RATE, &[255]);
    let octets = saem_with_body(SamBody { extensions: Some(extensions), ..SamBody::default() });
    let octets = octets.to_octets().expect("encodes");
    station.handle_message(now_at_milliseconds(0), gn_address(2), &octets).expect("new");
    assert_eq!(station.poll_timeout(), Some(now_at_milliseconds(1000).time));
}

#[test]
fn advertisement_port_of_en_302_890_1_is_decoded() {
    let mut station = SaService::new(SaParameters::default(), StationId(1));
    // The test's author made the octets by hand: version 3, a list of services only, SA ID 0, content count
    // 0, one service. ITS-AID 36 takes one octet, channel 0 five bits. Of the options only the second, the
    // port, is present (010), then 4711 in 16 bits.
    let octets = octets_of_hex(&format!("{ITS_PDU_HEADER}3400012402{:04x}", 4711));
    station.handle_message(now_at_milliseconds(0), gn_address(2), &octets).expect("new");
    let known = station.known_advertisements().next().expect("known");
    assert_eq!(known.services[0].port, Some(4711));
}
