//! `ITS-Container` (ETSI TS 102 894-2 V1.3.1).
//!
//! Generated from `asn1/release1/ITS-Container.asn` by `cargo xtask gen-asn1`.
//! The next run overwrites changes. `asn1/LICENSE` has the licence of ETSI's modules.

use crate::uper::macros::*;

/// The number of a tolling zone.
pub type CenDsrcTollingZoneId = ProtectedZoneId;

/// Whether passengers get on or off.
pub type EmbarkationStatus = bool;

integers! {
    /// Half the width of the 95 % interval, 0.1 m/s².
    AccelerationConfidence(u8) 0..=102, default 102 {
        POINT_ONE_METER_PER_SEC_SQUARED = 1,
        OUT_OF_RANGE = 101,
        UNAVAILABLE = 102,
    };
    /// `AccidentSubCauseCode` of `ITS-Container`.
    AccidentSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        MULTI_VEHICLE_ACCIDENT = 1,
        HEAVY_ACCIDENT = 2,
        ACCIDENT_INVOLVING_LORRY = 3,
        ACCIDENT_INVOLVING_BUS = 4,
        ACCIDENT_INVOLVING_HAZARDOUS_MATERIALS = 5,
        ACCIDENT_ON_OPPOSITE_LANE = 6,
        UNSECURED_ACCIDENT = 7,
        ASSISTANCE_REQUESTED = 8,
    };
    /// `AdverseWeatherCondition-AdhesionSubCauseCode` of `ITS-Container`.
    AdverseWeatherConditionAdhesionSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        HEAVY_FROST_ON_ROAD = 1,
        FUEL_ON_ROAD = 2,
        MUD_ON_ROAD = 3,
        SNOW_ON_ROAD = 4,
        ICE_ON_ROAD = 5,
        BLACK_ICE_ON_ROAD = 6,
        OIL_ON_ROAD = 7,
        LOOSE_CHIPPINGS = 8,
        INSTANT_BLACK_ICE = 9,
        ROADS_SALTED = 10,
    };
    /// `AdverseWeatherCondition-ExtremeWeatherConditionSubCauseCode` of `ITS-Container`.
    AdverseWeatherConditionExtremeWeatherConditionSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        STRONG_WINDS = 1,
        DAMAGING_HAIL = 2,
        HURRICANE = 3,
        THUNDERSTORM = 4,
        TORNADO = 5,
        BLIZZARD = 6,
    };
    /// `AdverseWeatherCondition-PrecipitationSubCauseCode` of `ITS-Container`.
    AdverseWeatherConditionPrecipitationSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        HEAVY_RAIN = 1,
        HEAVY_SNOWFALL = 2,
        SOFT_HAIL = 3,
    };
    /// `AdverseWeatherCondition-VisibilitySubCauseCode` of `ITS-Container`.
    AdverseWeatherConditionVisibilitySubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        FOG = 1,
        SMOKE = 2,
        HEAVY_SNOWFALL = 3,
        HEAVY_RAIN = 4,
        HEAVY_HAIL = 5,
        LOW_SUN_GLARE = 6,
        SANDSTORMS = 7,
        SWARMS_OF_INSECTS = 8,
    };
    /// Height above the WGS 84 ellipsoid, 0.01 m.
    AltitudeValue(i32) -100_000..=800_001, default 800_001 {
        REFERENCE_ELLIPSOID_SURFACE = 0,
        ONE_CENTIMETER = 1,
        UNAVAILABLE = 800_001,
    };
    /// A cause.
    CauseCodeType(u8) 0..=255, default 0 {
        RESERVED = 0,
        TRAFFIC_CONDITION = 1,
        ACCIDENT = 2,
        ROADWORKS = 3,
        IMPASSABILITY = 5,
        ADVERSE_WEATHER_CONDITION_ADHESION = 6,
        AQUAPLANING = 7,
        HAZARDOUS_LOCATION_SURFACE_CONDITION = 9,
        HAZARDOUS_LOCATION_OBSTACLE_ON_THE_ROAD = 10,
        HAZARDOUS_LOCATION_ANIMAL_ON_THE_ROAD = 11,
        HUMAN_PRESENCE_ON_THE_ROAD = 12,
        WRONG_WAY_DRIVING = 14,
        RESCUE_AND_RECOVERY_WORK_IN_PROGRESS = 15,
        ADVERSE_WEATHER_CONDITION_EXTREME_WEATHER_CONDITION = 17,
        ADVERSE_WEATHER_CONDITION_VISIBILITY = 18,
        ADVERSE_WEATHER_CONDITION_PRECIPITATION = 19,
        SLOW_VEHICLE = 26,
        DANGEROUS_END_OF_QUEUE = 27,
        VEHICLE_BREAKDOWN = 91,
        POST_CRASH = 92,
        HUMAN_PROBLEM = 93,
        STATIONARY_VEHICLE = 94,
        EMERGENCY_VEHICLE_APPROACHING = 95,
        HAZARDOUS_LOCATION_DANGEROUS_CURVE = 96,
        COLLISION_RISK = 97,
        SIGNAL_VIOLATION = 98,
        DANGEROUS_SITUATION = 99,
    };
    /// `CollisionRiskSubCauseCode` of `ITS-Container`.
    CollisionRiskSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        LONGITUDINAL_COLLISION_RISK = 1,
        CROSSING_COLLISION_RISK = 2,
        LATERAL_COLLISION_RISK = 3,
        VULNERABLE_ROAD_USER = 4,
    };
    /// Of the way that the vehicle drives, 1/10,000 m, to the left positive.
    CurvatureValue(i16) -1023..=1023, default 1023 { STRAIGHT = 0, UNAVAILABLE = 1023 };
    /// `DangerousEndOfQueueSubCauseCode` of `ITS-Container`.
    DangerousEndOfQueueSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        SUDDEN_END_OF_QUEUE = 1,
        QUEUE_OVER_HILL = 2,
        QUEUE_AROUND_BEND = 3,
        QUEUE_IN_TUNNEL = 4,
    };
    /// The UN number of a substance.
    UnNumber(u16) 0..=9999, default 0;
    /// `DangerousSituationSubCauseCode` of `ITS-Container`.
    DangerousSituationSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        EMERGENCY_ELECTRONIC_BRAKE_ENGAGED = 1,
        PRE_CRASH_SYSTEM_ENGAGED = 2,
        ESP_ENGAGED = 3,
        ABS_ENGAGED = 4,
        AEB_ENGAGED = 5,
        BRAKE_WARNING_ENGAGED = 6,
        COLLISION_RISK_WARNING_ENGAGED = 7,
    };
    /// 0.01 m above a reference.
    DeltaAltitude(i16) -12_700..=12_800, default 12_800 {
        ONE_CENTIMETER_UP = 1,
        ONE_CENTIMETER_DOWN = -1,
        UNAVAILABLE = 12_800,
    };
    /// 0.1 microdegree north of a reference.
    DeltaLatitude(i32) -131_071..=131_072, default 131_072 {
        ONE_MICRODEGREE_NORTH = 10,
        ONE_MICRODEGREE_SOUTH = -10,
        UNAVAILABLE = 131_072,
    };
    /// 0.1 microdegree east of a reference.
    DeltaLongitude(i32) -131_071..=131_072, default 131_072 {
        ONE_MICRODEGREE_EAST = 10,
        ONE_MICRODEGREE_WEST = -10,
        UNAVAILABLE = 131_072,
    };
    /// `EmergencyVehicleApproachingSubCauseCode` of `ITS-Container`.
    EmergencyVehicleApproachingSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        EMERGENCY_VEHICLE_APPROACHING = 1,
        PRIORITIZED_VEHICLE_APPROACHING = 2,
    };
    /// `HazardousLocation-AnimalOnTheRoadSubCauseCode` of `ITS-Container`.
    HazardousLocationAnimalOnTheRoadSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        WILD_ANIMALS = 1,
        HERD_OF_ANIMALS = 2,
        SMALL_ANIMALS = 3,
        LARGE_ANIMALS = 4,
    };
    /// `HazardousLocation-DangerousCurveSubCauseCode` of `ITS-Container`.
    HazardousLocationDangerousCurveSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        DANGEROUS_LEFT_TURN_CURVE = 1,
        DANGEROUS_RIGHT_TURN_CURVE = 2,
        MULTIPLE_CURVES_STARTING_WITH_UNKNOWN_TURNING_DIRECTION = 3,
        MULTIPLE_CURVES_STARTING_WITH_LEFT_TURN = 4,
        MULTIPLE_CURVES_STARTING_WITH_RIGHT_TURN = 5,
    };
    /// `HazardousLocation-ObstacleOnTheRoadSubCauseCode` of `ITS-Container`.
    HazardousLocationObstacleOnTheRoadSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        SHED_LOAD = 1,
        PARTS_OF_VEHICLES = 2,
        PARTS_OF_TYRES = 3,
        BIG_OBJECTS = 4,
        FALLEN_TREES = 5,
        HUB_CAPS = 6,
        WAITING_VEHICLES = 7,
    };
    /// `HazardousLocation-SurfaceConditionSubCauseCode` of `ITS-Container`.
    HazardousLocationSurfaceConditionSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        ROCKFALLS = 1,
        EARTHQUAKE_DAMAGE = 2,
        SEWER_COLLAPSE = 3,
        SUBSIDENCE = 4,
        SNOW_DRIFTS = 5,
        STORM_DAMAGE = 6,
        BURST_PIPE = 7,
        VOLCANO_ERUPTION = 8,
        FALLING_ICE = 9,
    };
    /// Half the width of the 95 % interval, 0.1 degree.
    HeadingConfidence(u8) 1..=127, default 127 {
        EQUAL_OR_WITHIN_ZERO_POINT_ONE_DEGREE = 1,
        EQUAL_OR_WITHIN_ONE_DEGREE = 10,
        OUT_OF_RANGE = 126,
        UNAVAILABLE = 127,
    };
    /// 0.1 degree clockwise from North.
    HeadingValue(u16) 0..=3601, default 3601 {
        WGS84_NORTH = 0,
        WGS84_EAST = 900,
        WGS84_SOUTH = 1800,
        WGS84_WEST = 2700,
        UNAVAILABLE = 3601,
    };
    /// 0.01 m.
    HeightLonCarr(u8) 1..=100, default 100 { ONE_CENTIMETER = 1, UNAVAILABLE = 100 };
    /// `HumanPresenceOnTheRoadSubCauseCode` of `ITS-Container`.
    HumanPresenceOnTheRoadSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        CHILDREN_ON_ROADWAY = 1,
        CYCLIST_ON_ROADWAY = 2,
        MOTORCYCLIST_ON_ROADWAY = 3,
    };
    /// `HumanProblemSubCauseCode` of `ITS-Container`.
    HumanProblemSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        GLYCEMIA_PROBLEM = 1,
        HEART_PROBLEM = 2,
    };
    /// How good what is known of an event is, 1 to 7; 0 if that is unknown.
    InformationQuality(u8) 0..=7, default 0 { UNAVAILABLE = 0, LOWEST = 1, HIGHEST = 7 };
    /// protocolVersion of the ITS PDU header: 1 in the first editions, 2 today.
    ProtocolVersion(u8) 0..=255, default 2;
    /// messageID.
    MessageId(u8) 0..=255, default 0 {
        DENM = 1,
        CAM = 2,
        POI = 3,
        SPATEM = 4,
        MAPEM = 5,
        IVIM = 6,
        EV_RSR = 7,
        TISTPGTRANSACTION = 8,
        SREM = 9,
        SSEM = 10,
        EVCSN = 11,
        SAEM = 12,
        RTCMEM = 13,
    };
    /// Counted from inside: 1 is the innermost driving lane.
    LanePosition(i8) -1..=14, default 0 {
        OFF_THE_ROAD = -1,
        INNER_HARD_SHOULDER = 0,
        INNERMOST_DRIVING_LANE = 1,
        SECOND_LANE_FROM_INSIDE = 2,
        OUTER_HARD_SHOULDER = 14,
    };
    /// 0.1 m/s², to the left positive.
    LateralAccelerationValue(i16) -160..=161, default 161 {
        POINT_ONE_METER_PER_SEC_SQUARED_TO_RIGHT = -1,
        POINT_ONE_METER_PER_SEC_SQUARED_TO_LEFT = 1,
        UNAVAILABLE = 161,
    };
    /// WGS 84 latitude, 0.1 microdegree, north positive.
    Latitude(i32) -900_000_000..=900_000_001, default 900_000_001 {
        ONE_MICRODEGREE_NORTH = 10,
        ONE_MICRODEGREE_SOUTH = -10,
        UNAVAILABLE = 900_000_001,
    };
    /// WGS 84 longitude, 0.1 microdegree, east positive.
    Longitude(i32) -1_800_000_000..=1_800_000_001, default 1_800_000_001 {
        ONE_MICRODEGREE_EAST = 10,
        ONE_MICRODEGREE_WEST = -10,
        UNAVAILABLE = 1_800_000_001,
    };
    /// 0.1 m/s², forwards positive.
    LongitudinalAccelerationValue(i16) -160..=161, default 161 {
        POINT_ONE_METER_PER_SEC_SQUARED_FORWARD = 1,
        POINT_ONE_METER_PER_SEC_SQUARED_BACKWARD = -1,
        UNAVAILABLE = 161,
    };
    /// How many people are in it.
    NumberOfOccupants(u8) 0..=127, default 127 { ONE_OCCUPANT = 1, UNAVAILABLE = 127 };
    /// Since the previous point of a path, 10 ms.
    PathDeltaTime(u32) 1..=65_535 [extensible], default 1 { TEN_MILLI_SECONDS_IN_PAST = 1 };
    /// How good its sensors are.
    PerformanceClass(u8) 0..=7, default 0 {
        UNAVAILABLE = 0,
        PERFORMANCE_CLASS_A = 1,
        PERFORMANCE_CLASS_B = 2,
    };
    /// 0.1 m.
    PosCentMass(u8) 1..=63, default 63 { TEN_CENTIMETERS = 1, UNAVAILABLE = 63 };
    /// 0.1 m.
    PosFrontAx(u8) 1..=20, default 20 { TEN_CENTIMETERS = 1, UNAVAILABLE = 20 };
    /// 0.01 m.
    PosLonCarr(u8) 1..=127, default 127 { ONE_CENTIMETER = 1, UNAVAILABLE = 127 };
    /// 0.1 m.
    PosPillar(u8) 1..=30, default 30 { TEN_CENTIMETERS = 1, UNAVAILABLE = 30 };
    /// `PostCrashSubCauseCode` of `ITS-Container`.
    PostCrashSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        ACCIDENT_WITHOUT_E_CALL_TRIGGERED = 1,
        ACCIDENT_WITH_E_CALL_MANUALLY_TRIGGERED = 2,
        ACCIDENT_WITH_E_CALL_AUTOMATICALLY_TRIGGERED = 3,
        ACCIDENT_WITH_E_CALL_TRIGGERED_WITHOUT_ACCESS_TO_CELLULAR_NETWORK = 4,
    };
    /// The number of a zone.
    ProtectedZoneId(u32) 0..=134_217_727, default 0;
    /// Metres.
    ProtectedZoneRadius(u32) 1..=255 [extensible], default 1 { ONE_METER = 1 };
    /// How the activation of a public transport vehicle is coded.
    PtActivationType(u8) 0..=255, default 0 {
        UNDEFINED_CODING_TYPE = 0,
        R09_16_CODING_TYPE = 1,
        VDV_50149_CODING_TYPE = 2,
    };
    /// `RescueAndRecoveryWorkInProgressSubCauseCode` of `ITS-Container`.
    RescueAndRecoveryWorkInProgressSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        EMERGENCY_VEHICLES = 1,
        RESCUE_HELICOPTER_LANDING = 2,
        POLICE_ACTIVITY_ONGOING = 3,
        MEDICAL_EMERGENCY_ONGOING = 4,
        CHILD_ABDUCTION_IN_PROGRESS = 5,
    };
    /// More precisely, among roadworks.
    RoadworksSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        MAJOR_ROADWORKS = 1,
        ROAD_MARKING_WORK = 2,
        SLOW_MOVING_ROAD_MAINTENANCE = 3,
        SHORT_TERM_STATIONARY_ROADWORKS = 4,
        STREET_CLEANING = 5,
        WINTER_SERVICE = 6,
    };
    /// Half an axis of the ellipse in which a position lies with 95 % confidence, 0.01 m.
    SemiAxisLength(u16) 0..=4095, default 4095 {
        ONE_CENTIMETER = 1,
        OUT_OF_RANGE = 4094,
        UNAVAILABLE = 4095,
    };
    /// Of an event; wraps around.
    SequenceNumber(u16) 0..=65_535, default 0;
    /// `SignalViolationSubCauseCode` of `ITS-Container`.
    SignalViolationSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        STOP_SIGN_VIOLATION = 1,
        TRAFFIC_LIGHT_VIOLATION = 2,
        TURNING_REGULATION_VIOLATION = 3,
    };
    /// `SlowVehicleSubCauseCode` of `ITS-Container`.
    SlowVehicleSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        MAINTENANCE_VEHICLE = 1,
        VEHICLES_SLOWING_TO_LOOK_AT_ACCIDENT = 2,
        ABNORMAL_LOAD = 3,
        ABNORMAL_WIDE_LOAD = 4,
        CONVOY = 5,
        SNOWPLOUGH = 6,
        DEICING = 7,
        SALTING_VEHICLES = 8,
    };
    /// Half the width of the 95 % interval, 0.01 m/s.
    SpeedConfidence(u8) 1..=127, default 127 {
        EQUAL_OR_WITHIN_ONE_CENTIMETER_PER_SEC = 1,
        EQUAL_OR_WITHIN_ONE_METER_PER_SEC = 100,
        OUT_OF_RANGE = 126,
        UNAVAILABLE = 127,
    };
    /// km/h.
    SpeedLimit(u8) 1..=255, default 1 { ONE_KM_PER_HOUR = 1 };
    /// 0.01 m/s.
    SpeedValue(u16) 0..=16_383, default 16_383 {
        STANDSTILL = 0,
        ONE_CENTIMETER_PER_SEC = 1,
        UNAVAILABLE = 16_383,
    };
    /// A station's number, which changes with its pseudonym.
    StationId(u32) 0..=4_294_967_295, default 0;
    /// What a station is.
    StationType(u8) 0..=255, default 0 {
        UNKNOWN = 0,
        PEDESTRIAN = 1,
        CYCLIST = 2,
        MOPED = 3,
        MOTORCYCLE = 4,
        PASSENGER_CAR = 5,
        BUS = 6,
        LIGHT_TRUCK = 7,
        HEAVY_TRUCK = 8,
        TRAILER = 9,
        SPECIAL_VEHICLES = 10,
        TRAM = 11,
        ROAD_SIDE_UNIT = 15,
    };
    /// `StationaryVehicleSubCauseCode` of `ITS-Container`.
    StationaryVehicleSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        HUMAN_PROBLEM = 1,
        VEHICLE_BREAKDOWN = 2,
        POST_CRASH = 3,
        PUBLIC_TRANSPORT_STOP = 4,
        CARRYING_DANGEROUS_GOODS = 5,
    };
    /// Half the width of the 95 % interval, 1.5 degrees.
    SteeringWheelAngleConfidence(u8) 1..=127, default 127 {
        EQUAL_OR_WITHIN_ONE_POINT_FIVE_DEGREE = 1,
        OUT_OF_RANGE = 126,
        UNAVAILABLE = 127,
    };
    /// 1.5 degrees, to the left positive.
    SteeringWheelAngleValue(i16) -511..=512, default 512 {
        STRAIGHT = 0,
        ONE_POINT_FIVE_DEGREES_TO_RIGHT = -1,
        ONE_POINT_FIVE_DEGREES_TO_LEFT = 1,
        UNAVAILABLE = 512,
    };
    /// More precisely, within a cause; 0 where nothing is known.
    SubCauseCodeType(u8) 0..=255, default 0;
    /// Degrees Celsius.
    Temperature(i8) -60..=67, default 0 {
        EQUAL_OR_SMALLER_THAN_MINUS60_DEG = -60,
        ONE_DEGREE_CELSIUS = 1,
        EQUAL_OR_GREATER_THAN67_DEG = 67,
    };
    /// Milliseconds of TAI since the start of 2004 in UTC.
    TimestampIts(u64) 0..=4_398_046_511_103, default 0 {
        UTC_START_OF2004 = 0,
        ONE_MILLISEC_AFTER_UTC_START_OF2004 = 1,
    };
    /// `TrafficConditionSubCauseCode` of `ITS-Container`.
    TrafficConditionSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        INCREASED_VOLUME_OF_TRAFFIC = 1,
        TRAFFIC_JAM_SLOWLY_INCREASING = 2,
        TRAFFIC_JAM_INCREASING = 3,
        TRAFFIC_JAM_STRONGLY_INCREASING = 4,
        TRAFFIC_STATIONARY = 5,
        TRAFFIC_JAM_SLIGHTLY_DECREASING = 6,
        TRAFFIC_JAM_DECREASING = 7,
        TRAFFIC_JAM_STRONGLY_DECREASING = 8,
    };
    /// Between two sendings of a DENM at its originator, milliseconds.
    TransmissionInterval(u16) 1..=10_000, default 1 { ONE_MILLI_SECOND = 1, TEN_SECONDS = 10_000 };
    /// 0.4 m.
    TurningRadius(u8) 1..=255, default 255 { POINT4_METERS = 1, UNAVAILABLE = 255 };
    /// How long an event lasts after its detection, seconds.
    ValidityDuration(u32) 0..=86_400, default 600 { TIME_OF_DETECTION = 0, ONE_SECOND_AFTER_DETECTION = 1 };
    /// `VehicleBreakdownSubCauseCode` of `ITS-Container`.
    VehicleBreakdownSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        LACK_OF_FUEL = 1,
        LACK_OF_BATTERY_POWER = 2,
        ENGINE_PROBLEM = 3,
        TRANSMISSION_PROBLEM = 4,
        ENGINE_COOLING_PROBLEM = 5,
        BRAKING_SYSTEM_PROBLEM = 6,
        STEERING_PROBLEM = 7,
        TYRE_PUNCTURE = 8,
        TYRE_PRESSURE_PROBLEM = 9,
    };
    /// 0.1 m.
    VehicleLengthValue(u16) 1..=1023, default 1023 {
        TEN_CENTIMETERS = 1,
        OUT_OF_RANGE = 1022,
        UNAVAILABLE = 1023,
    };
    /// 100 kg.
    VehicleMass(u16) 1..=1024, default 1024 { HUNDRED_KG = 1, UNAVAILABLE = 1024 };
    /// 0.1 m.
    VehicleWidth(u8) 1..=62, default 62 { TEN_CENTIMETERS = 1, OUT_OF_RANGE = 61, UNAVAILABLE = 62 };
    /// 0.1 m/s², upwards positive.
    VerticalAccelerationValue(i16) -160..=161, default 161 {
        POINT_ONE_METER_PER_SEC_SQUARED_UP = 1,
        POINT_ONE_METER_PER_SEC_SQUARED_DOWN = -1,
        UNAVAILABLE = 161,
    };
    /// 0.1 m.
    WheelBaseVehicle(u8) 1..=127, default 127 { TEN_CENTIMETERS = 1, UNAVAILABLE = 127 };
    /// `WrongWayDrivingSubCauseCode` of `ITS-Container`.
    WrongWayDrivingSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        WRONG_LANE = 1,
        WRONG_DIRECTION = 2,
    };
    /// 0.01 degree per second, to the left positive.
    YawRateValue(i16) -32_766..=32_767, default 32_767 {
        STRAIGHT = 0,
        DEG_SEC_000_01_TO_RIGHT = -1,
        DEG_SEC_000_01_TO_LEFT = 1,
        UNAVAILABLE = 32_767,
    };
}

enumerated! {
    /// The 95 % confidence of an altitude: within 0.01 m, ... within 200 m.
    AltitudeConfidence {
        Alt000_01,
        Alt000_02,
        Alt000_05,
        Alt000_10,
        Alt000_20,
        Alt000_50,
        Alt001_00,
        Alt002_00,
        Alt005_00,
        Alt010_00,
        Alt020_00,
        Alt050_00,
        Alt100_00,
        Alt200_00,
        OutOfRange,
        #[default] Unavailable,
    }
    /// The 95 % confidence of a curvature, 1/m: 0.00002 and so on.
    CurvatureConfidence {
        OnePerMeter0_00002,
        OnePerMeter0_0001,
        OnePerMeter0_0005,
        OnePerMeter0_002,
        OnePerMeter0_01,
        OnePerMeter0_1,
        OutOfRange,
        #[default] Unavailable,
    }
    /// Classes of dangerous goods.
    DangerousGoodsBasic {
        #[default] Explosives1,
        Explosives2,
        Explosives3,
        Explosives4,
        Explosives5,
        Explosives6,
        FlammableGases,
        NonFlammableGases,
        ToxicGases,
        FlammableLiquids,
        FlammableSolids,
        SubstancesLiableToSpontaneousCombustion,
        SubstancesEmittingFlammableGasesUponContactWithWater,
        OxidizingSubstances,
        OrganicPeroxides,
        ToxicSubstances,
        InfectiousSubstances,
        RadioactiveMaterial,
        CorrosiveSubstances,
        MiscellaneousDangerousSubstances,
    }
    /// Which way a vehicle drives.
    DriveDirection { Forward, Backward, #[default] Unavailable }
    /// What a hard shoulder is for.
    HardShoulderStatus { #[default] AvailableForStopping, Closed, AvailableForDriving }
    /// How far from its position an event matters.
    RelevanceDistance {
        #[default] LessThan50m,
        LessThan100m,
        LessThan200m,
        LessThan500m,
        LessThan1000m,
        LessThan5km,
        LessThan10km,
        Over10km,
    }
    /// To which traffic an event matters.
    RelevanceTrafficDirection {
        #[default] AllTrafficDirections,
        UpstreamTraffic,
        DownstreamTraffic,
        OppositeTraffic,
    }
    /// Whether data about an imminent impact are asked for or given.
    RequestResponseIndication { #[default] Request, Response }
    /// What a road is like.
    RoadType {
        #[default] UrbanNoStructuralSeparationToOppositeLanes,
        UrbanWithStructuralSeparationToOppositeLanes,
        NonUrbanNoStructuralSeparationToOppositeLanes,
        NonUrbanWithStructuralSeparationToOppositeLanes,
    }
    /// For how long a vehicle has stood.
    StationarySince {
        #[default] LessThan1Minute,
        LessThan2Minutes,
        LessThan15Minutes,
        EqualOrGreater15Minutes,
    }
    /// Whether there is a trailer in the length.
    VehicleLengthConfidenceIndication {
        NoTrailerPresent,
        TrailerPresentWithKnownLength,
        TrailerPresentWithUnknownLength,
        TrailerPresenceIsUnknown,
        #[default] Unavailable,
    }
    /// What the vehicle is doing.
    VehicleRole {
        #[default] Default,
        PublicTransport,
        SpecialTransport,
        DangerousGoods,
        RoadWork,
        Rescue,
        Emergency,
        SafetyCar,
        Agriculture,
        Commercial,
        Military,
        RoadOperator,
        Taxi,
        Reserved1,
        Reserved2,
        Reserved3,
    }
    /// The 95 % confidence of a yaw rate, degrees per second: 0.01 and so on.
    YawRateConfidence {
        DegSec000_01,
        DegSec000_05,
        DegSec000_10,
        DegSec001_00,
        DegSec005_00,
        DegSec010_00,
        DegSec100_00,
        OutOfRange,
        #[default] Unavailable,
    }
}

extensible_enumerated! {
    /// How a curvature was found.
    CurvatureCalculationMode { YawRateUsed, YawRateNotUsed, #[default] Unavailable }
    /// How a position was found.
    PositioningSolutionType { #[default] NoPositioningSolution, Sgnss, Dgnss, SgnssPlusDr, DgnssPlusDr, Dr }
    /// What is protected.
    ProtectedZoneType { #[default] PermanentCenDsrcTolling } { TemporaryCenDsrcTolling }
    /// A rule for the traffic at a place.
    TrafficRule { #[default] NoPassing, NoPassingForTrucks, PassToRight, PassToLeft }
}

bit_strings! {
    /// What acts on the speed.
    AccelerationControl(u8) 7 {
        BRAKE_PEDAL_ENGAGED = 0,
        GAS_PEDAL_ENGAGED = 1,
        EMERGENCY_BRAKE_ENGAGED = 2,
        COLLISION_WARNING_ENGAGED = 3,
        ACC_ENGAGED = 4,
        CRUISE_CONTROL_ENGAGED = 5,
        SPEED_LIMITER_ENGAGED = 6,
    }
    /// What an emergency vehicle asks for.
    EmergencyPriority(u8) 2 { REQUEST_FOR_RIGHT_OF_WAY = 0, REQUEST_FOR_FREE_CROSSING_AT_A_TRAFFIC_LIGHT = 1 }
    /// What a vehicle runs on.
    EnergyStorageType(u8) 7 {
        HYDROGEN_STORAGE = 0,
        ELECTRIC_ENERGY_STORAGE = 1,
        LIQUID_PROPANE_GAS = 2,
        COMPRESSED_NATURAL_GAS = 3,
        DIESEL = 4,
        GASOLINE = 5,
        AMMONIA = 6,
    }
    /// Which lights are on.
    ExteriorLights(u8) 8 {
        LOW_BEAM_HEADLIGHTS_ON = 0,
        HIGH_BEAM_HEADLIGHTS_ON = 1,
        LEFT_TURN_SIGNAL_ON = 2,
        RIGHT_TURN_SIGNAL_ON = 3,
        DAYTIME_RUNNING_LIGHTS_ON = 4,
        REVERSE_LIGHT_ON = 5,
        FOG_LIGHT_ON = 6,
        PARKING_LIGHTS_ON = 7,
    }
    /// Whether light bar and siren are on.
    LightBarSirenInUse(u8) 2 { LIGHT_BAR_ACTIVATED = 0, SIREN_ACTIVATED = 1 }
    /// On which seats somebody sits: for each of four rows left, right, middle, not detectable, not present.
    PositionOfOccupants(u32) 20 {
        ROW1_LEFT_OCCUPIED = 0,
        ROW1_RIGHT_OCCUPIED = 1,
        ROW1_MID_OCCUPIED = 2,
        ROW1_NOT_DETECTABLE = 3,
        ROW1_NOT_PRESENT = 4,
        ROW2_LEFT_OCCUPIED = 5,
        ROW2_RIGHT_OCCUPIED = 6,
        ROW2_MID_OCCUPIED = 7,
        ROW2_NOT_DETECTABLE = 8,
        ROW2_NOT_PRESENT = 9,
        ROW3_LEFT_OCCUPIED = 10,
        ROW3_RIGHT_OCCUPIED = 11,
        ROW3_MID_OCCUPIED = 12,
        ROW3_NOT_DETECTABLE = 13,
        ROW3_NOT_PRESENT = 14,
        ROW4_LEFT_OCCUPIED = 15,
        ROW4_RIGHT_OCCUPIED = 16,
        ROW4_MID_OCCUPIED = 17,
        ROW4_NOT_DETECTABLE = 18,
        ROW4_NOT_PRESENT = 19,
    }
    /// What is special about a transport.
    SpecialTransportType(u8) 4 { HEAVY_LOAD = 0, EXCESS_WIDTH = 1, EXCESS_LENGTH = 2, EXCESS_HEIGHT = 3 }
}

variable_bit_strings! {
    /// Closed driving lanes: a bit per lane, of up to 13; the innermost lane is the most significant of them.
    DrivingLaneStatus(u16) 1..=13;
}

octet_strings! {
    /// The octets of an activation, 1 to 20.
    PtActivationData 1..=20;
}

strings! {
    /// What helpers do in an emergency.
    EmergencyActionCode Ia5 1..=24;
    /// A company's name, 1 to 24 characters.
    CompanyName Utf8 1..=24;
    /// `OpeningDaysHours` of `ITS-Container`.
    OpeningDaysHours Utf8 0..=16_383;
    /// A telephone number: digits and spaces.
    PhoneNumber Numeric 1..=16;
    /// Vehicle Descriptor Section.
    Vds Ia5 6..=6;
    /// World Manufacturer Identification.
    WmiNumber Ia5 1..=3;
}

lists! {
    /// `DigitalMap` of `ITS-Container`.
    DigitalMap[ReferencePosition] 1..=256;
    /// Where an event has been, the latest first.
    EventHistory[EventPoint] 1..=23;
    /// A recommended way.
    ItineraryPath[ReferencePosition] 1..=40;
    /// Where somebody came from, the latest point first.
    PathHistory[PathPoint] 0..=40;
    /// Distances from the front to the pillars.
    PositionOfPillars[PosPillar] 1..=3 [extensible];
    /// The zones that a roadside unit knows.
    ProtectedCommunicationZonesRsu[ProtectedCommunicationZone] 1..=16;
    /// To which types of station a restriction applies.
    RestrictedTypes[StationType] 1..=3 [extensible];
    /// Ways to an event.
    Traces[PathHistory] 1..=7;
}

sequences! {
    /// An event, whoever speaks of it.
    #[derive(Copy, PartialOrd, Ord, Hash)]
    ActionId { originating_station_id: StationId, sequence_number: SequenceNumber }
    /// An altitude.
    #[derive(Copy, Hash)]
    Altitude { altitude_value: AltitudeValue, altitude_confidence: AltitudeConfidence }
    /// The curvature of a vehicle's way.
    #[derive(Copy, Hash)]
    Curvature { curvature_value: CurvatureValue, curvature_confidence: CurvatureConfidence }
    /// A position from a reference.
    #[derive(Copy, Hash)]
    DeltaReferencePosition {
        delta_latitude: DeltaLatitude,
        delta_longitude: DeltaLongitude,
        delta_altitude: DeltaAltitude,
    }
    /// Where an event was at some time, from where it is now or was a point later.
    #[derive(Copy, Hash)]
    EventPoint {
        event_position: DeltaReferencePosition,
        event_delta_time: Option<PathDeltaTime>,
        information_quality: InformationQuality,
    }
    /// A direction.
    #[derive(Copy, Hash)]
    Heading { heading_value: HeadingValue, heading_confidence: HeadingConfidence }
    /// What every ITS message begins with.
    #[derive(Copy, Hash)]
    ItsPduHeader { protocol_version: ProtocolVersion, message_id: MessageId, station_id: StationId }
    /// Across the vehicle.
    #[derive(Copy, Hash)]
    LateralAcceleration {
        lateral_acceleration_value: LateralAccelerationValue,
        lateral_acceleration_confidence: AccelerationConfidence,
    }
    /// Along the vehicle.
    #[derive(Copy, Hash)]
    LongitudinalAcceleration {
        longitudinal_acceleration_value: LongitudinalAccelerationValue,
        longitudinal_acceleration_confidence: AccelerationConfidence,
    }
    /// A point of a path, from the point before.
    #[derive(Copy, Hash)]
    PathPoint { path_position: DeltaReferencePosition, path_delta_time: Option<PathDeltaTime> }
    /// Where a position lies with 95 % confidence; the orientation is that of the longer axis.
    #[derive(Copy, Hash)]
    PosConfidenceEllipse {
        semi_major_confidence: SemiAxisLength,
        semi_minor_confidence: SemiAxisLength,
        semi_major_orientation: HeadingValue,
    }
    /// What a public transport vehicle asks of a traffic light.
    PtActivation { pt_activation_type: PtActivationType, pt_activation_data: PtActivationData }
    /// A position on the earth.
    #[derive(Copy, Hash)]
    ReferencePosition {
        latitude: Latitude,
        longitude: Longitude,
        position_confidence_ellipse: PosConfidenceEllipse,
        altitude: Altitude,
    }
    /// A speed.
    #[derive(Copy, Hash)]
    Speed { speed_value: SpeedValue, speed_confidence: SpeedConfidence }
    /// How the steering wheel stands.
    #[derive(Copy, Hash)]
    SteeringWheelAngle {
        steering_wheel_angle_value: SteeringWheelAngleValue,
        steering_wheel_angle_confidence: SteeringWheelAngleConfidence,
    }
    /// How long a vehicle is, with its trailer if there is one.
    #[derive(Copy, Hash)]
    VehicleLength {
        vehicle_length_value: VehicleLengthValue,
        vehicle_length_confidence_indication: VehicleLengthConfidenceIndication,
    }
    /// Upwards.
    #[derive(Copy, Hash)]
    VerticalAcceleration {
        vertical_acceleration_value: VerticalAccelerationValue,
        vertical_acceleration_confidence: AccelerationConfidence,
    }
    /// How fast a vehicle turns.
    #[derive(Copy, Hash)]
    YawRate { yaw_rate_value: YawRateValue, yaw_rate_confidence: YawRateConfidence }
}

extensible_sequences! {
    /// Why: the cause, and more precisely within it.
    #[derive(Copy, Hash)]
    CauseCode { cause_code: CauseCodeType, sub_cause_code: SubCauseCodeType }
    /// A tolling zone ahead.
    #[derive(Copy, Hash)]
    CenDsrcTollingZone {
        protected_zone_latitude: Latitude,
        protected_zone_longitude: Longitude,
        cen_dsrc_tolling_zone_id: Option<CenDsrcTollingZoneId>,
    }
    /// Which lanes are closed.
    #[derive(Copy, Hash)]
    ClosedLanes {
        innerhard_shoulder_status: Option<HardShoulderStatus>,
        outerhard_shoulder_status: Option<HardShoulderStatus>,
        driving_lane_status: Option<DrivingLaneStatus>,
    }
    /// What dangerous goods a vehicle carries.
    DangerousGoodsExtended {
        dangerous_goods_type: DangerousGoodsBasic,
        un_number: UnNumber,
        elevated_temperature: bool,
        tunnels_restricted: bool,
        limited_quantity: bool,
        emergency_action_code: Option<EmergencyActionCode>,
        phone_number: Option<PhoneNumber>,
        company_name: Option<CompanyName>,
    }
    /// A zone in which stations send less.
    #[derive(Copy, Hash)]
    ProtectedCommunicationZone {
        protected_zone_type: ProtectedZoneType,
        expiry_time: Option<TimestampIts>,
        protected_zone_latitude: Latitude,
        protected_zone_longitude: Longitude,
        protected_zone_radius: Option<ProtectedZoneRadius>,
        protected_zone_id: Option<ProtectedZoneId>,
    }
    /// Which vehicle it is.
    VehicleIdentification { wmi_number: Option<WmiNumber>, vds: Option<Vds> }
}
