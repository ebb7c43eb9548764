//! The config file of a member of a fleet.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use carnet_fleet::LeadershipConfig;
use carnet_linux::ProbedNeighbour;
use nix::net::if_::if_nametoindex;
use serde::Deserialize;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::access::AccessFiles;
use crate::agent::AgentParameters;
use crate::etcd::StoreServer;
use crate::links::WatchedLinks;

const HTTPS_SCHEME: &str = "https://";
const HTTP_SCHEME: &str = "http://";

/// Content of the config file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Name of this member.
    pub member: String,
    /// Servers of etcd, the fleet's store, as `https://HOST:PORT` or `http://HOST:PORT`.
    pub store: Vec<String>,
    /// Certificates and user for the servers.
    #[serde(default)]
    pub access: AccessFiles,
    /// Prefix of all keys of this fleet in the store.
    #[serde(default = "default_program_name")]
    pub fleet: String,
    /// Directory of the sockets between this program and its home agents.
    #[serde(default = "default_run_directory")]
    pub directory: PathBuf,
    /// Path of the carnet program.
    #[serde(default = "default_carnet_program")]
    pub program: PathBuf,
    /// Times that replace the defaults.
    #[serde(default)]
    pub times: TimeLimits,
    /// Name of the seat (the home agent that the fleet runs).
    pub seat: String,
    /// Path of the home agent's config.
    pub config: PathBuf,
    /// Members that may be the leader, the preferred one first.
    pub members: Vec<String>,
    /// Interfaces of this member. The member counts as cut off unless all of them have a carrier.
    #[serde(default)]
    pub links: Vec<String>,
    /// Neighbours, as `ADDRESS` or `ADDRESS%INTERFACE`. The member counts as cut off unless at least one of
    /// them answers.
    #[serde(default)]
    pub reach: Vec<String>,
}

/// Times by which the members decide which of them runs the home agent, in milliseconds.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TimeLimits {
    beat_ms: Option<u64>,
    lease_ms: Option<u64>,
    patience_ms: Option<u64>,
    settled_ms: Option<u64>,
    reach_ms: Option<u64>,
}

fn default_program_name() -> String {
    "carnet".into()
}

fn default_run_directory() -> PathBuf {
    "/run/carnet-fleet".into()
}

fn default_carnet_program() -> PathBuf {
    "carnet".into()
}

/// Returns whether a text can be a part of a key in etcd and of a file's name.
fn is_valid_name(text: &str) -> bool {
    !text.is_empty()
        && text.chars().all(|one| one.is_ascii_alphanumeric() || "-_.".contains(one))
        && !text.starts_with('.')
}

fn is_interface_name(text: &str) -> bool {
    (1..=15).contains(&text.len()) && !text.chars().any(|one| one.is_whitespace() || "/:%".contains(one))
}

/// Parses a neighbour; a link-local address needs its interface. Returns `None` for an invalid text.
fn parse_neighbour(text: &str) -> Option<ProbedNeighbour> {
    let (address, interface) = match text.split_once('%') {
        Some((address, interface)) => (address, Some(interface)),
        None => (text, None),
    };
    let address: Ipv6Addr = address.parse().ok()?;
    let somebody = !address.is_unspecified() && !address.is_multicast() && !address.is_loopback();
    let there = match interface {
        Some(interface) => is_interface_name(interface),
        None => !address.is_unicast_link_local(),
    };
    (somebody && there).then(|| ProbedNeighbour { address, interface: interface.map(str::to_owned) })
}

/// Splits the URL of a server into its scheme, and its name with the port. Returns `None` for an invalid URL.
fn split_server_url(text: &str) -> Option<(&'static str, &str)> {
    let (scheme, rest) = [HTTPS_SCHEME, HTTP_SCHEME]
        .into_iter()
        .find_map(|scheme| Some((scheme, text.strip_prefix(scheme)?.trim_end_matches('/'))))?;
    let (host, port) = rest.rsplit_once(':')?;
    // An IPv6 address must be in brackets. Otherwise its last part would be taken for the port.
    let is_host = !host.is_empty() && (!host.contains(':') || host.starts_with('[') && host.ends_with(']'));
    (is_host && port.parse::<u16>().is_ok()).then_some((scheme, rest))
}

/// Returns the name that the certificate of a server has to contain.
fn parse_server_name(host_and_port: &str) -> anyhow::Result<ServerName<'static>> {
    let host = host_and_port.rsplit_once(':').map_or(host_and_port, |(host, _)| host);
    let address = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    // Brackets may contain only an IPv6 address.
    let named = match address {
        Some(address) => {
            address.parse::<Ipv6Addr>().ok().map(|address| ServerName::from(IpAddr::from(address)))
        }
        None => ServerName::try_from(host.to_owned()).ok(),
    };
    named.with_context(|| {
        format!("store: expected a name or an address that a certificate can be for, found {host:?}")
    })
}

impl Config {
    /// Reads the config from a file.
    ///
    /// # Errors
    /// Returns the mistake and its place in the file.
    pub fn load_config(path: &Path) -> anyhow::Result<Config> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut config: Config = toml::from_str(&text).with_context(|| path.display().to_string())?;
        let beside = path.parent().unwrap_or(Path::new("."));
        config.config = beside.join(&config.config);
        config.access.resolve_paths_in(beside);
        config.check().with_context(|| path.display().to_string())?;
        Ok(config)
    }

    fn check(&self) -> anyhow::Result<()> {
        let own = [("member", &self.member), ("fleet", &self.fleet), ("seat", &self.seat)];
        for (key, name) in own.into_iter().chain(self.members.iter().map(|name| ("members", name))) {
            ensure!(
                is_valid_name(name),
                "{key}: expected a name of letters, digits, '-', '_' and '.', found {name:?}"
            );
        }
        ensure!(
            self.directory.is_absolute(),
            "directory: expected an absolute path, found {:?}",
            self.directory.display().to_string()
        );
        self.store_servers()?;
        ensure!(
            self.members.contains(&self.member),
            "members: expected the name of this member, {:?}, in the list",
            self.member
        );
        for (index, member) in self.members.iter().enumerate() {
            ensure!(
                !self.members[..index].contains(member),
                "members: expected each member once, found {member:?} twice"
            );
        }
        for link in &self.links {
            ensure!(is_interface_name(link), "links: expected names of network interfaces, found {link:?}");
        }
        for text in &self.reach {
            ensure!(
                parse_neighbour(text).is_some(),
                "reach: expected unicast addresses of IPv6, link-local ones with an interface \
                 (fe80::1%eth0), found {text:?}"
            );
        }
        ensure!(
            self.silence_limit() >= Duration::from_millis(100),
            "times: expected a reach_ms of at least 100, found {}",
            self.silence_limit().as_millis()
        );
        let times = self.seat_config();
        ensure!(
            times.keep_alive_interval >= Duration::from_millis(10)
                && times.lease_duration >= times.keep_alive_interval * 4,
            "times: expected beat_ms of at least 10 and lease_ms of at least four times beat_ms, found \
             beat_ms {} and lease_ms {}",
            times.keep_alive_interval.as_millis(),
            times.lease_duration.as_millis()
        );
        Ok(())
    }

    /// Returns the parameters of the home agent's process.
    pub fn agent_parameters(&self) -> AgentParameters {
        AgentParameters {
            carnet_program: self.program.clone(),
            config: self.config.clone(),
            socket_directory: self.directory.clone(),
            name: self.seat.clone(),
        }
    }

    /// Checks the home agent's config. Returns warnings about both configs: settings that are valid but
    /// probably not intended.
    ///
    /// # Errors
    /// Returns the mistakes in the home agent's config.
    pub fn check_agent(&self) -> anyhow::Result<Vec<String>> {
        let table = self.agent_parameters().check_agent_config()?;
        let mut warnings = Vec::new();
        if table.get("station").and_then(|station| station.get("state_dir")).is_some() {
            warnings.push("config: station.state_dir is not used: the state is in etcd".to_owned());
        }
        let of_neighbours = self.reach.iter().filter_map(|text| parse_neighbour(text)?.interface);
        for interface in self.links.iter().cloned().chain(of_neighbours) {
            if if_nametoindex(interface.as_str()).is_err() {
                warnings.push(format!("links, reach: there is no interface {interface} here now"));
            }
        }
        let seat = self.seat_config();
        if seat.grace_period < seat.lease_duration {
            let (patience, lease) = (seat.grace_period.as_millis(), seat.lease_duration.as_millis());
            warnings.push(format!("times: a patience_ms of {patience} is less than the lease_ms of {lease}"));
        }
        Ok(warnings)
    }

    /// Returns the servers of the store, with the contents of the files that `[access]` names.
    ///
    /// # Errors
    /// Returns the mistake in the servers' URLs.
    pub fn store_servers(&self) -> anyhow::Result<Vec<StoreServer>> {
        let first = self.store.first().context("store: expected at least one server of etcd")?;
        let encrypted = first.starts_with(HTTPS_SCHEME);
        let mut places = Vec::new();
        for text in &self.store {
            let (scheme, place) = split_server_url(text).with_context(|| {
                format!(
                    "store: expected https://HOST:PORT or http://HOST:PORT, with an address of IPv6 in \
                     brackets, found {text:?}"
                )
            })?;
            let same = (scheme == HTTPS_SCHEME) == encrypted;
            ensure!(
                same,
                "store: expected https:// for all etcd servers or for none, found {first:?} and {text:?}"
            );
            places.push(place);
        }
        let access = self.access.read_files(encrypted)?;
        let server = |place: &str| {
            let name =
                access.tls_settings.as_ref().map(|tls| anyhow::Ok((tls.clone(), parse_server_name(place)?)));
            anyhow::Ok(StoreServer::new(place, name.transpose()?, access.etcd_user.clone()))
        };
        places.into_iter().map(server).collect()
    }

    /// Returns the time without any answer after which neighbours count as missing.
    fn silence_limit(&self) -> Duration {
        Duration::from_millis(self.times.reach_ms.unwrap_or(1000))
    }

    /// Returns the links and neighbours that this member has to watch.
    pub fn watched_links(&self) -> WatchedLinks {
        let reach = self.reach.iter().filter_map(|text| parse_neighbour(text)).collect();
        WatchedLinks {
            required_interfaces: self.links.clone(),
            neighbours_to_reach: reach,
            silence_limit: self.silence_limit(),
        }
    }

    /// Returns the settings by which this member takes and gives up the leadership of the home agent.
    pub fn seat_config(&self) -> LeadershipConfig {
        let mut seat = LeadershipConfig::new(&self.member, self.members.clone());
        let set = |time: &mut Duration, ms: Option<u64>| {
            if let Some(ms) = ms {
                *time = Duration::from_millis(ms);
            }
        };
        set(&mut seat.keep_alive_interval, self.times.beat_ms);
        set(&mut seat.lease_duration, self.times.lease_ms);
        set(&mut seat.grace_period, self.times.patience_ms);
        set(&mut seat.fail_back_delay, self.times.settled_ms);
        // A member detects a lost carrier at once. It detects a lost neighbour only after up to five
        // requests, of which four must have no answer. So if one fault cuts off all members, the last member
        // may report it later than the first, by up to twice the silence limit.
        if !self.reach.is_empty() {
            seat.wait_while_cut_off = seat.wait_while_cut_off.max(self.silence_limit() * 2);
        }
        seat.lease_margin = seat.lease_margin.min(seat.lease_duration / 4);
        seat
    }
}
