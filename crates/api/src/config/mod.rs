//! The config file (TOML): types, defaults, reading and checking.
//!
//! [`Config::load_file`] reads a file. It returns a [`Config`] whose values have been checked alone and
//! against each other. Otherwise it returns [`ConfigErrors`] with all errors of the file, each with its line
//! and column. Each section of the file has a module here. The module declares the section's keys (`keys`),
//! reads them into the types of the program, and compares them with each other. A test writes the rows of
//! `docs/config.md` from the declarations.
//!
//! An undeclared key is an error, whose message has the most similar known key.

mod advice;
mod auth;
mod checks;
mod conflicts;
mod conformance;
mod dataplane;
mod disclosure;
mod document;
mod errors;
mod facilities;
mod geonet;
mod home_agent;
mod keys;
mod kinds;
mod mobile_router;
mod reader;
mod security;
mod session_keys;
mod station;
mod table;
mod values;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::time::Duration;

use toml::de::DeTable;

use document::UncheckedConfig;
use errors::ErrorSink;

pub use auth::{Auth, AuthWithFormerKeys, FormerKey, SharedKeyAuth};
pub use carnet_base::Key;
pub use carnet_geonet::ipv6_adaptation::ReorderHold;
pub use carnet_geonet::ipv6_adaptation::in_order::ReorderRule;
pub use carnet_geonet::mib::{AreaForwarding, NonAreaForwarding, Planarisation, UnknownSender, VoidRecovery};
pub use carnet_mobility::ReplayProtection;
pub use carnet_mobility::flow::FlowAction;
pub use carnet_mobility::home_agent::MultipleCareOfAddresses;
pub use carnet_mobility::mnpp::Authorization;
pub use carnet_mobility::mobile_router::{
    HeartbeatIntervals, RegistrationMode, SignalThresholds, VolumeAction,
};
pub use carnet_nemo::OwnTraffic;
pub use conformance::Conformance;
pub use dataplane::{Dataplane, DataplanePath};
pub use disclosure::{DisclosedConfig, LEFT_OUT_MARK, disclose_config, secret_keys};
pub use errors::{ConfigError, ConfigErrors};
pub use facilities::{Facilities, Service, VehicleRole};
pub use geonet::{
    Area, AreaShape, Beacon, BeaconInterval, Coordinates, Dcc, DccAlgorithm, DccTimeOnAir, Forwarding,
    Geonet, GeonetAddress, GeonetInterface, Ipv6, Mib, Mnpp, MultiHopBeacons, Multicast, PositionSource,
    StationType, UdpLink,
};
pub use home_agent::{AllowedRouter, HomeAgent, PeerAgent};
pub use mobile_router::{
    AllowedPackets, Dhcp, DhcpOption, DhcpReservation, HomeAgents, InboundFilter, InboundPolicy, Lan,
    MobileRouter, Policy, PolicyAction, PolicyNetworks, PolicyProtocol, ProbeUrl, RoamingUse, Uplink,
    VolumePeriod, values_or_any,
};
pub use security::{Pseudonyms, Security, SecurityPolicy};
pub use session_keys::{PrivateKey, PublicKey, SecretKey, SessionKeys, next_key_file};
pub use station::{Sandbox, Station, TcpApi};

/// A checked config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Values of the config table `[station]`.
    pub station: Station,
    /// Values of the config table `[dataplane]`.
    pub dataplane: Dataplane,
    /// `[home_agent]`; `None` if the station is no home agent.
    pub home_agent: Option<HomeAgent>,
    /// `[mobile_router]`, or `[mobile_node]`, which has no mobile network; `None` if the station is neither.
    pub mobile_router: Option<MobileRouter>,
    /// `[geonet]`; `None` if the station has no GeoNetworking.
    pub geonet: Option<Geonet>,
    /// `[facilities]`; `None` if the station has none.
    pub facilities: Option<Facilities>,
    /// `[security]`; `None` if packets are unsecured.
    pub security: Option<Security>,
    /// `[conformance]`; `None` outside test systems.
    pub conformance: Option<Conformance>,
}

/// Reads a duration as the config file writes it: `"60s"`, `"1h30m"`.
///
/// # Errors
/// Returns the reason, and the expected form.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    values::parse_duration(text)
}

/// Reads a length as the config file writes it, in metres: `"300m"`, `"1km"`.
///
/// # Errors
/// Returns the reason, and the expected form.
pub fn parse_length(text: &str) -> Result<u16, String> {
    values::parse_length(text)
}

/// Reads a multicast group of more than link scope.
///
/// # Errors
/// Returns the reason, and the expected form.
pub fn parse_group(text: &str) -> Result<std::net::Ipv6Addr, String> {
    geonet::group(text)
}

impl Config {
    /// Reads and checks a config file.
    pub fn load_file(path: &Path) -> Result<Config, ConfigErrors> {
        let name = path.display().to_string();
        let octets = std::fs::read(path).map_err(|error| ConfigErrors::unreadable_file(&name, &error))?;
        match String::from_utf8(octets) {
            Ok(text) => Config::parse(&text, &name),
            Err(error) => {
                let good = error.utf8_error().valid_up_to();
                let text = String::from_utf8_lossy(error.as_bytes());
                Err(ConfigErrors::single_error(&name, &text, good, "no UTF-8 here, expected TOML in UTF-8"))
            }
        }
    }

    /// Checks the text of a config file. `file_name` appears in errors; relative paths in the config start in
    /// its directory.
    pub fn parse(text: &str, file_name: &str) -> Result<Config, ConfigErrors> {
        let sink = ErrorSink::new(file_name, text);
        let (document, syntax) = DeTable::parse_recoverable(text);
        if !syntax.is_empty() {
            return Err(ConfigErrors::syntax_errors(sink, &syntax));
        }
        let draft = UncheckedConfig::read_document(document.get_ref(), &sink);
        checks::check_between_tables(&draft, &sink);
        match (sink.into_errors(), draft.into_config()) {
            (None, Some(config)) => Ok(config),
            (Some(errors), _) => Err(errors),
            // All errors of the file have been reported above, so only a bug of the reader leads here.
            (None, None) => Err(ConfigErrors::single_error(file_name, text, 0, "the config is not complete")),
        }
    }

    /// Overwrites all keys with zeros. Called once the station has been built from the config.
    pub fn wipe_keys(&mut self) {
        let nodes = self.home_agent.iter_mut().flat_map(|agent| &mut agent.mobile_routers);
        let own = self.mobile_router.iter_mut().map(|router| &mut router.auth);
        nodes.map(|router| &mut router.node_auth).chain(own).for_each(Auth::wipe_keys);
        self.station.private_key.iter_mut().for_each(PrivateKey::wipe);
    }

    /// Returns whether IPsec protects messages.
    pub fn has_ipsec(&self) -> bool {
        let routers =
            self.home_agent.iter().flat_map(|agent| &agent.mobile_routers).map(|router| &router.node_auth);
        let own = self.mobile_router.iter().map(|router| &router.auth);
        routers.chain(own).any(|auth| *auth == Auth::Ipsec)
    }

    /// Returns whether this station has encrypted sessions.
    pub fn has_sessions(&self) -> bool {
        self.all_auths().any(|auth| auth.session_keys().is_some())
    }

    /// Returns whether all tunnels of the station are encrypted; false if the station has no tunnels.
    pub fn encrypts_all_tunnels(&self) -> bool {
        self.all_auths().count() > 0
            && self.all_auths().all(|auth| auth.session_keys().is_some())
            && !self.has_clear_tunnels_between_vehicles()
    }

    /// Returns whether the station may send packets to other vehicles in the clear.
    fn has_clear_tunnels_between_vehicles(&self) -> bool {
        self.mobile_router.as_ref().is_some_and(|router| {
            !router.direct_routes.is_empty() && !router.encrypts_direct_routes()
                || self.geonet.as_ref().is_some_and(|it| it.mnpp.is_some())
        })
    }

    /// Returns the encryption of the tunnels in words; `None` if the station has no tunnels.
    pub fn describe_encryption(&self) -> Option<String> {
        let all = self.all_auths().count();
        let encrypted = self.all_auths().filter(|auth| auth.session_keys().is_some()).count();
        let has_clear = self.has_clear_tunnels_between_vehicles();
        match (all, encrypted) {
            (0, _) => None,
            (_, 0) => Some("in the clear".to_owned()),
            _ if all == encrypted && has_clear => {
                Some("encrypted, packets between vehicles in the clear".to_owned())
            }
            _ if all == encrypted => Some("encrypted".to_owned()),
            _ => Some(format!("{encrypted} of {all} encrypted, the others in the clear")),
        }
    }

    /// Returns the `auth` values of this station and of its mobile routers.
    fn all_auths(&self) -> impl Iterator<Item = &Auth> {
        let routers = self.home_agent.iter().flat_map(|agent| &agent.mobile_routers);
        routers.map(|router| &router.node_auth).chain(self.mobile_router.iter().map(|router| &router.auth))
    }

    /// Returns warnings about a valid config, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let has_state_dir = self.station.state_dir.is_some();
        if let Some(agent) = &self.home_agent {
            warnings.extend(agent.warnings(has_state_dir));
        }
        if let Some(router) = &self.mobile_router {
            warnings.extend(router.warnings(has_state_dir));
        }
        if let Some(conformance) = &self.conformance {
            warnings.push(format!(
                "conformance.upper_tester: anyone who reaches {} can steer this station",
                conformance.upper_tester
            ));
        }
        warnings
    }
}
