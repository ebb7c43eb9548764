//! Reads the config again while the station runs.

use std::net::SocketAddrV4;
use std::path::Path;

use carnet_api::config::{Config, Station};
use carnet_linux::clock;
use carnet_station::io::StoredStatePart;
use tracing::{error, info, warn};

use super::StationRunner;
use crate::geonet::Geonet;
use crate::sessions::Sessions;
use crate::settings;

/// Returns whether two sections `[station]` are equal except for their private keys, which the encrypted
/// sessions compare themselves.
fn is_same_station(one: &Station, other: &Station) -> bool {
    Station { private_key: None, ..one.clone() } == Station { private_key: None, ..other.clone() }
}

impl StationRunner {
    /// Opens the sessions' socket at another address, if the configured address has changed.
    fn move_session_socket(&mut self, before: Option<SocketAddrV4>) {
        if before == self.encrypted_sessions.get().and_then(Sessions::agent_socket) {
            return;
        }
        if let (Some(before), Some(platform)) = (before, &self.platform) {
            platform.datagram_sockets().close_socket_at(before);
        }
        if let Err(error) = self.open_session_socket() {
            error!("{error:#}");
        }
    }

    /// Reads the config again and applies the differences. A config with errors changes nothing.
    pub(super) fn reload_config(&mut self, path: &Path, store: Option<&Path>) {
        let mut config = match Config::load_file(path).map(Box::new) {
            Ok(config) => config,
            Err(errors) => {
                error!("cannot apply the changed config: {errors}");
                if self.enforced_limits.is_some() && errors.to_string().contains("Permission denied") {
                    error!(
                        "the changed config needs a file that the sandbox forbids, because the config at the \
                         start did not name it: restart the station"
                    );
                }
                return;
            }
        };
        super::set_state_directory(&mut config, store);
        let sections = [
            ("[station]", !is_same_station(&config.station, &self.config.station)),
            ("[dataplane]", config.dataplane != self.config.dataplane),
            ("[geonet]", config.geonet != self.config.geonet),
            ("[facilities]", config.facilities != self.config.facilities),
            ("[security]", config.security != self.config.security),
            ("[conformance]", config.conformance != self.config.conformance),
        ];
        if self.platform.is_none() && settings::needs_platform(&config) {
            error!(
                "cannot apply the changed config: a station with [geonet] alone needs a restart to add a \
                 role"
            );
            return;
        }
        if let Some((section, _)) = sections.iter().find(|(_, changed)| *changed) {
            error!("cannot apply the changed config: a change in {section} needs a restart of the station");
            return;
        }
        // A reload cannot start or end encrypted sessions, because they need a socket and the state file.
        if config.has_sessions() != self.encrypted_sessions.get().is_some()
            || self
                .encrypted_sessions
                .get()
                .is_some_and(|sessions| !sessions.has_key_of(config.station.private_key.as_ref()))
        {
            error!(
                "cannot apply the changed config: to add the first public key, remove the last one or change \
                 the private key, restart the station"
            );
            return;
        }
        let plan = settings::sandbox::sandbox_plan(&config, path);
        if self.enforced_limits.is_some()
            && let Some(what) = settings::sandbox::missing_right(&self.sandbox_plan, &plan)
        {
            error!(
                "cannot apply the changed config: it needs {what}, which the sandbox gave up at the start; \
                 restart the station"
            );
            return;
        }
        if let Some(Err(error)) =
            self.platform.as_mut().map(|platform| platform.set_ipsec(config.has_ipsec()))
        {
            error!("cannot apply the changed config: {error}");
            return;
        }
        for warning in config.warnings() {
            warn!("{warning}");
        }
        self.recorder.end_recording("a reload of the config cannot be replayed");
        if let Some(platform) = &mut self.platform {
            platform.watch_interfaces(settings::platform_config(&config).watched_interfaces);
            platform.set_interface_roles(settings::interface_roles(&config));
            platform.make_room_for_bindings(&settings::fast_path_config(
                &config,
                self.station.nemo().flow_label_key(),
            ));
        }
        // A new uplink must accept Router Advertisements before the platform checks its settings. A removed
        // uplink stops accepting them only after the check.
        let uplinks = settings::interface_roles(&config).uplinks;
        let both = [settings::interface_roles(&self.config).uplinks, uplinks.clone()].concat();
        if let Some(geonet) = self.geonet.get_mut() {
            geonet.interfaces.set_uplinks(both);
        }
        let gn_address = self.geonet.get().and_then(Geonet::address);
        let station_config = settings::station_config(&config, gn_address);
        let before = self.encrypted_sessions.get().and_then(Sessions::agent_socket);
        if let Some(sessions) = self.encrypted_sessions.get_mut() {
            sessions.reconfigure(clock::now(), &config);
        }
        self.move_session_socket(before);
        config.wipe_keys();
        let (now, wall) = (clock::now(), clock::wall_time());
        let before = self.station.nemo().persistent_state(now, wall).home_agent;
        self.station.reconfigure(now, wall, station_config);
        self.prepare_direct_sessions();
        self.store_state_part(StoredStatePart::Own);
        // For nodes that the home agent no longer serves, only the replay protection remains. This includes
        // nodes that registered before the home agent was switched off. Registrations that the config no
        // longer allows are removed.
        for stored in before {
            let home_address = stored.home_address;
            if self.station.nemo().stored_binding(now, wall, home_address) != Some(stored) {
                self.store_state_part(StoredStatePart::Node(home_address));
            }
        }
        self.lan_services.reconfigure(&config, now, wall);
        for lan in config.mobile_router.iter().flat_map(|router| &router.lan_interfaces) {
            if let Some(interface) = self.station.nemo().interface(&lan.interface) {
                self.lan_services.handle_interface(now, interface, true);
            }
        }
        self.config = config;
        self.carry_out_outputs();
        self.carry_out_lan();
        if let Some(geonet) = self.geonet.get_mut() {
            geonet.interfaces.set_uplinks(uplinks);
        }
        self.report_uplink_changes();
        info!("applied the changed config");
        self.warn_of_missing_interfaces();
    }
}
