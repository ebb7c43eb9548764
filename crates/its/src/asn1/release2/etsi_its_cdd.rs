//! `ETSI-ITS-CDD` (ETSI TS 102 894-2 V2.4.1).
//!
//! Generated from `asn1/release2/ETSI-ITS-CDD.asn` by `cargo xtask gen-asn1`.
//! The next run overwrites changes. `asn1/LICENSE` has the licence of ETSI's modules.

use crate::uper::macros::*;

/// This DE represents the ID of a CEN DSRC tolling zone.
pub type CenDsrcTollingZoneId = ProtectedZoneId;

/// This DE indicates whether a vehicle (e.g. public transport vehicle, truck) is under the embarkation
/// process. If that is the case, the value is \*TRUE\*, otherwise \*FALSE\*.
pub type EmbarkationStatus = bool;

/// The DF shall contain a list of @ref EventPoint, where all @ref EventPoint either contain the COMPONENT
/// eventDeltaTime or do not contain the COMPONENT eventDeltaTime.
pub type EventZone = EventHistory;

/// This DE indicates if a distance is safe.
pub type SafeDistanceIndicator = bool;

/// This DE represents the identifier of an ITS-S. The ITS-S ID may be a pseudonym. It may change over space
/// and/or over time.
pub type StationType = TrafficParticipantType;

integers! {
    /// This DE indicates the acceleration confidence value which represents the estimated absolute accuracy
    /// of an acceleration value with a default confidence level of 95 %. If required, the confidence level
    /// can be defined by the corresponding standards applying this DE.
    AccelerationConfidence(u8) 0..=102, default 102 { OUT_OF_RANGE = 101, UNAVAILABLE = 102 };
    /// This DE represents the magnitude of the acceleration vector in a defined coordinate system.
    AccelerationMagnitudeValue(u8) 0..=161, default 161 { POSITIVE_OUT_OF_RANGE = 160, UNAVAILABLE = 161 };
    /// This DE represents the value of an acceleration component in a defined coordinate system.
    AccelerationValue(i16) -160..=161, default 161 {
        NEGATIVE_OUT_OF_RANGE = -160,
        POSITIVE_OUT_OF_RANGE = 160,
        UNAVAILABLE = 161,
    };
    /// This DE represents the value of the sub cause code of the @ref CauseCode \`accident\`.
    AccidentSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        MULTI_VEHICLE_ACCIDENT = 1,
        HEAVY_ACCIDENT = 2,
        ACCIDENT_INVOLVING_LORRY = 3,
        ACCIDENT_INVOLVING_BUS = 4,
        ACCIDENT_INVOLVING_HAZARDOUS_MATERIALS = 5,
        ACCIDENT_ON_OPPOSITE_LANE_DEPRECATED = 6,
        UNSECURED_ACCIDENT = 7,
        ASSISTANCE_REQUESTED = 8,
    };
    /// This DE represents the value of the sub cause code of the @ref CauseCode \`adhesion\`.
    AdhesionSubCauseCode(u8) 0..=255, default 0 {
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
        FLOODING = 11,
        WATER_ON_ROAD = 12,
    };
    /// This DE represents the value of the sub cause codes of the @ref CauseCode
    /// \`adverseWeatherCondition-Precipitation\`.
    AdverseWeatherConditionPrecipitationSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        RAIN = 1,
        SNOWFALL = 2,
        HAIL = 3,
    };
    /// This DE represents the value of the sub cause codes of the @ref CauseCode
    /// \`adverseWeatherCondition-Visibility\`.
    AdverseWeatherConditionVisibilitySubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        FOG = 1,
        SMOKE = 2,
        SNOWFALL = 3,
        RAIN = 4,
        HAIL = 5,
        LOW_SUN_GLARE = 6,
        SANDSTORMS = 7,
        SWARMS_OF_INSECTS = 8,
    };
    /// This DE represents the value of the sub cause codes of the @ref CauseCode
    /// \`adverseWeatherCondition-Wind\`.
    AdverseWeatherConditionWindSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        STRONG_WINDS = 1,
        DAMAGING_HAIL_DEPRECATED = 2,
        HURRICANE = 3,
        THUNDERSTORM = 4,
        TORNADO = 5,
        BLIZZARD = 6,
    };
    /// This DE represents the air humidity in tenths of percent.
    AirHumidity(u16) 1..=1001, default 1001 { ONE_HUNDRED_PERCENT = 1000, UNAVAILABLE = 1001 };
    /// This DE represents the altitude value in a WGS84 coordinate system. The specific WGS84 coordinate
    /// system is specified by the corresponding standards applying this DE.
    AltitudeValue(i32) -100_000..=800_001, default 800_001 {
        NEGATIVE_OUT_OF_RANGE = -100_000,
        POSTIVE_OUT_OF_RANGE = 800_000,
        UNAVAILABLE = 800_001,
    };
    /// This DE indicates the angle confidence value which represents the estimated absolute accuracy of an
    /// angle value with a default confidence level of 95 %. If required, the confidence level can be defined
    /// by the corresponding standards applying this DE.
    AngleConfidence(u8) 1..=127, default 127 { OUT_OF_RANGE = 126, UNAVAILABLE = 127 };
    /// This DE indicates the number of axles of a passing train.
    AxlesCount(u16) 2..=1002, default 1002 { OUT_OF_RANGE = 1001, UNAVAILABLE = 1002 };
    /// This DE represents the measured uncompensated atmospheric pressure.
    BarometricPressure(u16) 2999..=12_002, default 12_002 {
        OUT_OF_RANGELOWER = 2999,
        OUT_OF_RANGE_UPPER = 12_001,
        UNAVAILABLE = 12_002,
    };
    /// This DE indicates the cardinal number of bogies of a train.
    BogiesCount(u8) 2..=101, default 101 { OUT_OF_RANGE = 100, UNAVAILABLE = 101 };
    /// The DE represents a cardinal number that counts the size of a set.
    CardinalNumber1B(u8) 0..=255, default 0;
    /// The DE represents a cardinal number that counts the size of a set.
    CardinalNumber3b(u8) 1..=8, default 1;
    /// This DE represents an angle value described in a local Cartesian coordinate system, per default
    /// counted positive in a right-hand local coordinate system from the abscissa.
    CartesianAngleValue(u16) 0..=3601, default 3601 { VALUE_NOT_USED = 3600, UNAVAILABLE = 3601 };
    /// This DE represents an angular acceleration value described in a local Cartesian coordinate system, per
    /// default counted positive in a right-hand local coordinate system from the abscissa.
    CartesianAngularAccelerationComponentValue(i16) -255..=256, default 256 {
        NEGATIVE_OUT_OF_RANGE = -255,
        POSITIVE_OUT_OF_RANGE = 255,
        UNAVAILABLE = 256,
    };
    /// This DE represents an angular velocity component described in a local Cartesian coordinate system, per
    /// default counted positive in a right-hand local coordinate system from the abscissa.
    CartesianAngularVelocityComponentValue(i16) -255..=256, default 256 {
        NEGATIVE_OUTOF_RANGE = -255,
        POSITIVE_OUT_OF_RANGE = 255,
        UNAVAILABLE = 256,
    };
    /// This DF represents the value of a cartesian coordinate with a range of -327,68 metres to +327,66
    /// metres.
    CartesianCoordinate(i16) -32_768..=32_767, default 0 {
        NEGATIVE_OUT_OF_RANGE = -32_768,
        POSITIVE_OUT_OF_RANGE = 32_767,
    };
    /// This DF represents the value of a cartesian coordinate with a range of -1 310,72 metres to +1 310,70
    /// metres.
    CartesianCoordinateLarge(i32) -131_072..=131_071, default 0 {
        NEGATIVE_OUT_OF_RANGE = -131_072,
        POSITIVE_OUT_OF_RANGE = 131_071,
    };
    /// This DF represents the value of a cartesian coordinate with a range of -30,94 metres to +10,00 metres.
    CartesianCoordinateSmall(i16) -3094..=1001, default 0 {
        NEGATIVE_OUT_OF_RANGE = -3094,
        POSITIVE_OUT_OF_RANGE = 1001,
    };
    /// The DE represents the value of the cause code of an event.
    CauseCodeType(u8) 0..=255, default 0 {
        TRAFFIC_CONDITION = 1,
        ACCIDENT = 2,
        ROADWORKS = 3,
        DETECTED_ROADWORKS = 4,
        IMPASSABILITY = 5,
        ADHESION = 6,
        AQUAPLANING = 7,
        HAZARDOUS_LOCATION_SURFACE_CONDITION = 9,
        HAZARDOUS_LOCATION_OBSTACLE_ON_THE_ROAD = 10,
        HAZARDOUS_LOCATION_ANIMAL_ON_THE_ROAD = 11,
        HUMAN_PRESENCE_ON_THE_ROAD = 12,
        WRONG_WAY_DRIVING = 14,
        RESCUE_RECOVERY_AND_MAINTENANCE_WORK_IN_PROGRESS = 15,
        ADVERSE_WEATHER_CONDITION_EXTREME_WEATHER_CONDITION = 17,
        ADVERSE_WEATHER_CONDITION_VISIBILITY = 18,
        ADVERSE_WEATHER_CONDITION_PRECIPITATION = 19,
        VIOLENCE = 20,
        SLOW_VEHICLE = 26,
        DANGEROUS_END_OF_QUEUE = 27,
        PUBLIC_TRANSPORT_VEHICLE_APPROACHING = 28,
        VEHICLE_BREAKDOWN = 91,
        POST_CRASH = 92,
        HUMAN_PROBLEM = 93,
        STATIONARY_VEHICLE = 94,
        EMERGENCY_VEHICLE_APPROACHING = 95,
        HAZARDOUS_LOCATION_DANGEROUS_CURVE = 96,
        COLLISION_RISK = 97,
        SIGNAL_VIOLATION = 98,
        DANGEROUS_SITUATION = 99,
        RAILWAY_LEVEL_CROSSING = 100,
    };
    /// This DE indicates the reason why a cluster leader intends to break up the cluster.
    ClusterBreakupReason(u8) 0..=15, default 0 {
        NOT_PROVIDED = 0,
        CLUSTERING_PURPOSE_COMPLETED = 1,
        LEADER_MOVED_OUT_OF_CLUSTER_BOUNDING_BOX = 2,
        JOINING_ANOTHER_CLUSTER = 3,
        ENTERING_LOW_RISK_AREA_BASED_ON_MAPS = 4,
        RECEPTION_OF_CPM_CONTAINING_CLUSTER = 5,
    };
    /// This DE indicates the reason why a cluster participant is leaving the cluster.
    ClusterLeaveReason(u8) 0..=15, default 0 {
        NOT_PROVIDED = 0,
        CLUSTER_LEADER_LOST = 1,
        CLUSTER_DISBANDED_BY_LEADER = 2,
        OUT_OF_CLUSTER_BOUNDING_BOX = 3,
        OUT_OF_CLUSTER_SPEED_RANGE = 4,
        JOINING_ANOTHER_CLUSTER = 5,
        CANCELLED_JOIN = 6,
        FAILED_JOIN = 7,
        SAFETY_CONDITION = 8,
    };
    /// This DE represents the sub cause codes of the @ref CauseCode \`collisionRisk\`.
    CollisionRiskSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        LONGITUDINAL_COLLISION_RISK = 1,
        CROSSING_COLLISION_RISK = 2,
        LATERAL_COLLISION_RISK = 3,
        VULNERABLE_ROAD_USER = 4,
        COLLISION_RISK_WITH_PEDESTRIAN = 5,
        COLLISION_RISK_WITH_CYCLIST = 6,
        COLLISION_RISK_WITH_MOTOR_VEHICLE = 7,
        ERRATIC_DRIVING = 8,
        RECKLESS_DRIVING = 9,
    };
    /// This DE represents a confidence level in percentage.
    ConfidenceLevel(u8) 1..=101, default 101 { UNAVAILABLE = 101 };
    /// This DE indicates the coordinate confidence value which represents the estimated absolute accuracy of
    /// a position coordinate with a default confidence level of 95 %. If required, the confidence level can
    /// be defined by the corresponding standards applying this DE.
    CoordinateConfidence(u16) 1..=4096, default 4096 { OUT_OF_RANGE = 4095, UNAVAILABLE = 4096 };
    /// This DE represents the Bravais-Pearson correlation value for each cell of a lower triangular
    /// correlation matrix.
    CorrelationCellValue(i8) -100..=101, default 101 {
        FULL_NEGATIVE_CORRELATION = -100,
        NO_CORRELATION = 0,
        FULL_POSITIVE_CORRELATION = 100,
        UNAVAILABLE = 101,
    };
    /// This DE describes vehicle turning curve with the following information: \`\`\` Value = 1 / Radius \*
    /// 10000 \`\`\` wherein radius is the vehicle turning curve radius in metres.
    CurvatureValue(i16) -1023..=1023, default 1023 {
        OUT_OF_RANGE_NEGATIVE = -1023,
        STRAIGHT = 0,
        OUT_OF_RANGE_POSITIVE = 1022,
        UNAVAILABLE = 1023,
    };
    /// This DE represents the value of the sub cause codes of the @ref CauseCode \`dangerousEndOfQueue\`.
    DangerousEndOfQueueSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        SUDDEN_END_OF_QUEUE = 1,
        QUEUE_OVER_HILL = 2,
        QUEUE_AROUND_BEND = 3,
        QUEUE_IN_TUNNEL = 4,
    };
    /// `unNumber` of [`DangerousGoodsExtended`].
    UnNumber(u16) 0..=9999, default 0;
    /// This DE represents the value of the sub cause codes of the @ref CauseCode \`dangerousSituation\`
    DangerousSituationSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        EMERGENCY_ELECTRONIC_BRAKE_ENGAGED = 1,
        PRE_CRASH_SYSTEM_ENGAGED = 2,
        ESP_ENGAGED = 3,
        ABS_ENGAGED = 4,
        AEB_ENGAGED = 5,
        BRAKE_WARNING_ENGAGED = 6,
        COLLISION_RISK_WARNING_ENGAGED = 7,
        RISK_MITIGATION_FUNCTION_ENGAGED = 8,
    };
    /// This DE represents an offset altitude with regards to a defined altitude value. It may be used to
    /// describe a geographical point with regards to a specific reference geographical position.
    DeltaAltitude(i16) -12_700..=12_800, default 12_800 {
        NEGATIVE_OUT_OF_RANGE = -12_700,
        POSITIVE_OUT_OF_RANGE = 12_799,
        UNAVAILABLE = 12_800,
    };
    /// This DE represents an offset latitude with regards to a defined latitude value. It may be used to
    /// describe a geographical point with regards to a specific reference geographical position.
    DeltaLatitude(i32) -131_071..=131_072, default 131_072 { UNAVAILABLE = 131_072 };
    /// This DE represents an offset longitude with regards to a defined longitude value. It may be used to
    /// describe a geographical point with regards to a specific reference geographical position.
    DeltaLongitude(i32) -131_071..=131_072, default 131_072 { UNAVAILABLE = 131_072 };
    /// This DE represents a difference in time with respect to a reference time.
    DeltaTimeMilliSecondPositive(u16) 1..=10_000, default 1;
    /// This DE represents a signed difference in time with respect to a reference time.
    DeltaTimeMilliSecondSigned(i16) -2048..=2047, default 0;
    /// This DE represents a difference in time with respect to a reference time. It can be interpreted as the
    /// first 8 bits of a GenerationDeltaTime. To convert it to a @ref GenerationDeltaTime, multiply by 256
    /// (i.e. append a \`00\` byte)
    DeltaTimeQuarterSecond(u8) 1..=255, default 255 { UNAVAILABLE = 255 };
    /// This DE represents a difference in time with respect to a reference time.
    DeltaTimeSecond(u32) 0..=86_400, default 0;
    /// This DE represents a difference in time with respect to a reference time.
    DeltaTimeTenSeconds(u8) 0..=127, default 0;
    /// This DE represents a difference in time with respect to a reference time.
    DeltaTimeTenthOfSecond(u8) 0..=127, default 127 { UNAVAILABLE = 127 };
    /// This DE indicates a direction with respect to a defined reference direction. Example: a reference
    /// direction may be implicitly defined by the definition of a geographical zone.
    Direction(u8) 0..=3, default 3 {
        SAME_DIRECTION = 0,
        OPPOSITE_DIRECTION = 1,
        BOTH_DIRECTIONS = 2,
        UNAVAILABLE = 3,
    };
    /// This DE represents the value of the sub cause codes of the @ref CauseCode
    /// "emergencyVehicleApproaching".
    EmergencyVehicleApproachingSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        EMERGENCY_VEHICLE_APPROACHING = 1,
        PRIORITIZED_VEHICLE_APPROACHING = 2,
    };
    /// `content` of [`Ext1`].
    Content(u16) 128..=16_511, default 128;
    /// `content` of [`Ext2`].
    Ext2Content(u32) 16_512..=2_113_663, default 16_512;
    /// `Ext3` of `ETSI-ITS-CDD`.
    Ext3(u32) 2_113_664..=270_549_119 [extensible], default 2_113_664;
    /// This DE represents a timestamp based on TimestampIts modulo 65 536. This means that
    /// generationDeltaTime = TimestampIts mod 65 536.
    GenerationDeltaTime(u16) 0..=65_535, default 0 { ONE_MILLI_SEC = 1 };
    /// This DE represents the value of the sub cause code of the @ref CauseCode
    /// \`hazardousLocation-AnimalOnTheRoad\`.
    HazardousLocationAnimalOnTheRoadSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        WILD_ANIMALS = 1,
        HERD_OF_ANIMALS = 2,
        SMALL_ANIMALS = 3,
        LARGE_ANIMALS = 4,
        WILD_ANIMALS_SMALL = 5,
        WILD_ANIMALS_LARGE = 6,
        DOMESTIC_ANIMALS = 7,
        DOMESTIC_ANIMALS_SMALL = 8,
        DOMESTIC_ANIMALS_LARGE = 9,
    };
    /// This DE represents the sub cause code of the @ref CauseCode \`hazardousLocation-DangerousCurve\`.
    HazardousLocationDangerousCurveSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        DANGEROUS_LEFT_TURN_CURVE = 1,
        DANGEROUS_RIGHT_TURN_CURVE = 2,
        MULTIPLE_CURVES_STARTING_WITH_UNKNOWN_TURNING_DIRECTION = 3,
        MULTIPLE_CURVES_STARTING_WITH_LEFT_TURN = 4,
        MULTIPLE_CURVES_STARTING_WITH_RIGHT_TURN = 5,
    };
    /// This DE represents the value of the sub cause code of the @ref CauseCode
    /// \`hazardousLocation-ObstacleOnTheRoad\`.
    HazardousLocationObstacleOnTheRoadSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        SHED_LOAD = 1,
        PARTS_OF_VEHICLES = 2,
        PARTS_OF_TYRES = 3,
        BIG_OBJECTS = 4,
        FALLEN_TREES = 5,
        HUB_CAPS = 6,
        WAITING_VEHICLES_DEPRECATED = 7,
    };
    /// This DE represents the value of the sub cause code of the @ref CauseCode
    /// \`hazardousLocation-SurfaceCondition\`.
    HazardousLocationSurfaceConditionSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        ROCKFALLS = 1,
        EARTHQUAKE_DAMAGE_DEPRECATED = 2,
        SINKHOLE = 3,
        SUBSIDENCE = 4,
        SNOW_DRIFTS_DEPRECATED = 5,
        STORM_DAMAGE_DEPRECATED = 6,
        BURST_PIPE_DEPRECATED = 7,
        LAVA = 8,
        FALLING_ICE_DEPRECATED = 9,
        FIRE = 10,
        FLOODING_DEPRECATED = 11,
        WEAR_AND_TEAR = 12,
    };
    /// This DE indicates the heading confidence value which represents the estimated absolute accuracy of a
    /// heading value with a confidence level of 95 %.
    HeadingConfidence(u8) 1..=127, default 127 { OUT_OF_RANGE = 126, UNAVAILABLE = 127 };
    /// This DE represents the orientation of the horizontal velocity vector with regards to the WGS84 north.
    /// When the information is not available, the DE shall be set to 3 601. The value 3600 shall not be used.
    HeadingValue(u16) 0..=3601, default 3601 {
        WGS84_NORTH = 0,
        WGS84_EAST = 900,
        WGS84_SOUTH = 1800,
        WGS84_WEST = 2700,
        DO_NOT_USE = 3600,
        UNAVAILABLE = 3601,
    };
    /// This DE represents the height of the left or right longitude carrier of vehicle from base to top (left
    /// or right carrier seen from vehicle rear to front).
    HeightLonCarr(u8) 1..=100, default 100 { OUT_OF_RANGE = 99, UNAVAILABLE = 100 };
    /// This DE represents the value of the sub cause code of the @ref CauseCode \`humanPresenceOnTheRoad\`.
    HumanPresenceOnTheRoadSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        CHILDREN_ON_ROADWAY = 1,
        CYCLIST_ON_ROADWAY = 2,
        MOTORCYCLIST_ON_ROADWAY = 3,
        PEDESTRIAN = 4,
        ORDINARY_PEDESTRIAN = 5,
        ROAD_WORKER = 6,
        FIRST_RESPONDER = 7,
        LIGHT_VRU_VEHICLE = 8,
        BICYCLIST = 9,
        WHEELCHAIR_USER = 10,
        HORSE_AND_RIDER = 11,
        ROLLERSKATER = 12,
        E_SCOOTER = 13,
        PERSONAL_TRANSPORTER = 14,
        PEDELEC = 15,
        SPEED_PEDELEC = 16,
        PTW = 17,
        MOPED = 18,
        MOTORCYCLE = 19,
        MOTORCYCLE_AND_SIDECAR_RIGHT = 20,
        MOTORCYCLE_AND_SIDECAR_LEFT = 21,
    };
    /// This DE represents the value of the sub cause codes of the @ref CauseCode "humanProblem".
    HumanProblemSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        GLYCEMIA_PROBLEM = 1,
        HEART_PROBLEM = 2,
        UNRESPONSIVE_DRIVER = 3,
    };
    /// This DE is a general identifier.
    Identifier1B(u8) 0..=255, default 0;
    /// This DE is a general identifier.
    Identifier2B(u16) 0..=65_535, default 0;
    /// This DE represents the value of the sub cause codes of the @ref CauseCode \`impassability\`
    ImpassabilitySubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        FLOODING = 1,
        DANGER_OF_AVALANCHES = 2,
        BLASTING_OF_AVALANCHES = 3,
        LANDSLIPS = 4,
        CHEMICAL_SPILLAGE = 5,
        WINTER_CLOSURE = 6,
        SINKHOLE = 7,
        EARTHQUAKE_DAMAGE = 8,
        FALLEN_TREES = 9,
        ROCKFALLS = 10,
        SEWER_OVERFLOW = 11,
        STORM_DAMAGE = 12,
        SUBSIDENCE = 13,
        BURST_PIPE = 14,
        BURST_WATER_MAIN = 15,
        FALLEN_POWER_CABLES = 16,
        SNOW_DRIFTS = 17,
    };
    /// This DE represents the quality level of provided information.
    InformationQuality(u8) 0..=7, default 0;
    /// `centreFrequency` of [`InterferenceManagementChannel`].
    CentreFrequency(u32) 1..=99_999, default 1;
    /// `channelWidth` of [`InterferenceManagementChannel`].
    ChannelWidth(u16) 0..=9999, default 0;
    /// `exponent` of [`InterferenceManagementChannel`].
    Exponent(u8) 0..=15, default 0;
    /// This DE represents the vehicle type according to ISO 3833 \[22\]. A "term No" refers to the number of
    /// the corresponding term and its definition in ISO 3833.
    Iso3833VehicleType(u8) 0..=255, default 0 {
        PASSENGER_CAR = 0,
        SALOON = 1,
        CONVERTIBLE_SALOON = 2,
        PULLMAN_SALOON = 3,
        STATION_WAGON = 4,
        TRUCK_STATION_WAGON = 5,
        COUPE = 6,
        CONVERTIBLE = 7,
        MULTIPURPOSE_PASSENGER_CAR = 8,
        FORWARD_CONTROL_PASSENGER_CAR = 9,
        SPECIAL_PASSENGER_CAR = 10,
        BUS = 11,
        MINIBUS = 12,
        URBAN_BUS = 13,
        INTERURBAN_COACH = 14,
        LONG_DISTANCE_COACH = 15,
        ARTICULATED_BUS = 16,
        TROLLEY_BUS = 17,
        SPECIAL_BUS = 18,
        COMMERCIAL_VEHICLE = 19,
        SPECIAL_COMMERCIAL_VEHICLE = 20,
        SPECIAL_VEHICLE = 21,
        TRAILING_TOWING_VEHICLE = 22,
        SEMI_TRAILER_TOWING_VEHICLE = 23,
        TRAILER = 24,
        BUS_TRAILER = 25,
        GENERAL_PURPOSE_TRAILER = 26,
        CARAVAN = 27,
        SPECIAL_TRAILER = 28,
        SEMI_TRAILER = 29,
        BUS_SEMI_TRAILER = 30,
        GENERAL_PURPOSE_SEMI_TRAILER = 31,
        SPECIAL_SEMI_TRAILER = 32,
        ROAD_TRAIN = 33,
        PASSENGER_ROAD_TRAIN = 34,
        ARTICULATED_ROAD_TRAIN = 35,
        DOUBLE_ROAD_TRAIN = 36,
        COMPOSITE_ROAD_TRAIN = 37,
        SPECIAL_ROAD_TRAIN = 38,
        MOPED = 39,
        MOTOR_CYCLE = 40,
    };
    /// This DE represent the identifier of an organization according to the applicable registry.
    IssuerIdentifier(u16) 0..=16_383, default 0;
    /// This DE represents the identifier of the IVIM.
    IviIdentificationNumber(u32) 1..=32_767 [extensible], default 1;
    /// This DE indicates a transversal position on the carriageway at a specific longitudinal position, in
    /// resolution of lanes of the carriageway.
    LanePosition(i8) -1..=14, default 0 {
        OFF_THE_ROAD = -1,
        INNER_HARD_SHOULDER = 0,
        OUTER_HARD_SHOULDER = 14,
    };
    /// This DE represents the type of a lane.
    LaneType(u8) 0..=31, default 0 {
        TRAFFIC = 0,
        THROUGH = 1,
        REVERSIBLE = 2,
        ACCELERATION = 3,
        DECELERATION = 4,
        LEFT_HAND_TURNING = 5,
        RIGHT_HAND_TURNING = 6,
        DEDICATED_VEHICLE = 7,
        BUS = 8,
        TAXI = 9,
        HOV = 10,
        HOT = 11,
        PEDESTRIAN = 12,
        CYCLE_LANE = 13,
        MEDIAN = 14,
        STRIPING = 15,
        TRACKED_VEHICLE = 16,
        PARKING = 17,
        EMERGENCY = 18,
        VERGE = 19,
        MINIMUM_RISK_MANOEUVRE = 20,
        EXCLUSIVE_CYCLE_LANE = 21,
        UNKNOWN = 31,
    };
    /// This DE represents the width of a lane measured at a defined position.
    LaneWidth(u16) 0..=1023, default 0;
    /// This DE represents the vehicle acceleration at lateral direction in the centre of the mass of the
    /// empty vehicle. It corresponds to the vehicle coordinate system as specified in ISO 8855 \[21\].
    LateralAccelerationValue(i16) -160..=161, default 161 {
        NEGATIVE_OUT_OF_RANGE = -160,
        POSITIVE_OUT_OF_RANGE = 160,
        UNAVAILABLE = 161,
    };
    /// This DE represents the absolute geographical latitude in a WGS84 coordinate system, providing a range
    /// of 90 degrees in north or in south hemisphere. The specific WGS84 coordinate system is specified by
    /// the corresponding standards applying this DE.
    Latitude(i32) -900_000_000..=900_000_001, default 900_000_001 { UNAVAILABLE = 900_000_001 };
    /// This DE represents the absolute geographical longitude in a WGS84 coordinate system, providing a range
    /// of 180 degrees to the east or to the west of the prime meridian. The specific WGS84 coordinate system
    /// is specified by the corresponding standards applying this DE.
    Longitude(i32) -1_800_000_000..=1_800_000_001, default 1_800_000_001 {
        VALUE_NOT_USED = -1_800_000_000,
        UNAVAILABLE = 1_800_000_001,
    };
    /// This DE represents the vehicle acceleration at longitudinal direction in the centre of the mass of the
    /// empty vehicle.
    LongitudinalAccelerationValue(i16) -160..=161, default 161 {
        NEGATIVE_OUT_OF_RANGE = -160,
        POSITIVE_OUT_OF_RANGE = 160,
        UNAVAILABLE = 161,
    };
    /// This DE indicates the longitudinal lane position confidence value which represents the estimated
    /// accuracy of longitudinal lane position measurement with a default confidence level of 95 %. If
    /// required, the confidence level can be defined by the corresponding standards applying this DE.
    LongitudinalLanePositionConfidence(u16) 0..=1023, default 1023 {
        OUT_OF_RANGE = 1022,
        UNAVAILABLE = 1023,
    };
    /// This DE represents the longitudinal offset of a map-matched position along a matched lane, beginning
    /// from the lane's starting point.
    LongitudinalLanePositionValue(u16) 0..=32_767, default 32_767 {
        OUT_OF_RANGE = 32_766,
        UNAVAILABLE = 32_767,
    };
    /// This DE represents the type of facility layer message.
    MessageId(u8) 0..=255, default 0 {
        DENM = 1,
        CAM = 2,
        POIM = 3,
        SPATEM = 4,
        MAPEM = 5,
        IVIM = 6,
        RFU1 = 7,
        RFU2 = 8,
        SREM = 9,
        SSEM = 10,
        EVCSN = 11,
        SAEM = 12,
        RTCMEM = 13,
        CPM = 14,
        IMZM = 15,
        VAM = 16,
        DSM = 17,
        MIM = 18,
        MVM = 19,
        MCM = 20,
        PIM = 21,
    };
    /// `mantissa` of [`MessageRateHz`].
    Mantissa(u8) 1..=100, default 1;
    /// `exponent` of [`MessageRateHz`].
    MessageRateHzExponent(i8) -5..=2, default 0;
    /// `lowDutyCycle` of [`MitigationPerTechnologyClass`].
    LowDutyCycle(u16) 0..=10_000, default 0;
    /// `powerReduction` of [`MitigationPerTechnologyClass`].
    PowerReduction(u8) 0..=30, default 0;
    /// `dmcToffLimit` of [`MitigationPerTechnologyClass`].
    DmcToffLimit(u16) 0..=1200, default 0;
    /// `dmcTonLimit` of [`MitigationPerTechnologyClass`].
    DmcTonLimit(u8) 0..=20, default 0;
    /// This DE represents the number of occupants in a vehicle.
    NumberOfOccupants(u8) 0..=127, default 127 { OUT_OF_RANGE = 126, UNAVAILABLE = 127 };
    /// `vehicleSubClass` of [`ObjectClass`].
    VehicleSubClass(u8) 0..=14, default 0 {
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
        SPECIAL_VEHICLE = 10,
        TRAM = 11,
        LIGHT_VRU_VEHICLE = 12,
        ANIMAL = 13,
        AGRICULTURAL = 14,
    };
    /// This DE indicates the object dimension confidence value which represents the estimated absolute
    /// accuracy of an object dimension value with a default confidence level of 95 %. If required, the
    /// confidence level can be defined by the corresponding standards applying this DE.
    ObjectDimensionConfidence(u8) 1..=32, default 32 { OUT_OF_RANGE = 31, UNAVAILABLE = 32 };
    /// This DE represents a single dimension of an object.
    ObjectDimensionValue(u16) 1..=256, default 256 { OUT_OF_RANGE = 255, UNAVAILABLE = 256 };
    /// This DE represents a single-value indication about the overall information quality of a perceived
    /// object.
    ObjectPerceptionQuality(u8) 0..=15, default 0 { NO_CONFIDENCE = 0, FULL_CONFIDENCE = 15 };
    /// The DE represents an ordinal number that indicates the position of an element in a set.
    OrdinalNumber1B(u8) 0..=255, default 0;
    /// The DE represents an ordinal number that indicates the position of an element in a set.
    OrdinalNumber3b(u8) 1..=8, default 1;
    /// This DE indicates the subclass of a detected object for @ref ObjectClass "otherSubclass".
    OtherSubClass(u8) 0..=255, default 0 {
        UNKNOWN = 0,
        SINGLE_OBJECT = 1,
        MULTIPLE_OBJECTS = 2,
        BULK_MATERIAL = 3,
    };
    /// This DE indicates the arrangement of parking space in a parking area.
    ParkingAreaArrangementType(u8) 0..=7, default 0 {
        PARALLEL_PARKING_SPACE = 0,
        DIAGONAL_PARKING_SPACE = 1,
        PERPENDICULAR_PARKING_SPACE = 2,
        QUEUE_PARKING = 3,
        MIXED = 4,
        UNKNOWN = 7,
    };
    /// This DE indicates the type of a reservation of a parking space/area.
    ParkingReservationType(u8) 0..=31, default 0 {
        DISABLED = 0,
        PREGNANT = 1,
        WOMEN_ONLY = 2,
        PARENT_AND_CHILD = 3,
        LOAD_AND_OFFLOAD_GOODS = 4,
        MANUAL_ELECTRIC_VEHICLE_CHARGING = 5,
        AUTOMATED_ELECTRIC_VEHICLE_CHARGING = 6,
        REFRIFERATED_TRANSPORT = 7,
        VIP = 8,
        PRE_BOOKING = 9,
        FREE_TO_BE_RESERVED = 10,
        RESERVATION_NOT_POSSIBLE = 11,
        AUTOMATED_VALETPARKING = 12,
        PERMIT = 13,
        UNMARKED = 14,
    };
    /// `partiallyOccupied` of [`ParkingSpaceStatus`].
    PartiallyOccupied(u8) 0..=100, default 0;
    /// This DE represents the recorded or estimated travel time between a position and a predefined reference
    /// position.
    PathDeltaTime(u32) 1..=65_535 [extensible], default 1;
    /// `pointOfEventZone` of [`PathExtended`].
    PointOfEventZone(u8) 1..=23, default 1;
    /// This DE indicates an ordinal number that represents the position of a component in the list of @ref
    /// Traces or @ref TracesExtended.
    PathId(u8) 0..=14, default 0 {
        NO_PATH = 0,
        PATH1 = 1,
        PATH2 = 2,
        PATH3 = 3,
        PATH4 = 4,
        PATH5 = 5,
        PATH6 = 6,
        PATH7 = 7,
        PATH_EXTENDED1 = 8,
        PATH_EXTENDED2 = 9,
        PATH_EXTENDED3 = 10,
        PATH_EXTENDED4 = 11,
        PATH_EXTENDED5 = 12,
        PATH_EXTENDED6 = 13,
        PATH_EXTENDED7 = 14,
    };
    /// This DE represents the position of a vehicle pedal (e.g. brake or accelerator pedal).
    PedalPositionValue(u8) 0..=11, default 11 { NOT_PRESSED = 0, FULLY_PRESSED = 10, UNAVAILABLE = 11 };
    /// `objectAge` of [`PerceivedObject`].
    ObjectAge(u16) 0..=2047, default 0;
    /// This DE denotes the ability of an ITS-S to provide information fullfilling additional requirements. A
    /// performance class value is used to describe characteristics of data. The semantic defintion of the
    /// values are out of scope of the present document and should be subject to profiling.
    PerformanceClass(u8) 0..=7, default 0 {
        UNAVAILABLE = 0,
        PERFORMANCE_CLASS_A = 1,
        PERFORMANCE_CLASS_B = 2,
    };
    /// This DE indicates the perpendicular distance from the centre of mass of an empty load vehicle to the
    /// front line of the vehicle bounding box of the empty load vehicle.
    PosCentMass(u8) 1..=63, default 63 { TEN_CENTIMETRES = 1, OUT_OF_RANGE = 62, UNAVAILABLE = 63 };
    /// This DE indicates the perpendicular distance between the vehicle front line of the bounding box and
    /// the front wheel axle in 0,1 metre.
    PosFrontAx(u8) 1..=20, default 20 { OUT_OF_RANGE = 19, UNAVAILABLE = 20 };
    /// This DE represents the distance from the centre of vehicle front bumper to the right or left
    /// longitudinal carrier of vehicle. The left/right carrier refers to the left/right as seen from a
    /// passenger sitting in the vehicle.
    PosLonCarr(u8) 1..=127, default 127 { OUT_OF_RANGE = 126, UNAVAILABLE = 127 };
    /// This DE represents the perpendicular inter-distance of neighbouring pillar axis of vehicle starting
    /// from the middle point of the front line of the vehicle bounding box.
    PosPillar(u8) 1..=30, default 30 { OUT_OF_RANGE = 29, UNAVAILABLE = 30 };
    /// This DE represents a position along a single dimension such as the middle of a road or lane, measured
    /// as an offset from an externally defined starting point, in direction of an externally defined
    /// reference direction.
    Position1d(i16) -8190..=8191, default 8191 { OUT_OF_RANGE = 8190, UNAVAILABLE = 8191 };
    /// This DE represents the value of the sub cause codes of the @ref CauseCode \`postCrash\` .
    PostCrashSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        ACCIDENT_WITHOUT_E_CALL_TRIGGERED = 1,
        ACCIDENT_WITH_E_CALL_MANUALLY_TRIGGERED = 2,
        ACCIDENT_WITH_E_CALL_AUTOMATICALLY_TRIGGERED = 3,
        ACCIDENT_WITH_E_CALL_TRIGGERED_WITHOUT_ACCESS_TO_CELLULAR_NETWORK = 4,
    };
    /// This DE represent the total amount of rain falling during one hour. It is measured in mm per hour at
    /// an area of 1 square metre.
    PrecipitationIntensity(u16) 1..=2001, default 2001 { OUT_OF_RANGE = 2000, UNAVAILABLE = 2001 };
    /// This DE represents the indentifier of a protected communication zone.
    ProtectedZoneId(u32) 0..=134_217_727, default 0;
    /// This DE represents the radius of a protected communication zone.
    ProtectedZoneRadius(u32) 1..=255 [extensible], default 1;
    /// This DE indicates a certain coding type of the PtActivationData data.
    PtActivationType(u8) 0..=255, default 0 {
        UNDEFINED_CODING_TYPE = 0,
        R09_16_CODING_TYPE = 1,
        VDV_50149_CODING_TYPE = 2,
    };
    /// This DE represents the value of the sub cause codes of the @ref CauseCode \`railwayLevelCrossing\` .
    RailwayLevelCrossingSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        DO_NOT_CROSS_ABNORMAL_SITUATION = 1,
        CLOSED = 2,
        UNGUARDED = 3,
        NOMINAL = 4,
        TRAIN_APPROACHING = 5,
    };
    /// This DE represents the value of the sub cause codes of the @ref CauseCode
    /// \`RescueRecoveryAndMaintenanceWorkInProgressSubCauseCode\`
    RescueRecoveryAndMaintenanceWorkInProgressSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        EMERGENCY_VEHICLES = 1,
        RESCUE_HELICOPTER_LANDING = 2,
        POLICE_ACTIVITY_ONGOING = 3,
        MEDICAL_EMERGENCY_ONGOING = 4,
        CHILD_ABDUCTION_IN_PROGRESS_DEPRECATED = 5,
        PRIORITIZED_VEHICLE = 6,
        RESCUE_AND_RECOVERY_VEHICLE = 7,
    };
    /// This DE indicates an ordinal number that represents the position of a component in the list @ref
    /// RoadConfigurationSectionList.
    RoadSectionId(u32) 0..=8 [extensible], default 0;
    /// This DE represents the value of the sub cause codes of the @ref CauseCode \`roadworks\`.
    RoadworksSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        ROAD_OR_CARRIAGEWAY_CLOSURE = 1,
        ROAD_MARKING_WORK_DEPRECATED = 2,
        MOVING_LANE_CLOSURE = 3,
        STATIONARY_LANE_CLOSURE = 4,
        STREET_CLEANING_DEPRECATED = 5,
        WINTER_SERVICE_DEPRECATED = 6,
        SETUP_PHASE = 7,
        REMODELLING_PHASE = 8,
        DISMANTLING_PHASE = 9,
        CARRIAGEWAY_CROSSOVER = 10,
    };
    /// This DE indicates the driving automation level as defined in SAE J3016 \[26\].
    SaeAutomationLevel(u8) 0..=5, default 0;
    /// `SemiAxisLength` of `ETSI-ITS-CDD`.
    SemiAxisLength(u16) 0..=4095, default 4095 { DO_NOT_USE = 0, OUT_OF_RANGE = 4094, UNAVAILABLE = 4095 };
    /// This DE indicates the type of sensor.
    SensorType(u8) 0..=31, default 0 {
        UNDEFINED = 0,
        RADAR = 1,
        LIDAR = 2,
        MONOVIDEO = 3,
        STEREOVISION = 4,
        NIGHTVISION = 5,
        ULTRASONIC = 6,
        PMD = 7,
        INDUCTION_LOOP = 8,
        SPHERICAL_CAMERA = 9,
        UWB = 10,
        ACOUSTIC = 11,
        LOCAL_AGGREGATION = 12,
        ITS_AGGREGATION = 13,
        RFID = 14,
    };
    /// This DE represents a sequence number.
    SequenceNumber(u16) 0..=65_535, default 0;
    /// This DE represents the value of the sub cause codes of the @ref CauseCode \`signalViolation\`.
    SignalViolationSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        STOP_SIGN_VIOLATION = 1,
        TRAFFIC_LIGHT_VIOLATION = 2,
        TURNING_REGULATION_VIOLATION = 3,
    };
    /// This DE represents the sub cause codes of the @ref CauseCode "slowVehicle".
    SlowVehicleSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        MAINTENANCE_VEHICLE = 1,
        VEHICLES_SLOWING_TO_LOOK_AT_ACCIDENT = 2,
        ABNORMAL_LOAD = 3,
        ABNORMAL_WIDE_LOAD = 4,
        CONVOY = 5,
        WINTER_MAINTENANCE_SNOWPLOUGH = 6,
        DEICING_DEPRECATED = 7,
        WINTER_MAINTENANCE_ADHESION_IMPROVEMENT = 8,
    };
    /// This DE indicates the speed confidence value which represents the estimated absolute accuracy of a
    /// speed value with a default confidence level of 95 %. If required, the confidence level can be defined
    /// by the corresponding standards applying this DE.
    SpeedConfidence(u8) 1..=127, default 127 { OUT_OF_RANGE = 126, UNAVAILABLE = 127 };
    /// This DE represents a speed limitation applied to a geographical position, a road section or a
    /// geographical region.
    SpeedLimit(u8) 1..=255, default 1;
    /// This DE represents a speed value, i.e. the magnitude of the velocity-vector.
    SpeedValue(u16) 0..=16_383, default 16_383 {
        STANDSTILL = 0,
        OUT_OF_RANGE = 16_382,
        UNAVAILABLE = 16_383,
    };
    /// This DE indicates the estimated probability of a stability level and conversely also the probability
    /// of a stability loss.
    StabilityLossProbability(u8) 0..=63, default 63 {
        STABLE = 0,
        TOTAL_LOSS_OF_STABILITY = 50,
        UNAVAILABLE = 63,
    };
    /// The DE represents length as a measure of distance between points or as a dimension of an object or
    /// shape.
    StandardLength12b(u16) 0..=4095, default 0;
    /// The DE represents length as a measure of distance between points or as a dimension of an object.
    StandardLength1B(u8) 0..=255, default 0;
    /// The DE represents length as a measure of distance between points or as a dimension of an object.
    StandardLength2B(u16) 0..=65_535, default 0;
    /// The DE represents length as a measure of distance between points or as a dimension of an object.
    StandardLength9b(u16) 0..=511, default 0;
    /// This DE represents the identifier of an ITS-S. The ITS-S ID may be a pseudonym. It may change over
    /// space and/or over time.
    StationId(u32) 0..=4_294_967_295, default 0;
    /// This DE provides the value of the sub cause codes of the @ref CauseCode "stationaryVehicle".
    StationaryVehicleSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        HUMAN_PROBLEM_DEPRECATED = 1,
        VEHICLE_BREAKDOWN = 2,
        POST_CRASH = 3,
        PUBLIC_TRANSPORT_STOP = 4,
        CARRYING_DANGEROUS_GOODS = 5,
        VEHICLE_ON_FIRE = 6,
    };
    /// This DE indicates the steering wheel angle confidence value which represents the estimated absolute
    /// accuracy for a steering wheel angle value with a confidence level of 95 %.
    SteeringWheelAngleConfidence(u8) 1..=127, default 127 { OUT_OF_RANGE = 126, UNAVAILABLE = 127 };
    /// This DE represents the steering wheel angle of the vehicle at certain point in time.
    SteeringWheelAngleValue(i16) -511..=512, default 512 {
        NEGATIVE_OUT_OF_RANGE = -511,
        POSITIVE_OUT_OF_RANGE = 511,
        UNAVAILABLE = 512,
    };
    /// This DE indicates the generic sub cause of a detected event.
    SubCauseCodeType(u8) 0..=255, default 0;
    /// This DE indicates a temperature value.
    Temperature(i8) -60..=67, default 0 {
        EQUAL_OR_SMALLER_THAN_MINUS60_DEG = -60,
        EQUAL_OR_GREATER_THAN67_DEG = 67,
    };
    /// This DE represents the number of elapsed (TAI) milliseconds since the ITS Epoch. The ITS epoch is
    /// \`00:00:00.000 UTC, 1 January 2004\`. "Elapsed" means that the true number of milliseconds is
    /// continuously counted without interruption, i.e. it is not altered by leap seconds, which occur in UTC.
    TimestampIts(u64) 0..=4_398_046_511_103, default 0;
    /// This DE represents the value of the sub cause codes of the @ref CauseCode \`trafficCondition\`.
    TrafficConditionSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        INCREASED_VOLUME_OF_TRAFFIC = 1,
        TRAFFIC_JAM_SLOWLY_INCREASING = 2,
        TRAFFIC_JAM_INCREASING = 3,
        TRAFFIC_JAM_STRONGLY_INCREASING = 4,
        TRAFFIC_JAM = 5,
        TRAFFIC_JAM_SLIGHTLY_DECREASING = 6,
        TRAFFIC_JAM_DECREASING = 7,
        TRAFFIC_JAM_STRONGLY_DECREASING = 8,
        TRAFFIC_JAM_STABLE = 9,
    };
    /// This DE represents the type of a traffic participant.
    TrafficParticipantType(u8) 0..=255, default 0 {
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
        SPECIAL_VEHICLE = 10,
        TRAM = 11,
        LIGHT_VRU_VEHICLE = 12,
        ANIMAL = 13,
        AGRICULTURAL = 14,
        INFRASTRUCTURE = 15,
    };
    /// This DE defines the confidence level of the trajectoryInterceptionProbability.
    TrajectoryInterceptionConfidence(u8) 0..=3, default 0 {
        LESSTHAN50PERCENT = 0,
        BETWEEN50AND70_PERCENT = 1,
        BETWEEN70AND90_PERCENT = 2,
        ABOVE90_PERCENT = 3,
    };
    /// This DE defines the probability that the ego trajectory intercepts with any other object's trajectory
    /// on the road.
    TrajectoryInterceptionProbability(u8) 0..=63, default 63 { UNAVAILABLE = 63 };
    /// This DE represents the time interval between two consecutive message transmissions.
    TransmissionInterval(u16) 1..=10_000, default 1;
    /// This DE represents the smallest circular turn (i.e. U-turn) that the vehicle is capable of making.
    TurningRadius(u8) 1..=255, default 255 { OUT_OF_RANGE = 254, UNAVAILABLE = 255 };
    /// This DE represents the duration of a traffic event validity.
    ValidityDuration(u32) 0..=86_400, default 600 { TIME_OF_DETECTION = 0, ONE_SECOND_AFTER_DETECTION = 1 };
    /// `content` of [`VarLengthNumber`].
    VarLengthNumberContent(u8) 0..=127, default 0;
    /// This DE represents the value of the sub cause codes of the @ref CauseCode \`vehicleBreakdown\`.
    VehicleBreakdownSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        LACK_OF_FUEL = 1,
        LACK_OF_BATTERY_POWER = 2,
        ENGINE_PROBLEM = 3,
        TRANSMISSION_PROBLEM = 4,
        ENGINE_COOLING_PROBLEM = 5,
        BRAKING_SYSTEM_PROBLEM = 6,
        STEERING_PROBLEM = 7,
        TYRE_PUNCTURE_DEPRECATED = 8,
        TYRE_PRESSURE_PROBLEM = 9,
        VEHICLE_ON_FIRE = 10,
    };
    /// This DE represents the height of the vehicle, measured from the ground to the highest point, excluding
    /// any antennas. In case vehicles are equipped with adjustable ride heights, camper shells, and any other
    /// equipment which may result in varying height, the largest possible height shall be used.
    VehicleHeight(u8) 1..=128, default 127 { OUT_OF_RANGE = 126, UNAVAILABLE = 127 };
    /// This DE represents the height of the vehicle, measured from the ground to the highest point, excluding
    /// any antennas. In case vehicles are equipped with adjustable ride heights, camper shells, and any other
    /// equipment which may result in varying height, the largest possible height shall be used.
    VehicleHeight2(u8) 1..=62, default 62 { OUT_OF_RANGE = 61, UNAVAILABLE = 62 };
    /// This DE represents the length of a vehicle.
    VehicleLengthValue(u16) 1..=1023, default 1023 { OUT_OF_RANGE = 1022, UNAVAILABLE = 1023 };
    /// This DE represents the mass of an empty loaded vehicle.
    VehicleMass(u16) 1..=1024, default 1024 { OUT_OF_RANGE = 1023, UNAVAILABLE = 1024 };
    /// This DE represents the width of a vehicle, excluding side mirrors and possible similar extensions.
    VehicleWidth(u8) 1..=62, default 62 { OUT_OF_RANGE = 61, UNAVAILABLE = 62 };
    /// This DE represents the value of a velocity component in a defined coordinate system.
    VelocityComponentValue(i16) -16_383..=16_383, default 16_383 {
        NEGATIVE_OUT_OF_RANGE = -16_383,
        POSITIVE_OUT_OF_RANGE = 16_382,
        UNAVAILABLE = 16_383,
    };
    /// This DE represents the vehicle acceleration at vertical direction in the centre of the mass of the
    /// empty vehicle.
    VerticalAccelerationValue(i16) -160..=161, default 161 {
        NEGATIVE_OUT_OF_RANGE = -160,
        POSITIVE_OUT_OF_RANGE = 160,
        UNAVAILABLE = 161,
    };
    /// This DE represents the possible usage conditions of the VRU device.
    VruDeviceUsage(u8) 0..=15, default 0 {
        UNAVAILABLE = 0,
        OTHER = 1,
        IDLE = 2,
        LISTENING_TO_AUDIO = 3,
        TYPING = 4,
        CALLING = 5,
        PLAYING_GAMES = 6,
        READING = 7,
        VIEWING = 8,
    };
    /// This DE represents the possible VRU environment conditions.
    VruEnvironment(u8) 0..=15, default 0 {
        UNAVAILABLE = 0,
        INTERSECTION_CROSSING = 1,
        ZEBRA_CROSSING = 2,
        SIDEWALK = 3,
        ON_VEHICLE_ROAD = 4,
        PROTECTED_GEOGRAPHIC_AREA = 5,
    };
    /// This DE indicates the status of the possible human control over a VRU vehicle.
    VruMovementControl(u8) 0..=15, default 0 {
        UNAVAILABLE = 0,
        BRAKING = 1,
        HARD_BRAKING = 2,
        STOP_PEDALING = 3,
        BRAKING_AND_STOP_PEDALING = 4,
        HARD_BRAKING_AND_STOP_PEDALING = 5,
        NO_REACTION = 6,
    };
    /// This DE indicates the approximate size of a VRU including the VRU vehicle used.
    VruSizeClass(u8) 0..=15, default 0 { UNAVAILABLE = 0, LOW = 1, MEDIUM = 2, HIGH = 3 };
    /// This DE indicates the profile of an animal
    VruSubProfileAnimal(u8) 0..=15, default 0 {
        UNAVAILABLE = 0,
        WILD_ANIMAL = 1,
        FARM_ANIMAL = 2,
        SERVICE_ANIMAL = 3,
    };
    /// This DE indicates the profile of a VRU and its light VRU vehicle / mounted animal.
    VruSubProfileBicyclist(u8) 0..=15, default 0 {
        UNAVAILABLE = 0,
        BICYCLIST = 1,
        WHEELCHAIR_USER = 2,
        HORSE_AND_RIDER = 3,
        ROLLERSKATER = 4,
        E_SCOOTER = 5,
        PERSONAL_TRANSPORTER = 6,
        PEDELEC = 7,
        SPEED_PEDELEC = 8,
        ROADBIKE = 9,
        CHILDRENSBIKE = 10,
        RACEBIKE = 11,
    };
    /// This DE indicates the profile of a motorcyclist and corresponding vehicle.
    VruSubProfileMotorcyclist(u8) 0..=15, default 0 {
        UNAVAILABLE = 0,
        MOPED = 1,
        MOTORCYCLE = 2,
        MOTORCYCLE_AND_SIDECAR_RIGHT = 3,
        MOTORCYCLE_AND_SIDECAR_LEFT = 4,
    };
    /// This DE indicates the profile of a pedestrian.
    VruSubProfilePedestrian(u8) 0..=15, default 0 {
        UNAVAILABLE = 0,
        ORDINARY_PEDESTRIAN = 1,
        ROAD_WORKER = 2,
        FIRST_RESPONDER = 3,
    };
    /// This DE indicates the angle confidence value which represents the estimated accuracy of an angle value
    /// with a default confidence level of 95 %. If required, the confidence level can be defined by the
    /// corresponding standards applying this DE.
    Wgs84AngleConfidence(u8) 1..=127, default 127 { OUT_OF_RANGE = 126, UNAVAILABLE = 127 };
    /// This DE represents an angle value in degrees described in the WGS84 reference system with respect to
    /// the WGS84 north. The specific WGS84 coordinate system is specified by the corresponding standards
    /// applying this DE. When the information is not available, the DE shall be set to 3 601. The value 3600
    /// shall not be used.
    Wgs84AngleValue(u16) 0..=3601, default 3601 {
        WGS84_NORTH = 0,
        WGS84_EAST = 900,
        WGS84_SOUTH = 1800,
        WGS84_WEST = 2700,
        DO_NOT_USE = 3600,
        UNAVAILABLE = 3601,
    };
    /// This DE indicates the perpendicular distance between front and rear axle of the wheel base of vehicle.
    WheelBaseVehicle(u8) 1..=127, default 127 { OUT_OF_RANGE = 126, UNAVAILABLE = 127 };
    /// This DE indicates the actual status of the front wipers of the vehicle.
    WiperStatus(u8) 0..=7, default 0 { UNAVAILABLE = 0, OFF = 1, INTERMITTENT = 2, LOW = 3, HIGH = 4 };
    /// This DE represents the sub cause codes of the @ref CauseCode \`wrongWayDriving\` .
    WrongWayDrivingSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0,
        WRONG_LANE_DEPRECATED = 1,
        WRONG_DIRECTION = 2,
    };
    /// This DE represents the vehicle rotation around z-axis of the coordinate system centred on the centre
    /// of mass of the empty-loaded vehicle. The leading sign denotes the direction of rotation.
    YawRateValue(i16) -32_766..=32_767, default 32_767 {
        NEGATIVE_OUT_OF_RANGE = -32_766,
        POSITIVE_OUT_OF_RANGE = 32_766,
        UNAVAILABLE = 32_767,
    };
}

enumerated! {
    /// Specification of CDD Data Elements:
    AccelerationChange { #[default] Accelerate, Decelerate }
    /// This DE indicates the altitude confidence value which represents the estimated absolute accuracy of an
    /// altitude value of a geographical point with a default confidence level of 95 %. If required, the
    /// confidence level can be defined by the corresponding standards applying this DE.
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
    /// This DE indicates the angular acceleration confidence value which represents the estimated accuracy of
    /// an angular acceleration value with a default confidence level of 95 %. If required, the confidence
    /// level can be defined by the corresponding standards applying this DE. For correlation computation,
    /// maximum interval levels shall be assumed.
    AngularAccelerationConfidence {
        DegSecSquared01,
        DegSecSquared02,
        DegSecSquared05,
        DegSecSquared10,
        DegSecSquared20,
        DegSecSquared50,
        OutOfRange,
        #[default] Unavailable,
    }
    /// This DE indicates the angular speed confidence value which represents the estimated absolute accuracy
    /// of an angular speed value with a default confidence level of 95 %. If required, the confidence level
    /// can be defined by the corresponding standards applying this DE. For correlation computation, maximum
    /// interval levels can be assumed.
    AngularSpeedConfidence {
        DegSec01,
        DegSec02,
        DegSec05,
        DegSec10,
        DegSec20,
        DegSec50,
        OutOfRange,
        #[default] Unavailable,
    }
    /// This DE indicates the acceleration confidence value which represents the estimated absolute accuracy
    /// range of a curvature value with a confidence level of 95 %. If required, the confidence level can be
    /// defined by the corresponding standards applying this DE.
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
    /// This DE indicates the type of the dangerous goods being carried by a heavy vehicle.
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
    /// This DE indicates in which direction something is moving.
    DriveDirection { Forward, Backward, #[default] Unavailable }
    /// This DE represents one of the specific categories in the L category: L1, L2, L3, L4, L5, L6, or L7
    /// according to UNECE/TRANS/WP.29/78/Rev.4 \[16\].
    EuVehicleCategoryL { #[default] L1, L2, L3, L4, L5, L6, L7 }
    /// This DE represents one of the specific categories in the M category: M1, M2, or M3 according to
    /// UNECE/TRANS/WP.29/78/Rev.4 \[16\].
    EuVehicleCategoryM { #[default] M1, M2, M3 }
    /// This DE represents one of the specific categories in the N category: N1, N2, or N3 according to
    /// UNECE/TRANS/WP.29/78/Rev.4 \[16\].
    EuVehicleCategoryN { #[default] N1, N2, N3 }
    /// This DE represents one of the specific categories in the O category: O1, O2, O3 or O4 according to
    /// UNECE/TRANS/WP.29/78/Rev.4 \[16\].
    EuVehicleCategoryO { #[default] O1, O2, O3, O4 }
    /// This DE indicates the current status of a hard shoulder: whether it is available for special usage
    /// (e.g. for stopping or for driving) or closed for all vehicles.
    HardShoulderStatus { #[default] AvailableForStopping, Closed, AvailableForDriving }
    /// This DE indicates the face or part of a face of a solid object.
    ObjectFace { #[default] Front, SideLeftFront, SideLeftBack, SideRightFront, SideRightBack, Back }
    /// This DE describes a distance of relevance for information indicated in a message.
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
    /// This DE indicates a traffic direction that is relevant to information indicated in a message.
    RelevanceTrafficDirection {
        #[default] AllTrafficDirections,
        UpstreamTraffic,
        DownstreamTraffic,
        OppositeTraffic,
    }
    /// This DE indicates whether an ITS message is transmitted as request from ITS-S or a response
    /// transmitted from ITS-S after receiving request from other ITS-Ss.
    RequestResponseIndication { #[default] Request, Response }
    /// This DE indicates the type of a road segment.
    RoadType {
        #[default] UrbanNoStructuralSeparationToOppositeLanes,
        UrbanWithStructuralSeparationToOppositeLanes,
        NonUrbanNoStructuralSeparationToOppositeLanes,
        NonUrbanWithStructuralSeparationToOppositeLanes,
    }
    /// The DE represents length as a measure of distance between points.
    StandardLength3b {
        #[default] LessThan50m,
        LessThan100m,
        LessThan200m,
        LessThan500m,
        LessThan1000m,
        LessThan5km,
        LessThan10km,
        Over10km,
    }
    /// This DE indicates the duration in minutes since which something is stationary.
    StationarySince {
        #[default] LessThan1Minute,
        LessThan2Minutes,
        LessThan15Minutes,
        EqualOrGreater15Minutes,
    }
    /// This DE indicates a direction of traffic with respect to a reference direction, and a portion of that
    /// traffic with respect to a reference position.
    TrafficDirection {
        #[default] AllTrafficDirections,
        SameAsReferenceDirectionUpstreamOfReferencePosition,
        SameAsReferenceDirectionDownstreamOfReferencePosition,
        OppositeToReferenceDirection,
    }
    /// This DE provides information about the presence of a trailer.
    TrailerPresenceInformation {
        NoTrailerPresent,
        TrailerPresentWithKnownLength,
        TrailerPresentWithUnknownLength,
        TrailerPresenceIsUnknown,
        #[default] Unavailable,
    }
    /// This DE provides the turning direction.
    TurningDirection { #[default] Left, Right }
    /// This DE provides information about the presence of a trailer.
    VehicleLengthConfidenceIndication {
        NoTrailerPresent,
        TrailerPresentWithKnownLength,
        TrailerPresentWithUnknownLength,
        TrailerPresenceIsUnknown,
        #[default] Unavailable,
    }
    /// This DE indicates the role played by a vehicle at a point in time.
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
        Uvar,
        Rfu1,
        Rfu2,
    }
    /// This DE indicates the yaw rate confidence value which represents the estimated accuracy for a yaw rate
    /// value with a default confidence level of 95 %. If required, the confidence level can be defined by the
    /// corresponding standards applying this DE.
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
    /// This DE indicates an access technology.
    AccessTechnologyClass { #[default] Any, Itsg5Class, Ltev2xClass, Nrv2xClass }
    /// The DE describes whether the yaw rate is used to calculate the curvature for a curvature value.
    CurvatureCalculationMode { YawRateUsed, YawRateNotUsed, #[default] Unavailable }
    /// This DE defines the type of an interference management zone, so that an ITS-S can assert the actions
    /// to do while passing by such zone (e.g. reduce the transmit power in case of a DSRC tolling station).
    /// It is an extension of the type @ref ProtectedZoneType.
    InterferenceManagementZoneType {
        PermanentCenDsrcTolling,
        TemporaryCenDsrcTolling,
        #[default] Unavailable,
        UrbanRail,
        SatelliteStation,
        FixedLinks,
    }
    /// This DE provides a factor to be multiplied with a DE that represents a measure of something, to extend
    /// the range/change the unit. The DE that is multiplied is to be specified outside of the context of this
    /// DE, e.g. in a facility layer service specification.
    MultiplicativeFactor { #[default] Tenth, Half, Two, Three, Five, Ten, Fifty, Hundred }
    /// This DE indicates the positioning technology being used to estimate a geographical position.
    PositioningSolutionType { #[default] NoPositioningSolution, Sgnss, Dgnss, SgnssPlusDr, DgnssPlusDr, Dr } {
        ManuallyByOperator,
    }
    /// This DE indicates the type of a protected communication zone, so that an ITS-S is aware of the actions
    /// to do while passing by such zone (e.g. reduce the transmit power in case of a DSRC tolling station).
    ProtectedZoneType { #[default] PermanentCenDsrcTolling } { TemporaryCenDsrcTolling }
    /// This DE indicates traffic rules that apply to vehicles at a certain position.
    TrafficRule { #[default] NoPassing, NoPassingForTrucks, PassToRight, PassToLeft } { PassToLeftOrRight }
    /// This DE represents an indication of how a certain path or area will be used.
    UsageIndication { #[default] NoIndication, SpecialUse, RescueOperation } {
        Railroad,
        FixedRoute,
        RestrictedRoute,
        AdasAd,
        Navigation,
    }
}

bit_strings! {
    /// This DE indicates the status of the controlling mechanisms for longitudinal movement of the vehicle.
    /// The data may be provided via the in-vehicle network. It indicates whether a specific in-vehicle
    /// acceleration control system is engaged or not.
    AccelerationControl(u8) 7 {
        BRAKE_PEDAL_ENGAGED = 0,
        GAS_PEDAL_ENGAGED = 1,
        EMERGENCY_BRAKE_ENGAGED = 2,
        COLLISION_WARNING_ENGAGED = 3,
        ACC_ENGAGED = 4,
        CRUISE_CONTROL_ENGAGED = 5,
        SPEED_LIMITER_ENGAGED = 6,
    }
    /// This DE represents an ISO 3166-1 \[25\] country code encoded using ITA-2 encoding.
    CountryCode(u16) 10 {}
    /// `EmergencyPriority` of `ETSI-ITS-CDD`.
    EmergencyPriority(u8) 2 { REQUEST_FOR_RIGHT_OF_WAY = 0, REQUEST_FOR_FREE_CROSSING_AT_A_TRAFFIC_LIGHT = 1 }
    /// This DE indicated the type of energy being used and stored in vehicle.
    EnergyStorageType(u8) 7 {
        HYDROGEN_STORAGE = 0,
        ELECTRIC_ENERGY_STORAGE = 1,
        LIQUID_PROPANE_GAS = 2,
        COMPRESSED_NATURAL_GAS = 3,
        DIESEL = 4,
        GASOLINE = 5,
        AMMONIA = 6,
    }
    /// This DE describes the status of the exterior light switches of a vehicle incl. VRU vehicles.
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
    /// This DE indicates the status of light bar and any sort of audible alarm system besides the horn. This
    /// includes various common sirens as well as backup up beepers and other slow speed manoeuvring alerts.
    LightBarSirenInUse(u8) 2 { LIGHT_BAR_ACTIVATED = 0, SIREN_ACTIVATED = 1 }
    /// This DE indicates whether a passenger seat is occupied or whether the occupation status is detectable
    /// or not.
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
    /// The DE indicates if a vehicle is carrying goods in the special transport conditions.
    SpecialTransportType(u8) 4 { HEAVY_LOAD = 0, EXCESS_WIDTH = 1, EXCESS_LENGTH = 2, EXCESS_HEIGHT = 3 }
    /// This DE Identifies all the VRU profile types within a cluster. It consist of a Bitmap encoding VRU
    /// profiles, to allow multiple profiles to be indicated in a single cluster (heterogeneous cluster if
    /// more than one profile).
    VruClusterProfiles(u8) 4 { PEDESTRIAN = 0, BICYCLIST = 1, MOTORCYCLIST = 2, ANIMAL = 3 }
    /// This DE describes the status of the exterior light switches of a VRU.
    VruSpecificExteriorLights(u8) 8 {
        UNAVAILABLE = 0,
        BACK_FLASH_LIGHT = 1,
        HELMET_LIGHT = 2,
        ARM_LIGHT = 3,
        LEG_LIGHT = 4,
        WHEEL_LIGHT = 5,
    }
}

variable_bit_strings! {
    /// This DE represents the extension of DE AccelerationControl and should only be used together with DE
    /// AccelerationControl.
    AccelerationControlExtension(u8) 3..=3 [extensible];
    /// This DE indicates the status of the controlling mechanisms for the lateral and combined lateral and
    /// longitudinal movements of the vehicle. The data may be provided via the in-vehicle network. It
    /// indicates whether a specific in-vehicle acceleration control system combined with steering of the
    /// direction of the vehicle is engaged or not.
    AutomationControl(u8) 6..=6 [extensible];
    /// This DE indicates the status of the vehicle´s brake control system during an externally defined
    /// period of time.
    BrakeControl(u8) 3..=3 [extensible];
    /// This DE indicates whether a driving lane is open to traffic.
    DrivingLaneStatus(u16) 1..=13;
    /// This DE indicates the components of an @ref PerceivedObject that are included in the @ref
    /// LowerTriangularPositiveSemidefiniteMatrix.
    MatrixIncludedComponents(u16) 13..=13 [extensible];
    /// This DE indicates the type of sensor(s). The corresponding bit shall be set to 1 under the following
    /// conditions:
    SensorTypes(u16) 16..=16 [extensible];
    /// This DE indicates the type of stored information.
    StoredInformationType(u8) 8..=8 [extensible];
}

octet_strings! {
    /// This DE is used for various tasks in the public transportation environment, especially for controlling
    /// traffic signal systems to prioritize and speed up public transportation in urban area (e.g.
    /// intersection "\_bottlenecks\_"). The traffic lights may be controlled by an approaching bus or tram
    /// automatically. This permits "\_In Time\_" activation of the green phase, will enable the individual
    /// traffic to clear a potential traffic jam in advance. Thereby the approaching bus or tram may pass an
    /// intersection with activated green light without slowing down the speed due to traffic congestion.
    /// Other usage of the DE is the provision of information like the public transport line number or the
    /// schedule delay of a public transport vehicle.
    PtActivationData 1..=20;
}

strings! {
    /// `emergencyActionCode` of [`DangerousGoodsExtended`].
    EmergencyActionCode Ia5 1..=24;
    /// `companyName` of [`DangerousGoodsExtended`].
    CompanyName Utf8 1..=24;
    /// This DE represents a time period to describe the opening days and hours of a Point of Interest. (for
    /// example local commerce).
    OpeningDaysHours Utf8 0..=16_383;
    /// This DE represents a telephone number
    PhoneNumber Numeric 1..=16;
    /// This DE represents the Vehicle Descriptor Section (VDS). The values are assigned according to ISO 3779
    /// \[6\].
    Vds Ia5 6..=6;
    /// This DE represents the World Manufacturer Identifier (WMI). The values are assigned according to ISO
    /// 3779 \[6\].
    WmiNumber Ia5 1..=3;
}

lists! {
    /// This DF represents an identifier used to describe a protocol action taken by an ITS-S.
    ActionIdList[ActionId] 1..=8 [extensible];
    /// This DF provides information about the configuration of a road section in terms of lanes using a list
    /// of @ref LanePositionAndType .
    BasicLaneConfiguration[BasicLaneInformation] 1..=16 [extensible];
    /// This DF shall contain a list of @ref ConfidenceLevel.
    ConfidenceLevels[ConfidenceLevel] 1..=32 [extensible];
    /// This DF represents a column of a lower triangular positive semi-definite matrix and consists of a list
    /// of correlation cell values ordered by rows. Given a matrix "A" of size n x n, the number of columns to
    /// be included in the lower triangular matrix is k=n-1. Each column "i" of the lower triangular matrix
    /// then contains k-(i-1) values (ordered by rows from 1 to n-1), where "i" refers to the column number
    /// count starting at 1 from the left.
    CorrelationColumn[CorrelationCellValue] 1..=13 [extensible];
    /// This DF shall contain a list of @ref DeltaPosition.
    DeltaPositions[DeltaPosition] 1..=32 [extensible];
    /// This DF shall contain a list of @ref DeltaReferencePosition.
    DeltaReferencePositions[DeltaReferencePosition] 1..=32 [extensible];
    /// This DF represents a portion of digital map. It shall contain a list of waypoints @ref
    /// ReferencePosition.
    DigitalMap[ReferencePosition] 1..=256;
    /// The DF shall contain a list of @ref EventPoint.
    EventHistory[EventPoint] 1..=23;
    /// This DF represents transversal position information with respect to the road, at an externally defined
    /// reference position. It shall contain a set of up to \`4\` @ref GeneralizedLanePosition. Multiple
    /// entries can be used to describe several lane positions with the associated confidence, in cases where
    /// the reference position cannot be mapped to a single lane.
    GeneralizedLanePositions[GeneralizedLanePosition] 1..=4;
    /// This DF shall contain a list of @ref AbsolutePositionWAltitude.
    GeoPositionsWAltitude[GeoPositionWAltitude] 1..=8 [extensible];
    /// This DF shall contain a list of @ref GeoPositionWoAltitude.
    GeoPositionsWoAltitude[GeoPositionWoAltitude] 1..=8 [extensible];
    /// This DF shall contain a list of up to 16 definitions containing interference management information,
    /// per affected frequency channels.
    InterferenceManagementInfo[InterferenceManagementInfoPerChannel] 1..=16 [extensible];
    /// This DF shall contain a list of up to 16 interference management zones.
    InterferenceManagementZones[InterferenceManagementZone] 1..=16 [extensible];
    /// This DF shall contain a list of waypoints @ref ReferencePosition.
    ItineraryPath[ReferencePosition] 1..=40;
    /// This DF shall contain a list of @ref IvimReference.
    IvimReferences[IvimReference] 1..=8 [extensible];
    /// This DF shall contain a list of a lower triangular positive semi-definite matrices.
    LowerTriangularPositiveSemidefiniteMatrices[LowerTriangularPositiveSemidefiniteMatrix] 1..=4;
    /// This DF represents the columns of a lower triangular positive semi-definite matrix, each column not
    /// including the main diagonal cell of the matrix. Given a matrix "A" of size n x n, the number of @ref
    /// CorrelationColumn to be included in the lower triangular matrix is k=n-1.
    LowerTriangularPositiveSemidefiniteMatrixColumns[CorrelationColumn] 1..=13 [extensible];
    /// This DF shall contain a list of @ref MapReference.
    MapReferences[MapReference] 1..=8 [extensible];
    /// This DF provides information about the configuration of a road section in terms of MAPEM lanes or
    /// connections using a list of @ref MapemExtractedElementReference.
    MapemConfiguration[MapemElementReference] 1..=16 [extensible];
    /// This DF provides references to MAPEM connections using a list of @ref Identifier1B. Note: connections
    /// are allowed ï¿½maneuversï¿½ (e.g. an ingress / egress relation) on an intersection.
    MapemConnectionList[Identifier1B] 1..=8 [extensible];
    /// This DF provides references to MAPEM lanes using a list of @ref Identifier1B.
    MapemLaneList[Identifier1B] 1..=8 [extensible];
    /// This DF shall contain a list of @ref MitigationPerTechnologyClass.
    MitigationForTechnologies[MitigationPerTechnologyClass] 1..=8;
    /// This DF shall contain a list of object classes.
    ObjectClassDescription[ObjectClassWithConfidence] 1..=8;
    /// `lanePositionBased` of [`OccupiedLanesWithConfidence`].
    LanePositionBased[LanePositionOptions] 1..=4;
    /// `mapBased` of [`OccupiedLanesWithConfidence`].
    MapBased[MapPosition] 1..=4;
    /// `accessViaParkingSpaces` of [`ParkingSpaceDetailed`].
    AccessViaParkingSpaces[Identifier2B] 0..=7;
    /// `reservationType` of [`ParkingSpaceDetailed`].
    ReservationType[ParkingReservationType] 1..=4 [extensible];
    /// This DF represents a path with a set of path points.
    Path[PathPoint] 0..=40;
    /// This DF represents a path history with a set of path points.
    PathHistory[PathPoint] 0..=40;
    /// This DF represents a predicted path or trajectory with a set of predicted points and optional
    /// information to generate a shape which is estimated to contain the real path.
    PathPredicted[PathPointPredicted] 1..=16 [extensible];
    /// This DF represents one or more predicted paths, or trajectories or path zones (zones that include all
    /// possible paths/trajectories within its boundaries) using @ref PathPredicted2.
    PathPredictedList[PathPredicted2] 1..=16 [extensible];
    /// This DF represents a list of references to the components of a @ref Traces or @ref TracesExtended DF
    /// using the @ref PathId.
    PathReferences[PathId] 1..=14;
    /// `polygon` of [`PolygonalShape`].
    Polygon[CartesianPosition3d] 3..=16 [extensible];
    /// This DF shall contain a list of distances @ref PosPillar that refer to the perpendicular distance
    /// between centre of vehicle front bumper and vehicle pillar A, between neighbour pillars until the last
    /// pillar of the vehicle.
    PositionOfPillars[PosPillar] 1..=3 [extensible];
    /// This DF shall contain a list of @ref ProtectedCommunicationZone provided by a road side ITS-S (Road
    /// Side Unit RSU).
    ProtectedCommunicationZonesRsu[ProtectedCommunicationZone] 1..=16;
    /// The DF contains a list of @ref RadialShapeDetails.
    RadialShapesList[RadialShapeDetails] 1..=16 [extensible];
    /// This DF shall contain a list of @ref StationType. to which a certain traffic restriction, e.g. the
    /// speed limit, applies.
    RestrictedTypes[StationType] 1..=3 [extensible];
    /// This DF shall contain a list of @ref RoadConfigurationSection.
    RoadConfigurationSectionList[RoadConfigurationSection] 1..=8 [extensible];
    /// This DF shall contain a list of DF @ref CartesianPosition3d.
    SequenceOfCartesianPosition3d[CartesianPosition3d] 1..=16 [extensible];
    /// The DF contains a list of DE @ref Identifier1B.
    SequenceOfIdentifier1B[Identifier1B] 1..=128 [extensible];
    /// The DF contains a list of DF @ref SafeDistanceIndication.
    SequenceOfSafeDistanceIndication[SafeDistanceIndication] 1..=8 [extensible];
    /// The DF shall contain a list of DF @ref TrajectoryInterceptionIndication.
    SequenceOfTrajectoryInterceptionIndication[TrajectoryInterceptionIndication] 1..=8 [extensible];
    /// This DF represents one or more paths using @ref Path.
    Traces[Path] 1..=7;
    /// This DF represents one or more paths using @ref PathExtended.
    TracesExtended[PathExtended] 1..=7;
}

sequences! {
    /// This DF represents a acceleration vector in a cartesian coordinate system.
    #[derive(Copy, Hash)]
    AccelerationCartesian {
        x_acceleration: AccelerationComponent,
        y_acceleration: AccelerationComponent,
        z_acceleration: Option<AccelerationComponent>,
    }
    /// This DF represents an acceleration component along with a confidence value.
    #[derive(Copy, Hash)]
    AccelerationComponent { value: AccelerationValue, confidence: AccelerationConfidence }
    /// This DF represents the magnitude of the acceleration vector and associated confidence value.
    #[derive(Copy, Hash)]
    AccelerationMagnitude {
        acceleration_magnitude_value: AccelerationMagnitudeValue,
        acceleration_confidence: AccelerationConfidence,
    }
    /// This DF represents an acceleration vector in a polar or cylindrical coordinate system.
    #[derive(Copy, Hash)]
    AccelerationPolarWithZ {
        acceleration_magnitude: AccelerationMagnitude,
        acceleration_direction: CartesianAngle,
        z_acceleration: Option<AccelerationComponent>,
    }
    /// This DF represents an identifier used to describe a protocol action taken by an ITS-S.
    #[derive(Copy, PartialOrd, Ord, Hash)]
    ActionId { originating_station_id: StationId, sequence_number: SequenceNumber }
    /// This DF provides the altitude and confidence level of an altitude information in a WGS84 coordinate
    /// system. The specific WGS84 coordinate system is specified by the corresponding standards applying this
    /// DE.
    #[derive(Copy, Hash)]
    Altitude { altitude_value: AltitudeValue, altitude_confidence: AltitudeConfidence }
    /// This DF represents a general Data Frame to describe an angle component along with a confidence value
    /// in a cartesian coordinate system.
    #[derive(Copy, Hash)]
    CartesianAngle { value: CartesianAngleValue, confidence: AngleConfidence }
    /// This DF represents a general Data Frame to describe an angular acceleration component along with a
    /// confidence value in a cartesian coordinate system.
    #[derive(Copy, Hash)]
    CartesianAngularAccelerationComponent {
        value: CartesianAngularAccelerationComponentValue,
        confidence: AngularAccelerationConfidence,
    }
    /// This DF represents an angular velocity component along with a confidence value in a cartesian
    /// coordinate system.
    #[derive(Copy, Hash)]
    CartesianAngularVelocityComponent {
        value: CartesianAngularVelocityComponentValue,
        confidence: AngularSpeedConfidence,
    }
    /// This DF represents a coordinate along with a confidence value in a cartesian reference system.
    #[derive(Copy, Hash)]
    CartesianCoordinateWithConfidence { value: CartesianCoordinateLarge, confidence: CoordinateConfidence }
    /// This DF represents a position in a two- or three-dimensional cartesian coordinate system.
    #[derive(Copy, Hash)]
    CartesianPosition3d {
        x_coordinate: CartesianCoordinate,
        y_coordinate: CartesianCoordinate,
        z_coordinate: Option<CartesianCoordinate>,
    }
    /// This DF represents a position in a two- or three-dimensional cartesian coordinate system with an
    /// associated confidence level for each coordinate.
    #[derive(Copy, Hash)]
    CartesianPosition3dWithConfidence {
        x_coordinate: CartesianCoordinateWithConfidence,
        y_coordinate: CartesianCoordinateWithConfidence,
        z_coordinate: Option<CartesianCoordinateWithConfidence>,
    }
    /// This DF represents the shape of a circular area or a right cylinder that is centred on the shape's
    /// reference point.
    #[derive(Copy, Hash)]
    CircularShape {
        shape_reference_point: Option<CartesianPosition3d>,
        radius: StandardLength12b,
        height: Option<StandardLength12b>,
    }
    /// This DF represents the curvature of the vehicle trajectory and the associated confidence value. The
    /// curvature detected by a vehicle represents the curvature of actual vehicle trajectory.
    #[derive(Copy, Hash)]
    Curvature { curvature_value: CurvatureValue, curvature_confidence: CurvatureConfidence }
    /// This DF defines a geographical point position as a 2 dimensional offset position to a geographical
    /// reference point.
    #[derive(Copy, Hash)]
    DeltaPosition { delta_latitude: DeltaLatitude, delta_longitude: DeltaLongitude }
    /// This DF defines a geographical point position as a 3 dimensional offset position to a geographical
    /// reference point.
    #[derive(Copy, Hash)]
    DeltaReferencePosition {
        delta_latitude: DeltaLatitude,
        delta_longitude: DeltaLongitude,
        delta_altitude: DeltaAltitude,
    }
    /// This DF represents the shape of an elliptical area or right elliptical cylinder that is centred on the
    /// shape's reference point defined outside of the context of this DF and oriented w.r.t. a cartesian
    /// coordinate system defined outside of the context of this DF.
    #[derive(Copy, Hash)]
    EllipticalShape {
        shape_reference_point: Option<CartesianPosition3d>,
        semi_major_axis_length: StandardLength12b,
        semi_minor_axis_length: StandardLength12b,
        orientation: Option<CartesianAngleValue>,
        height: Option<StandardLength12b>,
    }
    /// This DF represents the Euler angles which describe the orientation of an object bounding box in a
    /// Cartesian coordinate system with an associated confidence level for each angle.
    #[derive(Copy, Hash)]
    EulerAnglesWithConfidence {
        z_angle: CartesianAngle,
        y_angle: Option<CartesianAngle>,
        x_angle: Option<CartesianAngle>,
    }
    /// This DF provides information related to an event at a defined position.
    #[derive(Copy, Hash)]
    EventPoint {
        event_position: DeltaReferencePosition,
        event_delta_time: Option<PathDeltaTime>,
        information_quality: InformationQuality,
    }
    /// This DF indicates a geographical position.
    #[derive(Copy, Hash)]
    GeoPosition { latitude: Latitude, longitude: Longitude, altitude: AltitudeValue = AltitudeValue(800_001) }
    /// This DE indicates a geographical position with altitude.
    #[derive(Copy, Hash)]
    GeoPositionWAltitude { latitude: Latitude, longitude: Longitude, altitude: Altitude }
    /// This DF indicates a geographical position without altitude.
    #[derive(Copy, Hash)]
    GeoPositionWoAltitude { latitude: Latitude, longitude: Longitude }
    /// This DF represents the Heading in a WGS84 co-ordinates system. The specific WGS84 coordinate system is
    /// specified by the corresponding standards applying this DE.
    #[derive(Copy, Hash)]
    Heading { heading_value: HeadingValue, heading_confidence: HeadingConfidence }
    /// This DF represents a frequency channel
    #[derive(Copy, Hash)]
    InterferenceManagementChannel {
        centre_frequency: CentreFrequency,
        channel_width: ChannelWidth,
        exponent: Exponent,
    }
    /// This DF represents a zone inside which the ITS communication should be restricted in order to manage
    /// interference.
    InterferenceManagementZone {
        zone_definition: InterferenceManagementZoneDefinition,
        management_info: InterferenceManagementInfo,
    }
    /// This DF represents a unique id for an intersection, in accordance with ETSI TS 103 301 \[15\].
    #[derive(Copy, Hash)]
    IntersectionReferenceId { region: Option<Identifier2B>, id: Identifier2B }
    /// This DF represents a common message header for application and facilities layer messages. It is
    /// included at the beginning of an ITS message as the message header.
    #[derive(Copy, Hash)]
    ItsPduHeader { protocol_version: OrdinalNumber1B, message_id: MessageId, station_id: StationId }
    /// This DF provides the reference to the information contained in a IVIM according to ETSI TS 103 301
    /// \[15\].
    #[derive(Copy, Hash)]
    IvimReference { service_provider_id: Provider, ivi_identification_number: IviIdentificationNumber }
    /// This DF indicates the vehicle acceleration at lateral direction and the confidence value of the
    /// lateral acceleration.
    #[derive(Copy, Hash)]
    LateralAcceleration {
        lateral_acceleration_value: LateralAccelerationValue,
        lateral_acceleration_confidence: AccelerationConfidence,
    }
    /// This DF indicates the vehicle acceleration at longitudinal direction and the confidence value of the
    /// longitudinal acceleration.
    #[derive(Copy, Hash)]
    LongitudinalAcceleration {
        longitudinal_acceleration_value: LongitudinalAccelerationValue,
        longitudinal_acceleration_confidence: AccelerationConfidence,
    }
    /// This DF represents the estimated position along the longitudinal extension of a carriageway or lane.
    #[derive(Copy, Hash)]
    LongitudinalLanePosition {
        longitudinal_lane_position_value: LongitudinalLanePositionValue,
        longitudinal_lane_position_confidence: LongitudinalLanePositionConfidence,
    }
    /// This DF represents a lower triangular positive semi-definite matrix.
    LowerTriangularPositiveSemidefiniteMatrix {
        components_included_inthe_matrix: MatrixIncludedComponents,
        matrix: LowerTriangularPositiveSemidefiniteMatrixColumns,
    }
    /// This DF indicates a message rate.
    #[derive(Copy, Hash)]
    MessageRateHz { mantissa: Mantissa, exponent: MessageRateHzExponent }
    /// This DF provides information about a message with respect to the segmentation process on facility
    /// layer at the sender.
    #[derive(Copy, Hash)]
    MessageSegmentationInfo { total_msg_no: CardinalNumber3b, this_msg_no: OrdinalNumber3b }
    /// This DF represents the classification of a detected object together with a confidence level.
    ObjectClassWithConfidence { object_class: ObjectClass, confidence: ConfidenceLevel }
    /// This DF represents a dimension of an object together with a confidence value.
    #[derive(Copy, Hash)]
    ObjectDimension { value: ObjectDimensionValue, confidence: ObjectDimensionConfidence }
    /// This DF provides basic information about the parking capabilities and availabilities of a single
    /// parking space.
    ParkingSpaceBasic {
        id: Identifier2B,
        location: Option<DeltaReferencePosition>,
        status: ParkingSpaceStatus,
    }
    /// This DF represents a path towards a specific point specified in the @ref EventZone.
    PathExtended { point_of_event_zone: PointOfEventZone, path: Path }
    /// This DF defines an offset waypoint position within a path.
    #[derive(Copy, Hash)]
    PathPoint { path_position: DeltaReferencePosition, path_delta_time: Option<PathDeltaTime> }
    /// This DF represents the shape of a polygonal area or of a right prism.
    PolygonalShape {
        shape_reference_point: Option<CartesianPosition3d>,
        polygon: Polygon,
        height: Option<StandardLength12b>,
    }
    /// This DF indicates the horizontal position confidence ellipse which represents the estimated accuracy
    /// with a confidence level of 95 %. The centre of the ellipse shape corresponds to the reference position
    /// point for which the position accuracy is evaluated.
    #[derive(Copy, Hash)]
    PosConfidenceEllipse {
        semi_major_confidence: SemiAxisLength,
        semi_minor_confidence: SemiAxisLength,
        semi_major_orientation: HeadingValue,
    }
    /// This DF indicates the horizontal position confidence ellipse which represents the estimated accuracy
    /// with a confidence level of 95 %. The centre of the ellipse shape corresponds to the reference position
    /// point for which the position accuracy is evaluated.
    #[derive(Copy, Hash)]
    PositionConfidenceEllipse {
        semi_major_axis_length: SemiAxisLength,
        semi_minor_axis_length: SemiAxisLength,
        semi_major_axis_orientation: Wgs84AngleValue,
    }
    /// This DF identifies an organization.
    #[derive(Copy, Hash)]
    Provider { country_code: CountryCode, provider_identifier: IssuerIdentifier }
    /// This DF represents activation data for real-time systems designed for operations control, traffic
    /// light priorities, track switches, barriers, etc. using a range of activation devices equipped in
    /// public transport vehicles.
    PtActivation { pt_activation_type: PtActivationType, pt_activation_data: PtActivationData }
    /// This DF describes a radial shape. The circular or spherical sector is constructed by sweeping the
    /// provided range about the reference position specified outside of the context of this DF or about the
    /// optional shapeReferencePoint. The range is swept between a horizontal start and a horizontal end angle
    /// in the X-Y plane of a cartesian coordinate system specified outside of the context of this DF, in a
    /// right-hand positive angular direction w.r.t. the x-axis. A vertical opening angle in the X-Z plane may
    /// optionally be provided in a right-hand positive angular direction w.r.t. the x-axis.
    #[derive(Copy, Hash)]
    RadialShape {
        shape_reference_point: Option<CartesianPosition3d>,
        range: StandardLength12b,
        horizontal_opening_angle_start: CartesianAngleValue,
        horizontal_opening_angle_end: CartesianAngleValue,
        vertical_opening_angle_start: Option<CartesianAngleValue>,
        vertical_opening_angle_end: Option<CartesianAngleValue>,
    }
    /// This DF describes radial shape details. The circular sector or cone is constructed by sweeping the
    /// provided range about the position specified outside of the context of this DF. The range is swept
    /// between a horizontal start and a horizontal end angle in the X-Y plane of a right-hand cartesian
    /// coordinate system specified outside of the context of this DF, in positive angular direction w.r.t.
    /// the x-axis. A vertical opening angle in the X-Z plane may optionally be provided in positive angular
    /// direction w.r.t. the x-axis.
    #[derive(Copy, Hash)]
    RadialShapeDetails {
        range: StandardLength12b,
        horizontal_opening_angle_start: CartesianAngleValue,
        horizontal_opening_angle_end: CartesianAngleValue,
        vertical_opening_angle_start: Option<CartesianAngleValue>,
        vertical_opening_angle_end: Option<CartesianAngleValue>,
    }
    /// This DF describes a list of radial shapes positioned w.r.t. to an offset position defined relative to
    /// a reference position specified outside of the context of this DF and oriented w.r.t. a cartesian
    /// coordinate system specified outside of the context of this DF.
    RadialShapes {
        ref_point_id: Identifier1B,
        x_coordinate: CartesianCoordinateSmall,
        y_coordinate: CartesianCoordinateSmall,
        z_coordinate: Option<CartesianCoordinateSmall>,
        radial_shapes_list: RadialShapesList,
    }
    /// This DF represents the shape of a rectangular area or a right rectangular prism that is centred on a
    /// reference position defined outside of the context of this DF and oriented w.r.t. a cartesian
    /// coordinate system defined outside of the context of this DF.
    #[derive(Copy, Hash)]
    RectangularShape {
        shape_reference_point: Option<CartesianPosition3d>,
        semi_length: StandardLength12b,
        semi_breadth: StandardLength12b,
        orientation: Option<CartesianAngleValue>,
        height: Option<StandardLength12b>,
    }
    /// A position within a geographic coordinate system together with a confidence ellipse.
    #[derive(Copy, Hash)]
    ReferencePosition {
        latitude: Latitude,
        longitude: Longitude,
        position_confidence_ellipse: PosConfidenceEllipse,
        altitude: Altitude,
    }
    /// A position within a geographic coordinate system together with a confidence ellipse.
    #[derive(Copy, Hash)]
    ReferencePositionWithConfidence {
        latitude: Latitude,
        longitude: Longitude,
        position_confidence_ellipse: PositionConfidenceEllipse,
        altitude: Altitude,
    }
    /// This DF represents a unique id for a road segment
    #[derive(Copy, Hash)]
    RoadSegmentReferenceId { region: Option<Identifier2B>, id: Identifier2B }
    /// This DF represents the speed and associated confidence value.
    #[derive(Copy, Hash)]
    Speed { speed_value: SpeedValue, speed_confidence: SpeedConfidence }
    /// This DF represents the steering wheel angle of the vehicle at certain point in time.
    #[derive(Copy, Hash)]
    SteeringWheelAngle {
        steering_wheel_angle_value: SteeringWheelAngleValue,
        steering_wheel_angle_confidence: SteeringWheelAngleConfidence,
    }
    /// This DF represents the length of vehicle and accuracy indication information.
    #[derive(Copy, Hash)]
    VehicleLength {
        vehicle_length_value: VehicleLengthValue,
        vehicle_length_confidence_indication: VehicleLengthConfidenceIndication,
    }
    /// This DF represents the length of vehicle and accuracy indication information.
    #[derive(Copy, Hash)]
    VehicleLengthV2 {
        vehicle_length_value: VehicleLengthValue,
        trailer_presence_information: TrailerPresenceInformation,
    }
    /// This DF represents a velocity vector in a cartesian coordinate system.
    #[derive(Copy, Hash)]
    VelocityCartesian {
        x_velocity: VelocityComponent,
        y_velocity: VelocityComponent,
        z_velocity: Option<VelocityComponent>,
    }
    /// This DF represents a component of the velocity vector and the associated confidence value.
    #[derive(Copy, Hash)]
    VelocityComponent { value: VelocityComponentValue, confidence: SpeedConfidence }
    /// This DF represents a velocity vector in a polar or cylindrical coordinate system.
    #[derive(Copy, Hash)]
    VelocityPolarWithZ {
        velocity_magnitude: Speed,
        velocity_direction: CartesianAngle,
        z_velocity: Option<VelocityComponent>,
    }
    /// four and more octets length
    #[derive(Copy, Hash)]
    VerticalAcceleration {
        vertical_acceleration_value: VerticalAccelerationValue,
        vertical_acceleration_confidence: AccelerationConfidence,
    }
    /// This DF represents an angular component along with a confidence value in the WGS84 coordinate system.
    /// The specific WGS84 coordinate system is specified by the corresponding standards applying this DE.
    #[derive(Copy, Hash)]
    Wgs84Angle { value: Wgs84AngleValue, confidence: Wgs84AngleConfidence }
    /// This DF represents a yaw rate of vehicle at a point in time.
    #[derive(Copy, Hash)]
    YawRate { yaw_rate_value: YawRateValue, yaw_rate_confidence: YawRateConfidence }
}

extensible_sequences! {
    /// This DF represents information associated to changes in acceleration.
    #[derive(Copy, Hash)]
    AccelerationChangeIndication {
        accel_or_decel: AccelerationChange,
        action_delta_time: DeltaTimeTenthOfSecond,
    }
    /// This DE represents a general container for usage in various types of messages.
    #[derive(Copy, Hash)]
    BasicContainer {
        station_type: TrafficParticipantType,
        reference_position: ReferencePositionWithConfidence,
    }
    /// This DF provides basic information about a single lane of a road segment. It includes the following
    /// components:
    #[derive(Copy, Hash)]
    BasicLaneInformation {
        lane_number: LanePosition,
        direction: Direction,
        lane_width: Option<LaneWidth>,
        connecting_lane: Option<LanePosition>,
        connecting_road_section: Option<RoadSectionId>,
    }
    /// This DF is a representation of the cause code value of a traffic event.
    #[derive(Copy, Hash)]
    CauseCode { cause_code: CauseCodeType, sub_cause_code: SubCauseCodeType }
    /// This DF is an alternative representation of the cause code value of a traffic event.
    #[derive(Copy, Hash)]
    CauseCodeV2 { cc_and_scc: CauseCodeChoice }
    /// The DF describes the position of a CEN DSRC road side equipment.
    #[derive(Copy, Hash)]
    CenDsrcTollingZone {
        protected_zone_latitude: Latitude,
        protected_zone_longitude: Longitude,
        cen_dsrc_tolling_zone_id: Option<ProtectedZoneId>,
    }
    /// This DF indicates the opening/closure status of the lanes of a carriageway.
    #[derive(Copy, Hash)]
    ClosedLanes {
        innerhard_shoulder_status: Option<HardShoulderStatus>,
        outerhard_shoulder_status: Option<HardShoulderStatus>,
        driving_lane_status: Option<DrivingLaneStatus>,
    }
    /// This DF provides information about the breakup of a cluster.
    #[derive(Copy, Hash)]
    ClusterBreakupInfo { cluster_breakup_reason: ClusterBreakupReason, breakup_time: DeltaTimeQuarterSecond }
    /// This DF provides information about the joining of a cluster.
    #[derive(Copy, Hash)]
    ClusterJoinInfo { cluster_id: Identifier1B, join_time: DeltaTimeQuarterSecond }
    /// The DF provides information about the leaving of a cluster.
    #[derive(Copy, Hash)]
    ClusterLeaveInfo { cluster_id: Identifier1B, cluster_leave_reason: ClusterLeaveReason }
    /// This DF provides a description of dangerous goods being carried by a heavy vehicle.
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
    /// This DF represents the top-level DF to represent a lane position. A lane position is a transversal
    /// position on the carriageway at a specific longitudinal position, in resolution of lanes of the
    /// carriageway.
    GeneralizedLanePosition {
        lane_position_based: LanePositionOptions,
        map_based: Option<MapPosition>,
        confidence: MetaInformation,
    }
    /// This DF provides information associated to heading change indicators such as a change of direction.
    #[derive(Copy, Hash)]
    HeadingChangeIndication { direction: TurningDirection, action_delta_time: DeltaTimeTenthOfSecond }
    /// This DF contains interference management information for one affected frequency channel.
    InterferenceManagementInfoPerChannel {
        interference_management_channel: InterferenceManagementChannel,
        interference_management_zone_type: InterferenceManagementZoneType,
        interference_management_mitigation_type: Option<MitigationForTechnologies>,
        expiry_time: Option<TimestampIts>,
    }
    /// This DF represents the geographical definition of the zone where band sharing occurs.
    InterferenceManagementZoneDefinition {
        interference_management_zone_latitude: Latitude,
        interference_management_zone_longitude: Longitude,
        interference_management_zone_id: Option<ProtectedZoneId>,
        interference_management_zone_shape: Option<Shape>,
    }
    /// This DF indicates a transversal position in resolution of lanes and other associated details.
    #[derive(Copy, Hash)]
    LanePositionAndType {
        transversal_position: LanePosition,
        lane_type: LaneType = LaneType(0),
        direction: Direction = Direction(0),
    }
    /// This DF is a third-level DF that represents a lane position and is an extended version of @ref
    /// LanePositionAndType that adds the distances to the left and right lane border.
    #[derive(Copy, Hash)]
    LanePositionWithLateralDetails {
        transversal_position: LanePosition,
        lane_type: LaneType = LaneType(0),
        direction: Direction = Direction(0),
        distance_to_left_border: StandardLength9b,
        distance_to_right_border: StandardLength9b,
    }
    /// This DF indicates a position on a topology description transmitted in a MAPEM according to ETSI TS 103
    /// 301 \[15\].
    #[derive(Copy, Hash)]
    MapPosition {
        map_reference: Option<MapReference>,
        lane_id: Option<Identifier1B>,
        connection_id: Option<Identifier1B>,
        longitudinal_lane_position: Option<LongitudinalLanePosition>,
    }
    /// This DF provides references to an element described in a MAPEM according to ETSI TS 103 301 \[i.15\],
    /// such as a lane or connection at a specific intersection or road segment.
    MapemElementReference {
        map_reference: Option<MapReference>,
        lane_ids: Option<MapemLaneList>,
        connection_ids: Option<MapemConnectionList>,
    }
    /// This DF provides information about the source of and confidence in information.
    #[derive(Copy, Hash)]
    MetaInformation {
        used_detection_information: SensorTypes,
        used_stored_information: StoredInformationType,
        confidence_value: Option<ConfidenceLevel>,
    }
    /// This DF represents a set of mitigation parameters for a specific technology, as specified in ETSI TS
    /// 103 724 \[24\], clause 7.
    #[derive(Copy, Hash)]
    MitigationPerTechnologyClass {
        access_technology_class: AccessTechnologyClass,
        low_duty_cycle: Option<LowDutyCycle>,
        power_reduction: Option<PowerReduction>,
        dmc_toff_limit: Option<DmcToffLimit>,
        dmc_ton_limit: Option<DmcTonLimit>,
    }
    /// This DF represents a set of lanes which are partially or fully occupied by an object or event at an
    /// externally defined reference position.
    OccupiedLanesWithConfidence {
        lane_position_based: LanePositionBased,
        map_based: Option<MapBased>,
        confidence: MetaInformation,
    }
    /// This DF provides detailed information about the parking capabilities and availabilities of a single
    /// parking space.
    ParkingSpaceDetailed {
        id: Identifier2B,
        location: Option<DeltaReferencePosition>,
        status: ParkingSpaceStatus,
        arrangement_type: Option<ParkingAreaArrangementType>,
        boundary: Option<DeltaPositions>,
        orientation: Option<Wgs84Angle>,
        occupancy_rule: ParkingOccupancyInfo,
        charging_station_id: Option<Identifier2B>,
        access_via_lane: Option<Identifier2B>,
        access_via_parking_spaces: Option<AccessViaParkingSpaces>,
        reservation_type: Option<ReservationType>,
    }
    /// This DF defines a predicted offset position that can be used within a predicted path or trajectory,
    /// together with optional data to describe a path zone shape.
    PathPointPredicted {
        delta_latitude: DeltaLatitude,
        delta_longitude: DeltaLongitude,
        horizontal_position_confidence: Option<PosConfidenceEllipse>,
        delta_altitude: DeltaAltitude = DeltaAltitude(12_800),
        altitude_confidence: AltitudeConfidence = AltitudeConfidence::Unavailable,
        path_delta_time: Option<PathDeltaTimeChoice>,
        symmetric_area_offset: Option<StandardLength9b>,
        asymmetric_area_offset: Option<StandardLength9b>,
    }
    /// This DF represents a predicted path, predicted trajectory or predicted path zone together with usage
    /// information and a prediction confidence.
    PathPredicted2 {
        path_predicted: PathPredicted,
        usage_indication: UsageIndication,
        confidence_level: ConfidenceLevel,
    }
    /// This DE contains information about the status of a vehicle pedal.
    #[derive(Copy, Hash)]
    PedalStatus { pedal_position_value: PedalPositionValue }
    /// This DF contains information about a perceived object including its kinematic state and attitude
    /// vector in a pre-defined coordinate system and with respect to a reference time.
    PerceivedObject {
        object_id: Option<Identifier2B>,
        measurement_delta_time: DeltaTimeMilliSecondSigned,
        position: CartesianPosition3dWithConfidence,
        velocity: Option<Velocity3dWithConfidence>,
        acceleration: Option<Acceleration3dWithConfidence>,
        angles: Option<EulerAnglesWithConfidence>,
        z_angular_velocity: Option<CartesianAngularVelocityComponent>,
        lower_triangular_correlation_matrices: Option<LowerTriangularPositiveSemidefiniteMatrices>,
        object_dimension_z: Option<ObjectDimension>,
        object_dimension_y: Option<ObjectDimension>,
        object_dimension_x: Option<ObjectDimension>,
        object_age: Option<ObjectAge>,
        object_perception_quality: Option<ObjectPerceptionQuality>,
        sensor_id_list: Option<SequenceOfIdentifier1B>,
        classification: Option<ObjectClassDescription>,
        map_position: Option<MapPosition>,
    }
    /// This DF describes a zone of protection inside which the ITS communication should be restricted.
    #[derive(Copy, Hash)]
    ProtectedCommunicationZone {
        protected_zone_type: ProtectedZoneType,
        expiry_time: Option<TimestampIts>,
        protected_zone_latitude: Latitude,
        protected_zone_longitude: Longitude,
        protected_zone_radius: Option<ProtectedZoneRadius>,
        protected_zone_id: Option<ProtectedZoneId>,
    }
    /// This DF provides configuration information about a road section.
    RoadConfigurationSection {
        road_section_definition: RoadSectionDefinition,
        road_type: Option<RoadType>,
        lane_configuration: Option<BasicLaneConfiguration>,
        mapem_configuration: Option<MapemConfiguration>,
    }
    /// This DF provides the basic topological definition of a road section.
    RoadSectionDefinition {
        starting_point_section: GeoPosition,
        length_of_section: Option<StandardLength2B>,
        ending_point_section: Option<GeoPosition>,
        connected_paths: PathReferences,
        included_paths: PathReferences,
        is_event_zone_included: bool,
        is_event_zone_connected: bool,
    }
    /// This DF provides the safe distance indication of a traffic participant with other traffic
    /// participant(s).
    #[derive(Copy, Hash)]
    SafeDistanceIndication {
        subject_station: Option<StationId>,
        safe_distance_indicator: SafeDistanceIndicator,
        time_to_collision: Option<DeltaTimeTenthOfSecond>,
    }
    /// This DF provides the indication of change in stability.
    #[derive(Copy, Hash)]
    StabilityChangeIndication {
        loss_probability: StabilityLossProbability,
        action_delta_time: DeltaTimeTenthOfSecond,
    }
    /// Ths DF represents the a position on a traffic island between two lanes.
    #[derive(Copy, Hash)]
    TrafficIslandPosition { one_side: LanePositionAndType, other_side: LanePositionAndType }
    /// This DF provides detailed information about an attached trailer.
    #[derive(Copy, Hash)]
    TrailerData {
        ref_point_id: Identifier1B,
        hitch_point_offset: StandardLength1B,
        front_overhang: Option<StandardLength1B>,
        rear_overhang: Option<StandardLength1B>,
        trailer_width: Option<VehicleWidth>,
        hitch_angle: CartesianAngle,
    }
    /// This DF provides the trajectory interception indication of ego-VRU ITS-S with another ITS-Ss.
    #[derive(Copy, Hash)]
    TrajectoryInterceptionIndication {
        subject_station: Option<StationId>,
        trajectory_interception_probability: TrajectoryInterceptionProbability,
        trajectory_interception_confidence: Option<TrajectoryInterceptionConfidence>,
    }
    /// This DF provides information related to the identification of a vehicle.
    VehicleIdentification { wmi_number: Option<WmiNumber>, vds: Option<Vds> }
    /// This DF provides information about the status of the vehicle´s movement control mechanisms.
    #[derive(Copy, Hash)]
    VehicleMovementControl {
        acceleration_pedal_status: PedalStatus,
        brake_pedal_status: PedalStatus,
        sae_automation_level: Option<SaeAutomationLevel>,
        automation_control: Option<AutomationControl>,
        acceleration_control: Option<AccelerationControl>,
        acceleration_control_extension: Option<AccelerationControlExtension>,
    }
    /// This DF provides information about a VRU cluster.
    VruClusterInformation {
        cluster_id: Option<Identifier1B>,
        cluster_bounding_box_shape: Option<Shape>,
        cluster_cardinality_size: CardinalNumber1B,
        cluster_profiles: Option<VruClusterProfiles>,
    }
    /// This DF represents the status of the exterior light switches of a VRU. This DF is an extension of the
    /// vehicular DE @ref ExteriorLights.
    #[derive(Copy, Hash)]
    VruExteriorLights { vehicular: ExteriorLights, vru_specific: VruSpecificExteriorLights }
}

choices! {
    /// Specification of CDD Data Frames:
    #[derive(Copy, Hash)]
    Acceleration3dWithConfidence {
        PolarAcceleration(AccelerationPolarWithZ),
        CartesianAcceleration(AccelerationCartesian),
    }
    /// This DF is a representation of the cause code value and associated sub cause code value of a traffic
    /// event.
    #[derive(Copy, Hash)]
    CauseCodeChoice {
        Reserved0(SubCauseCodeType),
        TrafficCondition1(TrafficConditionSubCauseCode),
        Accident2(AccidentSubCauseCode),
        Roadworks3(RoadworksSubCauseCode),
        DetectedRoadworks4(SubCauseCodeType),
        Impassability5(ImpassabilitySubCauseCode),
        Adhesion6(AdhesionSubCauseCode),
        Aquaplaning7(SubCauseCodeType),
        Reserved8(SubCauseCodeType),
        HazardousLocationSurfaceCondition9(HazardousLocationSurfaceConditionSubCauseCode),
        HazardousLocationObstacleOnTheRoad10(HazardousLocationObstacleOnTheRoadSubCauseCode),
        HazardousLocationAnimalOnTheRoad11(HazardousLocationAnimalOnTheRoadSubCauseCode),
        HumanPresenceOnTheRoad12(HumanPresenceOnTheRoadSubCauseCode),
        Reserved13(SubCauseCodeType),
        WrongWayDriving14(WrongWayDrivingSubCauseCode),
        RescueRecoveryAndMaintenanceWorkInProgress15(RescueRecoveryAndMaintenanceWorkInProgressSubCauseCode),
        Reserved16(SubCauseCodeType),
        AdverseWeatherConditionWind17(AdverseWeatherConditionWindSubCauseCode),
        AdverseWeatherConditionVisibility18(AdverseWeatherConditionVisibilitySubCauseCode),
        AdverseWeatherConditionPrecipitation19(AdverseWeatherConditionPrecipitationSubCauseCode),
        Violence20(SubCauseCodeType),
        Reserved21(SubCauseCodeType),
        Reserved22(SubCauseCodeType),
        Reserved23(SubCauseCodeType),
        Reserved24(SubCauseCodeType),
        Reserved25(SubCauseCodeType),
        SlowVehicle26(SlowVehicleSubCauseCode),
        DangerousEndOfQueue27(DangerousEndOfQueueSubCauseCode),
        PublicTransportVehicleApproaching28(SubCauseCodeType),
        Reserved29(SubCauseCodeType),
        Reserved30(SubCauseCodeType),
        Reserved31(SubCauseCodeType),
        Reserved32(SubCauseCodeType),
        Reserved33(SubCauseCodeType),
        Reserved34(SubCauseCodeType),
        Reserved35(SubCauseCodeType),
        Reserved36(SubCauseCodeType),
        Reserved37(SubCauseCodeType),
        Reserved38(SubCauseCodeType),
        Reserved39(SubCauseCodeType),
        Reserved40(SubCauseCodeType),
        Reserved41(SubCauseCodeType),
        DontPanic42(SubCauseCodeType),
        Reserved43(SubCauseCodeType),
        Reserved44(SubCauseCodeType),
        Reserved45(SubCauseCodeType),
        Reserved46(SubCauseCodeType),
        Reserved47(SubCauseCodeType),
        Reserved48(SubCauseCodeType),
        Reserved49(SubCauseCodeType),
        Reserved50(SubCauseCodeType),
        Reserved51(SubCauseCodeType),
        Reserved52(SubCauseCodeType),
        Reserved53(SubCauseCodeType),
        Reserved54(SubCauseCodeType),
        Reserved55(SubCauseCodeType),
        Reserved56(SubCauseCodeType),
        Reserved57(SubCauseCodeType),
        Reserved58(SubCauseCodeType),
        Reserved59(SubCauseCodeType),
        Reserved60(SubCauseCodeType),
        Reserved61(SubCauseCodeType),
        Reserved62(SubCauseCodeType),
        Reserved63(SubCauseCodeType),
        Reserved64(SubCauseCodeType),
        Reserved65(SubCauseCodeType),
        Reserved66(SubCauseCodeType),
        Reserved67(SubCauseCodeType),
        Reserved68(SubCauseCodeType),
        Reserved69(SubCauseCodeType),
        Reserved70(SubCauseCodeType),
        Reserved71(SubCauseCodeType),
        Reserved72(SubCauseCodeType),
        Reserved73(SubCauseCodeType),
        Reserved74(SubCauseCodeType),
        Reserved75(SubCauseCodeType),
        Reserved76(SubCauseCodeType),
        Reserved77(SubCauseCodeType),
        Reserved78(SubCauseCodeType),
        Reserved79(SubCauseCodeType),
        Reserved80(SubCauseCodeType),
        Reserved81(SubCauseCodeType),
        Reserved82(SubCauseCodeType),
        Reserved83(SubCauseCodeType),
        Reserved84(SubCauseCodeType),
        Reserved85(SubCauseCodeType),
        Reserved86(SubCauseCodeType),
        Reserved87(SubCauseCodeType),
        Reserved88(SubCauseCodeType),
        Reserved89(SubCauseCodeType),
        Reserved90(SubCauseCodeType),
        VehicleBreakdown91(VehicleBreakdownSubCauseCode),
        PostCrash92(PostCrashSubCauseCode),
        HumanProblem93(HumanProblemSubCauseCode),
        StationaryVehicle94(StationaryVehicleSubCauseCode),
        EmergencyVehicleApproaching95(EmergencyVehicleApproachingSubCauseCode),
        HazardousLocationDangerousCurve96(HazardousLocationDangerousCurveSubCauseCode),
        CollisionRisk97(CollisionRiskSubCauseCode),
        SignalViolation98(SignalViolationSubCauseCode),
        DangerousSituation99(DangerousSituationSubCauseCode),
        RailwayLevelCrossing100(RailwayLevelCrossingSubCauseCode),
        Reserved101(SubCauseCodeType),
        Reserved102(SubCauseCodeType),
        Reserved103(SubCauseCodeType),
        Reserved104(SubCauseCodeType),
        Reserved105(SubCauseCodeType),
        Reserved106(SubCauseCodeType),
        Reserved107(SubCauseCodeType),
        Reserved108(SubCauseCodeType),
        Reserved109(SubCauseCodeType),
        Reserved110(SubCauseCodeType),
        Reserved111(SubCauseCodeType),
        Reserved112(SubCauseCodeType),
        Reserved113(SubCauseCodeType),
        Reserved114(SubCauseCodeType),
        Reserved115(SubCauseCodeType),
        Reserved116(SubCauseCodeType),
        Reserved117(SubCauseCodeType),
        Reserved118(SubCauseCodeType),
        Reserved119(SubCauseCodeType),
        Reserved120(SubCauseCodeType),
        Reserved121(SubCauseCodeType),
        Reserved122(SubCauseCodeType),
        Reserved123(SubCauseCodeType),
        Reserved124(SubCauseCodeType),
        Reserved125(SubCauseCodeType),
        Reserved126(SubCauseCodeType),
        Reserved127(SubCauseCodeType),
        Reserved128(SubCauseCodeType),
    }
    /// This DF represents a vehicle category according to the UNECE/TRANS/WP.29/78/Rev.4 \[16\]. The
    /// following options are available:
    #[derive(Copy, Hash)]
    EuVehicleCategoryCode {
        EuVehicleCategoryL(EuVehicleCategoryL),
        EuVehicleCategoryM(EuVehicleCategoryM),
        EuVehicleCategoryN(EuVehicleCategoryN),
        EuVehicleCategoryO(EuVehicleCategoryO),
        EuVehicleCategoryT(Null),
        EuVehicleCategoryG(Null),
    }
    /// `Ext1` of `ETSI-ITS-CDD`.
    #[derive(Copy, Hash)]
    Ext1 { Content(Content), Extension(Ext2) }
    /// `Ext2` of `ETSI-ITS-CDD`.
    #[derive(Copy, Hash)]
    Ext2 { Content(Ext2Content), Extension(Ext3) }
    /// This DF provides the reference to the information contained in a MAPEM according to ETSI TS 103 301
    /// \[15\].
    #[derive(Copy, Hash)]
    MapReference { Roadsegment(RoadSegmentReferenceId), Intersection(IntersectionReferenceId) }
    /// This DF together with its sub DFs Ext1, Ext2 and the DE Ext3 provides the custom (i.e. not ASN.1
    /// standard) definition of an integer with variable lenght, that can be used for example to encode the
    /// ITS-AID.
    #[derive(Copy, Hash)]
    VarLengthNumber { Content(VarLengthNumberContent), Extension(Ext1) }
    /// This DF represents a velocity vector with associated confidence value.
    #[derive(Copy, Hash)]
    Velocity3dWithConfidence { PolarVelocity(VelocityPolarWithZ), CartesianVelocity(VelocityCartesian) }
}

extensible_choices! {
    /// This DF represents a set of options to describe a lane position and is the second level DF to
    /// represent a lane position. The top-level DFs are @ref GeneralizedLanePosition or @ref
    /// OccupiedLanesWithConfidence. A lane position is a transversal position on the carriageway at a
    /// specific longitudinal position, in resolution of lanes of the carriageway.
    LanePositionOptions {
        SimplelanePosition(LanePosition),
        SimpleLaneType(LaneType),
        DetailedlanePosition(LanePositionAndType),
        LanePositionWithLateralDetails(LanePositionWithLateralDetails),
        TrafficIslandPosition(TrafficIslandPosition),
    }
    /// This DF indicates both the class and associated subclass that best describes an object.
    ObjectClass {
        VehicleSubClass(VehicleSubClass),
        VruSubClass(VruProfileAndSubprofile),
        GroupSubClass(VruClusterInformation),
        OtherSubClass(OtherSubClass),
    }
    /// This DF indicates the allowed type of occupancy of a parking space/area in terms of time and/or usage.
    ParkingOccupancyInfo {
        Unknown(Null),
        UnlimitedOccupancy(Null),
        OnlyWhileCharging(Null),
        LimitedDuration(i64),
        OnlyWhileChargingLimitedDuration(i64),
        ParkingAllowedUntil(TimestampIts),
        ForcedParkingUntil(TimestampIts),
    }
    /// This DF indicates the status of parking space.
    ParkingSpaceStatus {
        Unknown(Null),
        Free(Null),
        FreeUntil(TimestampIts),
        FullyOccupied(Null),
        PartiallyOccupied(PartiallyOccupied),
        OccupiedUntil(TimestampIts),
        ReservedUntil(TimestampIts),
        AccessBlocked(Null),
        RetrictedUsage(Null),
    }
    /// This DF represents estimated/predicted travel time between a position and a predefined reference
    /// position.
    PathDeltaTimeChoice {
        DeltaTimeHighPrecision(DeltaTimeTenthOfSecond),
        DeltaTimeBigRange(DeltaTimeTenSeconds),
    } {
        DeltaTimeMidRange(DeltaTimeSecond),
    }
    /// The data frame PolygonalLine shall contain the definition of a polygonal line (also known as polygonal
    /// chain) w.r.t. an externally defined reference position.
    PolygonalLine {
        DeltaPositions(DeltaPositions),
        DeltaPositionsWithAltitude(DeltaReferencePositions),
        AbsolutePositions(GeoPositionsWoAltitude),
        AbsolutePositionsWithAltitude(GeoPositionsWAltitude),
    }
    /// This DF provides the definition of a geographical area or volume, based on different options.
    Shape {
        Rectangular(RectangularShape),
        Circular(CircularShape),
        Polygonal(PolygonalShape),
        Elliptical(EllipticalShape),
        Radial(RadialShape),
        RadialShapes(RadialShapes),
    }
    /// This DF indicates the profile of a VRU including sub-profile information It identifies four options
    /// corresponding to the four types of VRU profiles specified in ETSI TS 103 300-2 \[18\]:
    VruProfileAndSubprofile {
        Pedestrian(VruSubProfilePedestrian),
        BicyclistAndLightVruVehicle(VruSubProfileBicyclist),
        Motorcyclist(VruSubProfileMotorcyclist),
        Animal(VruSubProfileAnimal),
    }
}
