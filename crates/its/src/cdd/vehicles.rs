//! What is said of vehicles and those in them.

use crate::uper::macros::{
    bit_strings, enumerated, extensible_enumerated, extensible_sequences, integers, lists, sequences, strings,
};
use crate::uper::{Reader, Uper, Writer};

integers! {
    /// Of the way that the vehicle drives, 1/10,000 m, to the left positive.
    CurvatureValue(i16) -1023..=1023, default 1023 { STRAIGHT = 0, UNAVAILABLE = 1023 };
    /// 0.1 m/s², forwards positive.
    LongitudinalAccelerationValue(i16) -160..=161, default 161 { UNAVAILABLE = 161 };
    /// 0.1 m/s², to the left positive.
    LateralAccelerationValue(i16) -160..=161, default 161 { UNAVAILABLE = 161 };
    /// 0.1 m/s², upwards positive.
    VerticalAccelerationValue(i16) -160..=161, default 161 { UNAVAILABLE = 161 };
    /// Half the width of the 95 % interval, 0.1 m/s².
    AccelerationConfidence(u8) 0..=102, default 102 { OUT_OF_RANGE = 101, UNAVAILABLE = 102 };
    /// 0.01 degree per second, to the left positive.
    YawRateValue(i16) -32_766..=32_767, default 32_767 { STRAIGHT = 0, UNAVAILABLE = 32_767 };
    /// 1.5 degrees, to the left positive.
    SteeringWheelAngleValue(i16) -511..=512, default 512 { STRAIGHT = 0, UNAVAILABLE = 512 };
    /// Half the width of the 95 % interval, 1.5 degrees.
    SteeringWheelAngleConfidence(u8) 1..=127, default 127 { OUT_OF_RANGE = 126, UNAVAILABLE = 127 };
    /// 0.1 m.
    VehicleLengthValue(u16) 1..=1023, default 1023 { OUT_OF_RANGE = 1022, UNAVAILABLE = 1023 };
    /// 0.1 m.
    VehicleWidth(u8) 1..=62, default 62 { OUT_OF_RANGE = 61, UNAVAILABLE = 62 };
    /// 100 kg.
    VehicleMass(u16) 1..=1024, default 1024 { UNAVAILABLE = 1024 };
    /// How good its sensors are.
    PerformanceClass(u8) 0..=7, default 0 { UNAVAILABLE = 0, CLASS_A = 1, CLASS_B = 2 };
    /// How the activation of a public transport vehicle is coded.
    PtActivationType(u8) 0..=255, default 0 { UNDEFINED_CODING = 0, R09_16_CODING = 1, VDV_50149_CODING = 2 };
    /// 0.01 m.
    HeightLonCarr(u8) 1..=100, default 100 { UNAVAILABLE = 100 };
    /// 0.01 m.
    PosLonCarr(u8) 1..=127, default 127 { UNAVAILABLE = 127 };
    /// 0.1 m.
    PosPillar(u8) 1..=30, default 30 { UNAVAILABLE = 30 };
    /// 0.1 m.
    PosCentMass(u8) 1..=63, default 63 { UNAVAILABLE = 63 };
    /// 0.1 m.
    WheelBaseVehicle(u8) 1..=127, default 127 { UNAVAILABLE = 127 };
    /// 0.4 m.
    TurningRadius(u8) 1..=255, default 255 { UNAVAILABLE = 255 };
    /// 0.1 m.
    PosFrontAx(u8) 1..=20, default 20 { UNAVAILABLE = 20 };
    /// Degrees Celsius.
    Temperature(i8) -60..=67, default 0;
    /// How many people are in it.
    NumberOfOccupants(u8) 0..=127, default 127 { UNAVAILABLE = 127 };
}

enumerated! {
    /// The 95 % confidence of a curvature, 1/m: 0.00002 and so on.
    CurvatureConfidence {
        Within0_00002, Within0_0001, Within0_0005, Within0_002, Within0_01, Within0_1, OutOfRange,
        #[default] Unavailable,
    }
    /// Which way a vehicle drives.
    DriveDirection { Forward, Backward, #[default] Unavailable }
    /// Whether there is a trailer in the length.
    VehicleLengthConfidenceIndication {
        NoTrailerPresent, TrailerPresentWithKnownLength, TrailerPresentWithUnknownLength, TrailerPresenceIsUnknown,
        #[default] Unavailable,
    }
    /// The 95 % confidence of a yaw rate, degrees per second: 0.01 and so on.
    YawRateConfidence {
        Within0_01, Within0_05, Within0_1, Within1, Within5, Within10, Within100, OutOfRange, #[default] Unavailable,
    }
    /// What the vehicle is doing.
    VehicleRole {
        #[default] Default, PublicTransport, SpecialTransport, DangerousGoods, RoadWork, Rescue, Emergency,
        SafetyCar, Agriculture, Commercial, Military, RoadOperator, Taxi, Reserved1, Reserved2, Reserved3,
    }
    /// Whether data about an imminent impact are asked for or given.
    RequestResponseIndication { #[default] Request, Response }
}

extensible_enumerated! {
    /// How a curvature was found.
    CurvatureCalculationMode { YawRateUsed, YawRateNotUsed, #[default] Unavailable }
    /// How a position was found.
    PositioningSolutionType { #[default] NoPositioningSolution, Sgnss, Dgnss, SgnssPlusDr, DgnssPlusDr, Dr }
}

bit_strings! {
    /// What acts on the speed.
    AccelerationControl(u8) 7 {
        BRAKE_PEDAL_ENGAGED = 0, GAS_PEDAL_ENGAGED = 1, EMERGENCY_BRAKE_ENGAGED = 2, COLLISION_WARNING_ENGAGED = 3,
        ACC_ENGAGED = 4, CRUISE_CONTROL_ENGAGED = 5, SPEED_LIMITER_ENGAGED = 6,
    }
    /// Which lights are on.
    ExteriorLights(u8) 8 {
        LOW_BEAM_HEADLIGHTS_ON = 0, HIGH_BEAM_HEADLIGHTS_ON = 1, LEFT_TURN_SIGNAL_ON = 2, RIGHT_TURN_SIGNAL_ON = 3,
        DAYTIME_RUNNING_LIGHTS_ON = 4, REVERSE_LIGHT_ON = 5, FOG_LIGHT_ON = 6, PARKING_LIGHTS_ON = 7,
    }
    /// What is special about a transport.
    SpecialTransportType(u8) 4 { HEAVY_LOAD = 0, EXCESS_WIDTH = 1, EXCESS_LENGTH = 2, EXCESS_HEIGHT = 3 }
    /// Whether light bar and siren are on.
    LightBarSirenInUse(u8) 2 { LIGHT_BAR_ACTIVATED = 0, SIREN_ACTIVATED = 1 }
    /// What an emergency vehicle asks for.
    EmergencyPriority(u8) 2 { REQUEST_FOR_RIGHT_OF_WAY = 0, REQUEST_FOR_FREE_CROSSING_AT_A_TRAFFIC_LIGHT = 1 }
    /// What a vehicle runs on.
    EnergyStorageType(u8) 7 {
        HYDROGEN_STORAGE = 0, ELECTRIC_ENERGY_STORAGE = 1, LIQUID_PROPANE_GAS = 2, COMPRESSED_NATURAL_GAS = 3,
        DIESEL = 4, GASOLINE = 5, AMMONIA = 6,
    }
    /// On which seats somebody sits: for each of four rows left, right, middle, not detectable, not present.
    PositionOfOccupants(u32) 20 {}
}

sequences! {
    /// The curvature of a vehicle's way.
    #[derive(Copy)]
    Curvature { curvature_value: CurvatureValue, curvature_confidence: CurvatureConfidence }
    /// Along the vehicle.
    #[derive(Copy)]
    LongitudinalAcceleration {
        longitudinal_acceleration_value: LongitudinalAccelerationValue,
        longitudinal_acceleration_confidence: AccelerationConfidence,
    }
    /// Across the vehicle.
    #[derive(Copy)]
    LateralAcceleration {
        lateral_acceleration_value: LateralAccelerationValue,
        lateral_acceleration_confidence: AccelerationConfidence,
    }
    /// Upwards.
    #[derive(Copy)]
    VerticalAcceleration {
        vertical_acceleration_value: VerticalAccelerationValue,
        vertical_acceleration_confidence: AccelerationConfidence,
    }
    /// How fast a vehicle turns.
    #[derive(Copy)]
    YawRate { yaw_rate_value: YawRateValue, yaw_rate_confidence: YawRateConfidence }
    /// How the steering wheel stands.
    #[derive(Copy)]
    SteeringWheelAngle {
        steering_wheel_angle_value: SteeringWheelAngleValue,
        steering_wheel_angle_confidence: SteeringWheelAngleConfidence,
    }
    /// How long a vehicle is, with its trailer if there is one.
    #[derive(Copy)]
    VehicleLength {
        vehicle_length_value: VehicleLengthValue,
        vehicle_length_confidence_indication: VehicleLengthConfidenceIndication,
    }
    /// What a public transport vehicle asks of a traffic light.
    PtActivation { pt_activation_type: PtActivationType, pt_activation_data: PtActivationData }
}

extensible_sequences! {
    /// Which vehicle it is.
    VehicleIdentification { wmi_number: Option<WmiNumber>, vds: Option<Vds> }
}

strings! {
    /// World Manufacturer Identification.
    WmiNumber Ia5 1..=3;
    /// Vehicle Descriptor Section.
    Vds Ia5 6..=6;
}

lists! {
    /// Distances from the front to the pillars.
    PositionOfPillars[PosPillar] 1..=3 [extensible];
}

/// The octets of an activation, 1 to 20.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PtActivationData(pub Vec<u8>);

impl Uper for PtActivationData {
    const NAME: &'static str = "PtActivationData";

    fn decode(reader: &mut Reader<'_>) -> Self {
        let length = reader.ranged(1, 20, Self::NAME) as usize;
        PtActivationData(reader.octets(length, Self::NAME))
    }

    fn encode(&self, writer: &mut Writer) {
        writer.ranged(i64::try_from(self.0.len()).unwrap_or(i64::MAX), 1, 20, Self::NAME);
        writer.octets(&self.0);
    }
}
