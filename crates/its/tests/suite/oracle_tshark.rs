//! Tshark as independent check: it reads every field of carnet's messages as intended and reports none as
//! malformed.
//!
//! tshark 4.0.17 deviates in one place: it treats the size of a UTF8String as a constraint of the encoding.
//! X.691 30.6 does not, and pycrate reads companyName as carnet writes it. So the DENM of this test has no
//! such string.
#![allow(clippy::disallowed_methods, reason = "a test may ask its environment which tools there are")]

use std::path::Path;
use std::process::Command;

use carnet_its::uper::encode;
use carnet_wire::btp::{BtpB, port};
use carnet_wire::geonet::{
    CommonNextHeader, ETHERTYPE, ExtendedHeader, Lifetime, LongPositionVector, Packet,
};

use crate::messages::{cam_with_all_fields, denm_with_all_fields};

/// Returns the command tshark. If it is not installed, the test prints a message and passes; with
/// `CARNET_REQUIRE_TOOLS=1` it fails.
pub fn tshark_command() -> Option<Command> {
    if Command::new("tshark").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return Some(Command::new("tshark"));
    }
    assert_ne!(std::env::var("CARNET_REQUIRE_TOOLS").as_deref(), Ok("1"), "tshark is missing");
    println!("SKIPPED: tshark cannot be run");
    None
}

/// Returns a capture with an Ethernet frame for each message, behind SHB and BTP-B to its port.
pub fn pcap_of_messages(messages: &[(u16, &[u8])]) -> Vec<u8> {
    let mut octets = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0002_0004, 0, 0, 65535, 1] {
        octets.extend(word.to_be_bytes());
    }
    for &(destination_port, message) in messages {
        let btp = BtpB { destination_port, destination_port_info: 0 }.to_octets();
        let payload = [&btp[..], message].concat();
        let header =
            ExtendedHeader::SingleHop { source: LongPositionVector::default(), media_dependent: [0; 4] };
        let packet = Packet::new(header, CommonNextHeader::BtpB, Lifetime(0x1a), 1, &payload).emit();
        let length = u32::try_from(14 + packet.len()).unwrap();
        for word in [0, 0, length, length] {
            octets.extend(word.to_be_bytes());
        }
        octets.extend([0xff; 6]);
        octets.extend([2, 0, 0, 0, 0, 1]);
        octets.extend(ETHERTYPE.to_be_bytes());
        octets.extend(packet);
    }
    octets
}

/// Checks that every field has the expected values, in the order of the message.
fn check_decoded_fields(file: &str, port: u16, message: &[u8], expected: &[(&str, &str)]) {
    let Some(mut command) = tshark_command() else { return };
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    std::fs::write(&path, pcap_of_messages(&[(port, message)])).unwrap();
    command.args(["-n", "-T", "fields", "-E", "separator=|", "-E", "occurrence=a", "-E", "aggregator=,"]);
    for (name, _) in expected.iter().chain(&[("_ws.malformed", "")]) {
        command.args(["-e", name]);
    }
    let output = command.arg("-r").arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let values: Vec<&str> = text.trim_end_matches('\n').split('|').collect();
    assert_eq!(values.len(), expected.len() + 1, "{text}");
    let wrong: Vec<_> = expected
        .iter()
        .zip(&values)
        .filter(|((_, expected), found)| expected != *found)
        .map(|((name, expected), found)| format!("{name}: expected {expected}, found {found}"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(values.last(), Some(&""), "malformed");
}

#[test]
fn tshark_decodes_every_field_of_cam() {
    let values = [
        ("its.protocolVersion", "2"),
        ("its.messageID", "2"),
        ("its.stationID", "4294967295"),
        ("cam.generationDeltaTime", "65534"),
        ("cam.stationType", "10"),
        ("its.latitude", "-338123457"),
        ("its.longitude", "-1799999999"),
        ("its.semiMajorConfidence", "4093"),
        ("its.semiMinorConfidence", "17"),
        ("its.semiMajorOrientation", "1801"),
        ("its.altitudeValue", "-99999"),
        ("its.altitudeConfidence", "13"),
        ("its.headingValue", "3599"),
        ("its.headingConfidence", "126"),
        ("its.speedValue", "16382"),
        ("its.speedConfidence", "125"),
        ("cam.driveDirection", "1"),
        ("its.vehicleLengthValue", "1022"),
        ("its.vehicleLengthConfidenceIndication", "3"),
        ("cam.vehicleWidth", "61"),
        ("its.longitudinalAccelerationValue", "-160"),
        ("its.longitudinalAccelerationConfidence", "101"),
        ("its.curvatureValue", "-1023"),
        ("its.curvatureConfidence", "6"),
        ("cam.curvatureCalculationMode", "1"),
        ("its.yawRateValue", "-32766"),
        ("its.yawRateConfidence", "7"),
        ("its.AccelerationControl.brakePedalEngaged", "1"),
        ("its.AccelerationControl.gasPedalEngaged", "0"),
        ("its.AccelerationControl.speedLimiterEngaged", "1"),
        ("cam.lanePosition", "13"),
        ("its.steeringWheelAngleValue", "-511"),
        ("its.steeringWheelAngleConfidence", "126"),
        ("its.lateralAccelerationValue", "-159"),
        ("its.lateralAccelerationConfidence", "1"),
        ("its.verticalAccelerationValue", "160"),
        ("its.verticalAccelerationConfidence", "2"),
        ("cam.performanceClass", "7"),
        ("its.protectedZoneLatitude", "1"),
        ("its.protectedZoneLongitude", "-1"),
        ("its.cenDsrcTollingZoneID", "134217727"),
        ("cam.vehicleRole", "4"),
        ("its.ExteriorLights.lowBeamHeadlightsOn", "1"),
        ("its.ExteriorLights.parkingLightsOn", "1"),
        ("its.ExteriorLights.fogLightOn", "0"),
        ("cam.pathHistory", "23"),
        ("its.pathDeltaTime", "65535,65533,65531,65529,65527,65525,65523,65521,65519,65517,65515,65513"),
        ("cam.roadworksSubCauseCode", "6"),
        ("its.LightBarSirenInUse.lightBarActivated", "1"),
        ("its.LightBarSirenInUse.sirenActivated", "0"),
        ("its.innerhardShoulderStatus", "1"),
        ("its.outerhardShoulderStatus", "2"),
        // tshark shows the thirteen bits of this value with three bits of padding.
        ("its.drivingLaneStatus", "aaa8"),
    ];
    check_decoded_fields("its-cam.pcap", port::CAM, &encode(&cam_with_all_fields()).unwrap(), &values);
}

#[test]
fn tshark_decodes_every_field_of_denm() {
    let values = [
        ("its.messageID", "1"),
        ("its.stationID", "19088743"),
        ("its.originatingStationID", "2309737967,2309737967,2309737967"),
        ("its.sequenceNumber", "65535,1,2"),
        ("denm.detectionTime", "722384800123"),
        ("denm.referenceTime", "722384800456"),
        ("denm.termination", ""),
        ("its.latitude", "899999999,899999999,900000001"),
        ("its.longitude", "1799999998,1799999998,1800000001"),
        ("its.altitudeValue", "800000,800000,800001"),
        ("denm.relevanceDistance", "6"),
        ("denm.relevanceTrafficDirection", "3"),
        ("denm.validityDuration", "86400"),
        ("denm.transmissionInterval", "10000"),
        ("denm.stationType", "11"),
        ("denm.informationQuality", "7"),
        ("its.causeCode", "94,92,3,91"),
        ("its.subCauseCode", "2,3,4,8"),
        ("denm.eventHistory", "23"),
        ("its.speedValue", "9"),
        ("its.headingValue", "11"),
        ("denm.traces", "3"),
        ("its.PathHistory", "2,0,1"),
        ("denm.roadType", "3"),
        ("denm.lanePosition", "-1"),
        ("denm.heightLonCarrLeft", "99"),
        ("denm.heightLonCarrRight", "98"),
        ("denm.posLonCarrLeft", "97"),
        ("denm.posLonCarrRight", "96"),
        ("its.PosPillar", "29,28,27"),
        ("denm.posCentMass", "62"),
        ("denm.wheelBaseVehicle", "126"),
        ("denm.turningRadius", "254"),
        ("denm.posFrontAx", "19"),
        ("its.PositionOfOccupants.row1LeftOccupied", "1"),
        ("its.PositionOfOccupants.row4NotPresent", "1"),
        ("denm.vehicleMass", "1023"),
        ("denm.requestResponseIndication", "1"),
        ("denm.externalTemperature", "-59"),
        ("its.LightBarSirenInUse.sirenActivated", "1"),
        ("its.StationType", "6,11"),
        ("denm.speedLimit", "255"),
        ("denm.recommendedPath", "2"),
        ("denm.trafficFlowRule", "3"),
        ("denm.referenceDenms", "2"),
        ("denm.positioningSolution", "5"),
        ("denm.stationarySince", "3"),
        ("its.dangerousGoodsType", "19"),
        ("its.unNumber", "9999"),
        ("its.elevatedTemperature", "1"),
        ("its.tunnelsRestricted", "0"),
        ("its.limitedQuantity", "1"),
        ("its.emergencyActionCode", "2YE+"),
        ("its.phoneNumber", "0043 1 4000"),
        ("denm.numberOfOccupants", "126"),
        ("its.wMInumber", "WVW"),
        ("its.vDS", "ZZZ1KZ"),
        ("its.EnergyStorageType.diesel", "1"),
        ("its.EnergyStorageType.gasoline", "0"),
        ("its.EnergyStorageType.ammonia", "1"),
    ];
    let mut denm = denm_with_all_fields();
    let goods = denm.denm.alacarte.as_mut().and_then(|more| more.stationary_vehicle.as_mut());
    let goods = goods.and_then(|vehicle| vehicle.carrying_dangerous_goods.as_mut());
    goods.unwrap().company_name = None;
    check_decoded_fields("its-denm.pcap", port::DENM, &encode(&denm).unwrap(), &values);
}
