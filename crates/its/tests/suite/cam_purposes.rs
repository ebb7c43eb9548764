//! TS 102 868-2: the test purposes of CAM for the CA basic service alone. Each test has the id of its
//! purpose.
//!
//! The ETSI test purposes apply to edition V1.3.1 with protocolVersion 1; a CAM of V1.4.1 has 2.

use std::time::Duration;

use carnet_base::{DropReason, Time};
use carnet_its::ca::{CaParameters, CaService, CamContent, StationData, parse_cam};
use carnet_its::cam::{
    BasicVehicleContainerHighFrequency, BasicVehicleContainerLowFrequency, Cam, EmergencyContainer,
    HighFrequencyContainer, LowFrequencyContainer, RsuContainerHighFrequency, SpecialVehicleContainer,
};
use carnet_its::cdd::{
    AccelerationControl, CurvatureValue, DriveDirection, ExteriorLights, HeadingValue, LightBarSirenInUse,
    MessageId, ProtocolVersion, ReferencePosition, SpeedValue, StationId, StationType, VehicleRole,
    YawRateValue,
};
use carnet_its::{Facilities, ItsDrop, MessageTransmission, facilities};
use carnet_wire::btp::port;
use carnet_wire::geonet::GnAddress;

use crate::support::{
    cam_of_station, decode_transmission, is_single_hop, milliseconds, now_at, now_at_milliseconds,
    reference_position_at,
};

/// A station with the service under test, and the data about the station.
struct ServiceUnderTest {
    service: CaService,
    time: u64,
    position: ReferencePosition,
    high_frequency_container: BasicVehicleContainerHighFrequency,
    low_frequency_container: BasicVehicleContainerLowFrequency,
    special_container: Option<SpecialVehicleContainer>,
    is_road_side_unit: bool,
}

/// Generation time of a CAM in milliseconds, the CAM, and its transmission.
type SentCam = (u64, Cam, MessageTransmission);

impl ServiceUnderTest {
    fn new() -> ServiceUnderTest {
        ServiceUnderTest::of_station_type(StationType::PASSENGER_CAR, false)
    }

    fn of_station_type(station_type: StationType, road_side_unit: bool) -> ServiceUnderTest {
        let mut service = CaService::new(CaParameters::default(), StationId(4711), station_type);
        service.set_active(now_at_milliseconds(0), true);
        let mut vehicle = BasicVehicleContainerHighFrequency::default();
        vehicle.heading.heading_value = HeadingValue::WGS84_NORTH;
        vehicle.speed.speed_value = SpeedValue(1000);
        ServiceUnderTest {
            service,
            time: 0,
            position: reference_position_at(0.0, 0.0),
            high_frequency_container: vehicle,
            low_frequency_container: BasicVehicleContainerLowFrequency::default(),
            special_container: None,
            is_road_side_unit: road_side_unit,
        }
    }

    fn provide_values(&mut self) {
        let content = if self.is_road_side_unit {
            CamContent::RoadSideUnit(RsuContainerHighFrequency::default())
        } else {
            CamContent::Vehicle {
                high_frequency: self.high_frequency_container,
                low_frequency: self.low_frequency_container.clone(),
                special: self.special_container.clone(),
            }
        };
        let provided = StationData {
            reference_position: self.position,
            position_time: now_at_milliseconds(self.time).timestamp,
            content,
        };
        self.service.handle_station_data(now_at_milliseconds(self.time), provided);
    }

    /// Runs the service until `until`: passes the station data every 10 ms, and handles the timers.
    fn run_until(&mut self, until: u64) -> Vec<SentCam> {
        let mut sent = Vec::new();
        while self.time <= until {
            self.provide_values();
            self.collect_sent_cams(&mut sent, self.time);
            let next = self.time + 10;
            while let Some(due) = self.service.poll_timeout().filter(|due| *due < Time::from_millis(next)) {
                self.service.handle_timeout(now_at(due));
                let before = sent.len();
                self.collect_sent_cams(&mut sent, due.as_nanos() / 1_000_000);
                if sent.len() == before {
                    break;
                }
            }
            self.time = next;
        }
        sent
    }

    fn collect_sent_cams(&mut self, sent: &mut Vec<SentCam>, time: u64) {
        while let Some(transmission) = self.service.poll_transmit() {
            let (port, cam) = decode_transmission(&transmission);
            assert_eq!(port, port::CAM);
            sent.push((time, cam, transmission));
        }
    }
}

fn low_frequency_container_of(cam: &Cam) -> Option<&BasicVehicleContainerLowFrequency> {
    match cam.cam.cam_parameters.low_frequency_container.as_ref()? {
        LowFrequencyContainer::BasicVehicleContainerLowFrequency(low) => Some(low),
        LowFrequencyContainer::Other(_) => None,
    }
}

fn high_frequency_container_of(cam: &Cam) -> &BasicVehicleContainerHighFrequency {
    match &cam.cam.cam_parameters.high_frequency_container {
        HighFrequencyContainer::BasicVehicleContainerHighFrequency(high) => high,
        other => panic!("{other:?}"),
    }
}

fn special_container_of(cam: &Cam) -> Option<&SpecialVehicleContainer> {
    cam.cam.cam_parameters.special_vehicle_container.as_ref()
}

fn sending_times(sent: &[SentCam]) -> Vec<u64> {
    sent.iter().map(|(time, ..)| *time).collect()
}

#[test]
fn tc_cam_msd_fmt_bv_01() {
    let sent = ServiceUnderTest::new().run_until(0);
    let header = sent[0].1.header;
    assert_eq!(header.protocol_version, ProtocolVersion(2));
    assert_eq!(header.message_id, MessageId::CAM);
    assert_eq!(header.station_id, StationId(4711));
}

#[test]
fn tc_cam_msd_fmt_bv_02() {
    let mut iut = ServiceUnderTest::new();
    assert!(low_frequency_container_of(&iut.run_until(0)[0].1).is_some());
    // After the service is switched on again, the first CAM leaves at once, however recent the last CAM is.
    iut.service.set_active(now_at_milliseconds(10), false);
    assert_eq!(iut.run_until(90), []);
    iut.service.set_active(now_at_milliseconds(100), true);
    assert!(low_frequency_container_of(&iut.run_until(100)[0].1).is_some());
}

#[test]
fn tc_cam_msd_fmt_bv_03() {
    let mut iut = ServiceUnderTest::new();
    let mut sent = Vec::new();
    // The vehicle turns all the time: a CAM leaves every 100 ms.
    for step in 0..30_u16 {
        iut.high_frequency_container.heading.heading_value = HeadingValue(step * 100);
        sent.extend(iut.run_until(u64::from(step) * 100));
    }
    let with: Vec<u64> = sent
        .iter()
        .filter(|(_, cam, _)| low_frequency_container_of(cam).is_some())
        .map(|(time, ..)| *time)
        .collect();
    assert_eq!(with, [0, 500, 1000, 1500, 2000, 2500]);
    assert_eq!(sent.len(), 30);
}

#[test]
fn tc_cam_msd_fmt_bv_04() {
    let mut iut = ServiceUnderTest::new();
    iut.low_frequency_container.vehicle_role = VehicleRole::Emergency;
    assert!(special_container_of(&iut.run_until(0)[0].1).is_some());
}

#[test]
fn tc_cam_msd_fmt_bv_05() {
    let mut iut = ServiceUnderTest::new();
    iut.low_frequency_container.vehicle_role = VehicleRole::Emergency;
    let mut sent = Vec::new();
    for step in 0..30_u16 {
        iut.high_frequency_container.heading.heading_value = HeadingValue(step * 100);
        sent.extend(iut.run_until(u64::from(step) * 100));
    }
    let with: Vec<u64> = sent
        .iter()
        .filter(|(_, cam, _)| special_container_of(cam).is_some())
        .map(|(time, ..)| *time)
        .collect();
    assert_eq!(with, [0, 500, 1000, 1500, 2000, 2500]);
}

/// Checks that a CAM satisfies `holds` only after `change`. `of_low` says that the value is in the
/// low-frequency container, which not every CAM has.
fn assert_next_cam_follows_change(
    change: impl FnOnce(&mut ServiceUnderTest),
    holds: impl Fn(&Cam) -> bool,
    of_low: bool,
) {
    let mut iut = ServiceUnderTest::new();
    iut.high_frequency_container.acceleration_control = Some(AccelerationControl::default());
    let before = iut.run_until(2000);
    assert!(
        before.iter().all(|(_, cam, _)| (of_low && low_frequency_container_of(cam).is_none()) || !holds(cam)),
        "holds before"
    );
    change(&mut iut);
    let after = iut.run_until(4000);
    let first =
        after.iter().find(|(_, cam, _)| !of_low || low_frequency_container_of(cam).is_some()).unwrap();
    assert!(holds(&first.1), "{:?}", first.1);
}

/// Two test purposes for each bit: a CAM shows the bit set, and a later CAM shows it cleared.
macro_rules! bits {
    ($field:ident: $($on:ident $off:ident $bit:ident),* $(,)?) => {$(
        #[test]
        fn $on() {
            bit_checks::$field($field::$bit, None);
        }

        #[test]
        fn $off() {
            bit_checks::$field($field::$bit, Some($field::default()));
        }
    )*};
}

#[allow(non_snake_case, reason = "named as the type that the macro is given")]
mod bit_checks {
    use super::*;

    pub fn AccelerationControl(on: AccelerationControl, off: Option<AccelerationControl>) {
        if let Some(off) = off {
            let mut iut = ServiceUnderTest::new();
            iut.high_frequency_container.acceleration_control = Some(on);
            assert_eq!(high_frequency_container_of(&iut.run_until(0)[0].1).acceleration_control, Some(on));
            iut.high_frequency_container.acceleration_control = Some(off);
            assert_eq!(
                high_frequency_container_of(&iut.run_until(1000)[0].1).acceleration_control,
                Some(off)
            );
            return;
        }
        assert_next_cam_follows_change(
            |iut| iut.high_frequency_container.acceleration_control = Some(on),
            |cam| high_frequency_container_of(cam).acceleration_control == Some(on),
            false,
        );
    }

    pub fn ExteriorLights(on: ExteriorLights, off: Option<ExteriorLights>) {
        if let Some(off) = off {
            let mut iut = ServiceUnderTest::new();
            iut.low_frequency_container.exterior_lights = on;
            assert_eq!(low_frequency_container_of(&iut.run_until(0)[0].1).unwrap().exterior_lights, on);
            iut.low_frequency_container.exterior_lights = off;
            assert_eq!(low_frequency_container_of(&iut.run_until(1000)[0].1).unwrap().exterior_lights, off);
            return;
        }
        let set = |cam: &Cam| low_frequency_container_of(cam).is_some_and(|low| low.exterior_lights == on);
        assert_next_cam_follows_change(|iut| iut.low_frequency_container.exterior_lights = on, set, true);
    }
}

#[test]
fn tc_cam_msd_ina_bv_01_01() {
    assert_next_cam_follows_change(
        |iut| iut.high_frequency_container.curvature.curvature_value = CurvatureValue(10),
        |cam| high_frequency_container_of(cam).curvature.curvature_value == CurvatureValue(10),
        false,
    );
}

bits! { AccelerationControl:
    tc_cam_msd_ina_bv_01_02 tc_cam_msd_ina_bv_01_03 BRAKE_PEDAL_ENGAGED,
    tc_cam_msd_ina_bv_01_04 tc_cam_msd_ina_bv_01_05 GAS_PEDAL_ENGAGED,
    tc_cam_msd_ina_bv_01_06 tc_cam_msd_ina_bv_01_07 EMERGENCY_BRAKE_ENGAGED,
    tc_cam_msd_ina_bv_01_08 tc_cam_msd_ina_bv_01_09 COLLISION_WARNING_ENGAGED,
    tc_cam_msd_ina_bv_01_10 tc_cam_msd_ina_bv_01_11 ACC_ENGAGED,
    tc_cam_msd_ina_bv_01_12 tc_cam_msd_ina_bv_01_13 CRUISE_CONTROL_ENGAGED,
    tc_cam_msd_ina_bv_01_14 tc_cam_msd_ina_bv_01_15 SPEED_LIMITER_ENGAGED,
}

bits! { ExteriorLights:
    tc_cam_msd_ina_bv_01_16 tc_cam_msd_ina_bv_01_17 LOW_BEAM_HEADLIGHTS_ON,
    tc_cam_msd_ina_bv_01_18 tc_cam_msd_ina_bv_01_19 HIGH_BEAM_HEADLIGHTS_ON,
    tc_cam_msd_ina_bv_01_20 tc_cam_msd_ina_bv_01_21 LEFT_TURN_SIGNAL_ON,
    tc_cam_msd_ina_bv_01_22 tc_cam_msd_ina_bv_01_23 RIGHT_TURN_SIGNAL_ON,
    tc_cam_msd_ina_bv_01_24 tc_cam_msd_ina_bv_01_25 DAYTIME_RUNNING_LIGHTS_ON,
    tc_cam_msd_ina_bv_01_26 tc_cam_msd_ina_bv_01_27 REVERSE_LIGHT_ON,
    tc_cam_msd_ina_bv_01_28 tc_cam_msd_ina_bv_01_29 FOG_LIGHT_ON,
    tc_cam_msd_ina_bv_01_30 tc_cam_msd_ina_bv_01_31 PARKING_LIGHTS_ON,
}

#[test]
fn tc_cam_msd_ina_bv_01_32() {
    assert_next_cam_follows_change(
        |iut| iut.high_frequency_container.heading.heading_value = HeadingValue(20),
        |cam| high_frequency_container_of(cam).heading.heading_value == HeadingValue(20),
        false,
    );
}

#[test]
fn tc_cam_msd_ina_bv_01_33() {
    assert_next_cam_follows_change(
        |iut| iut.high_frequency_container.speed.speed_value = SpeedValue(1020),
        |cam| high_frequency_container_of(cam).speed.speed_value == SpeedValue(1020),
        false,
    );
}

#[test]
fn tc_cam_msd_ina_bv_01_34() {
    assert_next_cam_follows_change(
        |iut| iut.high_frequency_container.drive_direction = DriveDirection::Backward,
        |cam| high_frequency_container_of(cam).drive_direction == DriveDirection::Backward,
        false,
    );
}

#[test]
fn tc_cam_msd_ina_bv_01_35() {
    assert_next_cam_follows_change(
        |iut| iut.high_frequency_container.yaw_rate.yaw_rate_value = YawRateValue(-77),
        |cam| high_frequency_container_of(cam).yaw_rate.yaw_rate_value == YawRateValue(-77),
        false,
    );
}

/// Test purposes about a vehicle role: the next CAM that may contain the role's container contains it.
macro_rules! roles {
    ($($id:ident $role:ident $container:ident,)*) => {$(
        #[test]
        fn $id() {
            let mut iut = ServiceUnderTest::new();
            assert_eq!(special_container_of(&iut.run_until(0)[0].1), None);
            iut.low_frequency_container.vehicle_role = VehicleRole::$role;
            let sent = iut.run_until(1000);
            let found = sent.iter().find_map(|(_, cam, _)| special_container_of(cam));
            assert!(matches!(found, Some(SpecialVehicleContainer::$container(_))), "{found:?}");
        }
    )*};
}

roles! {
    tc_cam_msd_ina_bv_02 PublicTransport PublicTransportContainer,
    tc_cam_msd_ina_bv_03 SpecialTransport SpecialTransportContainer,
    tc_cam_msd_ina_bv_04 DangerousGoods DangerousGoodsContainer,
    tc_cam_msd_ina_bv_05 RoadWork RoadWorksContainerBasic,
    tc_cam_msd_ina_bv_06 Rescue RescueContainer,
    tc_cam_msd_ina_bv_07 Emergency EmergencyContainer,
    tc_cam_msd_ina_bv_08 SafetyCar SafetyCarContainer,
}

/// Beyond the ETSI test purposes: a CAM contains the data of the vehicle's role, and no data of another role.
#[test]
fn cam_has_container_of_vehicle_role_only() {
    let given = SpecialVehicleContainer::EmergencyContainer(EmergencyContainer {
        light_bar_siren_in_use: LightBarSirenInUse::SIREN_ACTIVATED,
        ..EmergencyContainer::default()
    });
    for (role, expected) in [(VehicleRole::Emergency, Some(&given)), (VehicleRole::Taxi, None)] {
        let mut iut = ServiceUnderTest::new();
        iut.low_frequency_container.vehicle_role = role;
        iut.special_container = Some(given.clone());
        assert_eq!(special_container_of(&iut.run_until(0)[0].1), expected, "{role:?}");
    }
}

#[test]
fn tc_cam_msd_gfq_ti_01() {
    let mut iut = ServiceUnderTest::new();
    let mut sent = Vec::new();
    // Every 10 ms the heading changes by more than 4 degrees.
    for step in 0..300_u16 {
        iut.high_frequency_container.heading.heading_value = HeadingValue(step * 50 % 3600);
        sent.extend(iut.run_until(u64::from(step) * 10));
    }
    let times = sending_times(&sent);
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] == 100), "{times:?}");
    assert_eq!(times.len(), 30);
}

#[test]
fn tc_cam_msd_gfq_ti_02() {
    let sent = ServiceUnderTest::new().run_until(10_000);
    assert_eq!(sending_times(&sent), (0..=10).map(|second| second * 1000).collect::<Vec<_>>());
}

/// A change of the vehicle's movement 350 ms after a CAM sets the interval to 350 ms for the next `N_GenCam`
/// CAMs.
#[test]
fn tc_cam_msd_gfq_ti_03() {
    let mut iut = ServiceUnderTest::new();
    iut.run_until(340);
    iut.high_frequency_container.speed.speed_value = SpeedValue(1100);
    let sent = iut.run_until(4000);
    assert_eq!(sending_times(&sent), [350, 700, 1050, 1400, 2400, 3400]);
}

#[test]
fn tc_cam_msd_gfq_bv_04() {
    // A turn of exactly 4 degrees causes no CAM. A larger turn causes one, also across north.
    for (heading, soon) in [(40, false), (41, true), (3560, false), (3559, true)] {
        let mut iut = ServiceUnderTest::new();
        iut.run_until(490);
        iut.high_frequency_container.heading.heading_value = HeadingValue(heading);
        let sent = iut.run_until(900);
        assert_eq!(sending_times(&sent).first(), soon.then_some(&500), "{heading}");
    }
}

#[test]
fn tc_cam_msd_gfq_bv_05() {
    for (metres, soon) in [(3.9, false), (4.1, true)] {
        let mut iut = ServiceUnderTest::new();
        iut.run_until(490);
        iut.position = reference_position_at(metres, 0.0);
        let sent = iut.run_until(840);
        assert_eq!(sending_times(&sent).first(), soon.then_some(&500), "{metres} m");
    }
}

#[test]
fn tc_cam_msd_gfq_bv_06() {
    for (speed, soon) in [(1050, false), (1051, true), (950, false), (949, true)] {
        let mut iut = ServiceUnderTest::new();
        iut.run_until(490);
        iut.high_frequency_container.speed.speed_value = SpeedValue(speed);
        let sent = iut.run_until(840);
        assert_eq!(sending_times(&sent).first(), soon.then_some(&500), "{speed}");
    }
}

/// `T_GenCam_DCC` delays both conditions.
#[test]
fn tc_cam_msd_gfq_ti_07() {
    let mut iut = ServiceUnderTest::new();
    iut.run_until(0);
    iut.service.set_interval_of_dcc(now_at_milliseconds(0), milliseconds(400));
    iut.high_frequency_container.heading.heading_value = HeadingValue(900);
    // Condition 1 applies only after T_GenCam_DCC, which becomes T_GenCam; then condition 2 applies until
    // N_GenCam.
    assert_eq!(sending_times(&iut.run_until(1700)), [400, 800, 1200, 1600]);
    iut.service.set_interval_of_dcc(now_at_milliseconds(1700), Duration::from_secs(5));
    // DCC cannot make the interval longer than T_GenCamMax.
    assert_eq!(sending_times(&iut.run_until(3700)), [2600, 3600]);
}

#[test]
fn tc_cam_msd_gfq_ti_08() {
    let mut iut = ServiceUnderTest::of_station_type(StationType::ROAD_SIDE_UNIT, true);
    let mut sent = iut.run_until(2000);
    // No change of data makes a roadside unit send more often.
    iut.position = reference_position_at(100.0, 0.0);
    sent.extend(iut.run_until(5000));
    assert_eq!(sending_times(&sent), [0, 1000, 2000, 3000, 4000, 5000]);
    let container = &sent[0].1.cam.cam_parameters.high_frequency_container;
    assert!(matches!(container, HighFrequencyContainer::RsuContainerHighFrequency(_)));
}

#[test]
fn tc_cam_msd_par_bv_01() {
    // `collect` removes the BTP-B header and checks the port.
    let sent = ServiceUnderTest::new().run_until(0);
    assert_eq!(sent[0].2.payload[..4], [0x07, 0xd1, 0, 0]);
    let request = sent[0].2.to_request();
    assert_eq!(request.next_header, carnet_wire::geonet::CommonNextHeader::BtpB);
}

#[test]
fn tc_cam_msd_par_bv_02() {
    assert!(is_single_hop(&ServiceUnderTest::new().run_until(0)[0].2));
}

#[test]
fn tc_cam_msd_par_bv_03() {
    let lifetime = ServiceUnderTest::new().run_until(0)[0].2.to_request().maximum_lifetime;
    assert!(lifetime.is_some_and(|lifetime| lifetime < Duration::from_secs(1)), "{lifetime:?}");
}

#[test]
fn tc_cam_msp_bv_01() {
    let parameters = facilities::FacilitiesParameters {
        delivers_cams: true,
        ..facilities::FacilitiesParameters::default()
    };
    let mut iut = Facilities::new(parameters, StationId(1), StationType::PASSENGER_CAR, 7);
    let sent = cam_of_station(2, 100, reference_position_at(10.0, 0.0), 900, 1500);
    let octets = carnet_its::uper::encode(&sent).unwrap();
    assert_eq!(iut.handle_message(now_at_milliseconds(0), port::CAM, &octets, GnAddress(2), None), Ok(()));
    // The facilities pass the CAM to applications and store it in the map.
    assert_eq!(iut.poll_output(now_at_milliseconds(0)), Some(facilities::Output::Cam(Box::new(sent))));
    assert_eq!(iut.ldm.station(StationId(2)).map(|station| station.speed), Some(SpeedValue(1500)));
}

/// Beyond the ETSI test purposes: the header identifies type and version of the message.
#[test]
fn ca_service_refuses_other_messages_and_versions() {
    let octets =
        carnet_its::uper::encode(&cam_of_station(2, 0, reference_position_at(0.0, 0.0), 0, 0)).unwrap();
    assert!(parse_cam(&octets).is_ok());
    for (place, value, reason) in
        [(0, 0, ItsDrop::WrongVersion), (0, 3, ItsDrop::WrongVersion), (1, 1, ItsDrop::WrongMessage)]
    {
        let mut wrong = octets.clone();
        wrong[place] = value;
        assert_eq!(parse_cam(&wrong).unwrap_err().name(), reason.name());
    }
}

/// Beyond the ETSI test purposes: the service sends no CAM without station data, with an old position, or
/// with an unavailable position.
#[test]
fn service_sends_no_cam_without_position() {
    let mut iut = ServiceUnderTest::new();
    iut.position = ReferencePosition::default();
    assert_eq!(iut.run_until(3000), []);
    assert_eq!(iut.service.poll_generation_error(), Some(ItsDrop::NoPosition));
    iut.position = reference_position_at(0.0, 0.0);
    assert_eq!(sending_times(&iut.run_until(3010)), [3010]);
    // From here on the service gets no station data. After two seconds the last data is too old for a CAM.
    let mut sent = Vec::new();
    while let Some(due) = iut.service.poll_timeout() {
        iut.service.handle_timeout(now_at(due));
        iut.collect_sent_cams(&mut sent, due.as_nanos() / 1_000_000);
    }
    assert_eq!(sending_times(&sent), [4010, 5010]);
    iut.service.handle_timeout(now_at_milliseconds(6010));
    assert_eq!(iut.service.poll_transmit(), None);
}

/// Beyond the ETSI test purposes: the generation time of a CAM is the time of its position.
#[test]
fn generation_delta_time_is_that_of_the_position() {
    let mut iut = ServiceUnderTest::new();
    let sent = iut.run_until(1000);
    for (time, cam, _) in sent {
        assert_eq!(
            u64::from(cam.cam.generation_delta_time.0),
            now_at_milliseconds(time).timestamp.0 % 65_536
        );
    }
}

/// Beyond the ETSI test purposes: if a value does not fit a CAM, the service reports an error and sends
/// nothing.
#[test]
fn service_sends_no_cam_with_value_outside_range() {
    let mut iut = ServiceUnderTest::new();
    iut.high_frequency_container.speed.speed_value = SpeedValue(16_384);
    assert_eq!(iut.run_until(0), []);
    assert_eq!(iut.service.poll_generation_error(), Some(ItsDrop::NotEncodable));
}

/// Beyond the ETSI test purposes: after an error the service waits, and tries again for a limited time.
#[test]
fn service_tries_refused_cam_again_after_pause() {
    let no_position = |iut: &mut ServiceUnderTest| iut.position = ReferencePosition::default();
    let too_fast =
        |iut: &mut ServiceUnderTest| iut.high_frequency_container.speed.speed_value = SpeedValue(16_384);
    for spoil in [no_position, too_fast] {
        let mut iut = ServiceUnderTest::new();
        assert_eq!(sending_times(&iut.run_until(0)), [0]);
        spoil(&mut iut);
        iut.provide_values();
        let mut tried = Vec::new();
        while let Some(due) = iut.service.poll_timeout() {
            assert!(
                tried.last().is_none_or(|last| *last + milliseconds(100) <= due),
                "{tried:?}, then {due:?}"
            );
            iut.service.handle_timeout(now_at(due));
            tried.push(due);
        }
        // The attempts end when the data are too old.
        assert!((5..=20).contains(&tried.len()), "{tried:?}");
        assert_eq!(iut.service.poll_transmit(), None);
    }
}
