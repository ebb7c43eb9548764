//! Why an event happens: cause codes, and what is said of roadworks and dangerous goods.

use crate::uper::macros::{
    enumerated, extensible_enumerated, extensible_sequences, integers, lists, strings,
};
use crate::uper::{Error, Reader, Uper, Writer};

use super::StationType;

integers! {
    /// A cause; [`cause`] has their names.
    CauseCodeType(u8) 0..=255, default 0;
    /// More precisely, within a cause; 0 where nothing is known.
    SubCauseCodeType(u8) 0..=255, default 0;
    /// More precisely, among roadworks.
    RoadworksSubCauseCode(u8) 0..=255, default 0 {
        UNAVAILABLE = 0, MAJOR_ROADWORKS = 1, ROAD_MARKING_WORK = 2, SLOW_MOVING_ROAD_MAINTENANCE = 3,
        SHORT_TERM_STATIONARY_ROADWORKS = 4, STREET_CLEANING = 5, WINTER_SERVICE = 6,
    };
    /// How good what is known of an event is, 1 to 7; 0 if that is unknown.
    InformationQuality(u8) 0..=7, default 0 { UNAVAILABLE = 0, LOWEST = 1, HIGHEST = 7 };
    /// The UN number of a substance.
    UnNumber(u16) 0..=9999, default 0;
}

/// The causes of CauseCodeType, of release 1.
#[allow(missing_docs, reason = "named numbers of the standard")]
pub mod cause {
    use super::CauseCodeType;

    pub const TRAFFIC_CONDITION: CauseCodeType = CauseCodeType(1);
    pub const ACCIDENT: CauseCodeType = CauseCodeType(2);
    pub const ROADWORKS: CauseCodeType = CauseCodeType(3);
    pub const IMPASSABILITY: CauseCodeType = CauseCodeType(5);
    pub const ADVERSE_WEATHER_ADHESION: CauseCodeType = CauseCodeType(6);
    pub const AQUAPLANING: CauseCodeType = CauseCodeType(7);
    pub const HAZARDOUS_LOCATION_SURFACE_CONDITION: CauseCodeType = CauseCodeType(9);
    pub const HAZARDOUS_LOCATION_OBSTACLE_ON_THE_ROAD: CauseCodeType = CauseCodeType(10);
    pub const HAZARDOUS_LOCATION_ANIMAL_ON_THE_ROAD: CauseCodeType = CauseCodeType(11);
    pub const HUMAN_PRESENCE_ON_THE_ROAD: CauseCodeType = CauseCodeType(12);
    pub const WRONG_WAY_DRIVING: CauseCodeType = CauseCodeType(14);
    pub const RESCUE_AND_RECOVERY_WORK_IN_PROGRESS: CauseCodeType = CauseCodeType(15);
    pub const ADVERSE_WEATHER_EXTREME_CONDITION: CauseCodeType = CauseCodeType(17);
    pub const ADVERSE_WEATHER_VISIBILITY: CauseCodeType = CauseCodeType(18);
    pub const ADVERSE_WEATHER_PRECIPITATION: CauseCodeType = CauseCodeType(19);
    pub const SLOW_VEHICLE: CauseCodeType = CauseCodeType(26);
    pub const DANGEROUS_END_OF_QUEUE: CauseCodeType = CauseCodeType(27);
    pub const VEHICLE_BREAKDOWN: CauseCodeType = CauseCodeType(91);
    pub const POST_CRASH: CauseCodeType = CauseCodeType(92);
    pub const HUMAN_PROBLEM: CauseCodeType = CauseCodeType(93);
    pub const STATIONARY_VEHICLE: CauseCodeType = CauseCodeType(94);
    pub const EMERGENCY_VEHICLE_APPROACHING: CauseCodeType = CauseCodeType(95);
    pub const HAZARDOUS_LOCATION_DANGEROUS_CURVE: CauseCodeType = CauseCodeType(96);
    pub const COLLISION_RISK: CauseCodeType = CauseCodeType(97);
    pub const SIGNAL_VIOLATION: CauseCodeType = CauseCodeType(98);
    pub const DANGEROUS_SITUATION: CauseCodeType = CauseCodeType(99);
}

enumerated! {
    /// Classes of dangerous goods.
    DangerousGoodsBasic {
        #[default] Explosives1, Explosives2, Explosives3, Explosives4, Explosives5, Explosives6, FlammableGases,
        NonFlammableGases, ToxicGases, FlammableLiquids, FlammableSolids, SubstancesLiableToSpontaneousCombustion,
        SubstancesEmittingFlammableGasesUponContactWithWater, OxidizingSubstances, OrganicPeroxides,
        ToxicSubstances, InfectiousSubstances, RadioactiveMaterial, CorrosiveSubstances,
        MiscellaneousDangerousSubstances,
    }
    /// For how long a vehicle has stood.
    StationarySince { #[default] LessThan1Minute, LessThan2Minutes, LessThan15Minutes, EqualOrGreater15Minutes }
}

extensible_enumerated! {
    /// A rule for the traffic at a place.
    TrafficRule { #[default] NoPassing, NoPassingForTrucks, PassToRight, PassToLeft }
}

extensible_sequences! {
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
}

strings! {
    /// What helpers do in an emergency.
    EmergencyActionCode Ia5 1..=24;
    /// A telephone number: digits and spaces.
    PhoneNumber Numeric 1..=16;
}

lists! {
    /// To which types of station a restriction applies.
    RestrictedTypes[StationType] 1..=3 [extensible];
}

/// A company's name, 1 to 24 characters.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CompanyName(pub String);

impl CompanyName {
    /// X.691 does not see the size of an UTF8String, so it costs no bits and has to be looked at here.
    fn wrong_size(&self) -> Option<Error> {
        let found = self.0.chars().count();
        let found = i64::try_from(found).unwrap_or(i64::MAX);
        (!(1..=24).contains(&found)).then_some(Error::OutOfRange {
            what: Self::NAME,
            least: 1,
            most: 24,
            found,
        })
    }
}

impl Uper for CompanyName {
    const NAME: &'static str = "CompanyName";

    fn decode(reader: &mut Reader<'_>) -> Self {
        let length = reader.length(Self::NAME);
        let octets = reader.octets(length, Self::NAME);
        let name = String::from_utf8(octets).map(CompanyName).unwrap_or_else(|error| {
            let bad = error.utf8_error().valid_up_to();
            let found = error.as_bytes().get(bad).copied().unwrap_or_default();
            reader.fail(Error::Character { what: Self::NAME, found });
            CompanyName::default()
        });
        if let Some(error) = name.wrong_size() {
            reader.fail(error);
        }
        name
    }

    fn encode(&self, writer: &mut Writer) {
        if let Some(error) = self.wrong_size() {
            return writer.fail(error);
        }
        writer.length(self.0.len(), Self::NAME);
        writer.octets(self.0.as_bytes());
    }
}
