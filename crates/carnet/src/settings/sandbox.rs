//! Converts the config to the list of rights that the process keeps ([`carnet_linux::sandbox`]).
//!
//! The plan allows folders instead of the files in them, because other programs replace files: editors,
//! config management, programs that measure signals. In a folder that many programs share (`/etc`, a home),
//! the plan allows only the file. If a new file replaces this file, the process cannot read it before the
//! next start.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use carnet_api::config::{Config, DataplanePath, GeonetInterface, PositionSource, disclose_config};
use carnet_linux::run_with_secrets;
use carnet_linux::sandbox::SandboxPlan;

use super::lan::{dhcp_servers, dhcpv6_servers};
use super::{GeonetPathChoice, geonet_path, needs_platform, undo_file};

/// Folders that programs and users share. The plan never allows such a folder as a whole.
const SHARED_FOLDERS: [&str; 9] = ["/", "/etc", "/root", "/home", "/var", "/usr", "/opt", "/srv", "/mnt"];

/// Returns the rights that a station with this config needs; `file` is the config file. Creates missing
/// folders into which the station writes.
pub fn sandbox_plan(config: &Config, file: &Path) -> SandboxPlan {
    let (station, platform) = (&config.station, needs_platform(config));
    let mut plan = SandboxPlan::default();

    add_folder_of_file(&mut plan, file);
    let base = file.parent().unwrap_or(Path::new(""));
    let named = run_with_secrets(|| {
        let text = fs::read_to_string(file).unwrap_or_default();
        disclose_config(&text).map(|disclosed| disclosed.secret_files).unwrap_or_default()
    });
    for secret in named {
        add_folder_of_file(&mut plan, &base.join(secret));
    }
    for uplink in config.mobile_router.iter().flat_map(|router| &router.uplinks) {
        uplink.signal_file.iter().for_each(|file| add_folder_of_file(&mut plan, file));
    }
    let probe = config.mobile_router.as_ref().and_then(|router| router.captive_portal_probe.as_ref());
    if let Some(url) = probe {
        plan.connecting_tcp_ports.push(url.address.port());
        // The probe's socket is bound to a care-of address and a port that the kernel chooses, so port 0 is
        // allowed.
        plan.listening_tcp_ports.push(0);
    }
    if let Some(http) = &station.tcp_api {
        add_readable_folder(&mut plan, &http.dashboard_directory);
        http.token_file.iter().for_each(|file| add_folder_of_file(&mut plan, file));
        plan.listening_tcp_ports.push(http.address.port());
    }
    if let Some(security) = &config.security {
        security
            .root_files
            .iter()
            .chain(&security.authority_files)
            .for_each(|file| add_folder_of_file(&mut plan, file));
        security.ticket_folder.iter().for_each(|tickets| add_readable_folder(&mut plan, tickets));
    }
    add_own_folder(&mut plan, station.socket.parent().unwrap_or(Path::new("")));
    station.state_dir.iter().for_each(|directory| add_own_folder(&mut plan, directory));
    station
        .recording_file
        .iter()
        .filter_map(|file| file.parent())
        .for_each(|folder| add_own_folder(&mut plan, folder));

    if let Some(geonet) = &config.geonet {
        match &geonet.position_source {
            PositionSource::Gpsd { host, port, .. } => {
                plan.connecting_tcp_ports.push(*port);
                plan.looks_up_names = host.parse::<IpAddr>().is_err();
            }
            PositionSource::Trace(file) => add_folder_of_file(&mut plan, file),
            PositionSource::Fixed(_) => {}
        }
        match &geonet.interface {
            GeonetInterface::Frames(_) => plan.changes_network = true,
            GeonetInterface::Udp(link) => plan.listening_udp_ports.push(link.local.port()),
        }
        let virtual_links = geonet.areas.iter().any(|area| area.ipv6_interface.is_some());
        plan.changes_network |= virtual_links || geonet.ipv6.is_some() || geonet.multicast.is_some();
    }
    if !dhcp_servers(config).is_empty() {
        plan.listening_udp_ports.push(67);
    }
    if !dhcpv6_servers(config).is_empty() {
        plan.listening_udp_ports.push(547);
    }
    if config.mobile_router.as_ref().is_some_and(|router| !router.dns_forward_servers.is_empty()) {
        plan.listening_udp_ports.push(53);
        // The DNS forwarder listens on port 53. Its queries to servers have ports that the kernel chooses, so
        // port 0 is allowed.
        plan.listening_tcp_ports.extend([53, 0]);
        plan.connecting_tcp_ports.push(53);
    }
    let agents = config.home_agent.iter().filter(|_| config.has_sessions());
    plan.listening_udp_ports
        .extend(agents.filter(|agent| agent.ipv4_address.is_some()).map(|agent| agent.tunnel_port));
    plan.listening_udp_ports
        .extend(config.conformance.iter().map(|conformance| conformance.upper_tester.port()));
    plan.changes_network |= platform || undo_file(config).exists();
    plan.opens_packet_sockets = plan.changes_network;
    let accelerated = match config.dataplane.path {
        DataplanePath::Auto | DataplanePath::Bpf | DataplanePath::Xdp => true,
        DataplanePath::Kernel | DataplanePath::Tun => false,
    };
    plan.loads_bpf_programs = platform && accelerated || geonet_path(config) != GeonetPathChoice::Never;
    // The TUN device has a BPF program of its own, which sorts packets into queues.
    plan.loads_steering_program = platform;
    plan
}

/// Returns whether a station on this data path may load BPF programs later, for new interfaces.
pub fn loads_programs_later(config: &Config, path: Option<carnet_linux::DataPath>) -> bool {
    matches!(path, Some(carnet_linux::DataPath::Bpf | carnet_linux::DataPath::Xdp))
        || geonet_path(config) != GeonetPathChoice::Never
}

/// Returns, in words, a right that the plan `new` needs and that a process under the plan `old` lacks.
/// Returns `None` if no right is lacking.
pub fn missing_right(old: &SandboxPlan, new: &SandboxPlan) -> Option<String> {
    let inside = |path: &PathBuf| {
        old.readable_paths.iter().chain(&old.writable_folders).any(|known| path.starts_with(known))
    };
    if let Some(path) = new.readable_paths.iter().find(|path| !inside(path)) {
        return Some(format!("reading in {}", path.display()));
    }
    if let Some(port) = new.connecting_tcp_ports.iter().find(|port| !old.connecting_tcp_ports.contains(port))
    {
        return Some(format!("connecting to TCP port {port}"));
    }
    [
        (old.changes_network, new.changes_network, "changing the network"),
        (old.loads_bpf_programs, new.loads_bpf_programs, "BPF programs"),
    ]
    .into_iter()
    .find(|(old, new, _)| *new && !old)
    .map(|(_, _, what)| what.to_owned())
}

/// Adds a folder in which the station creates files.
fn add_own_folder(plan: &mut SandboxPlan, folder: &Path) {
    // If the folder cannot be created, a later write into it reports the error.
    let _ = fs::create_dir_all(folder);
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    plan.writable_folders.push(fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned()));
}

/// Adds a folder with all its content, without symbolic links in its path. If the folder does not exist, adds
/// the nearest existing folder above it.
fn add_readable_folder(plan: &mut SandboxPlan, folder: &Path) {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let found = folder.ancestors().find_map(|ancestor| fs::canonicalize(ancestor).ok());
    plan.readable_paths.extend(found.filter(|found| !is_shared(found)));
}

/// Adds the folder of a file. If the file is a symbolic link, also adds the folder of its target.
fn add_folder_of_file(plan: &mut SandboxPlan, file: &Path) {
    plan.config_paths.push(file.to_owned());
    for name in [Some(file.to_owned()), fs::canonicalize(file).ok()].into_iter().flatten() {
        let parent = match name.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        match fs::canonicalize(parent) {
            Ok(parent) if is_shared(&parent) => plan.readable_paths.push(name),
            Ok(parent) => plan.readable_paths.push(parent),
            Err(_) => add_readable_folder(plan, parent),
        }
    }
}

fn is_shared(folder: &Path) -> bool {
    SHARED_FOLDERS.iter().any(|shared| folder == Path::new(shared))
        || folder.parent() == Some(Path::new("/home"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::ScratchFolder;

    #[test]
    fn sandbox_reads_own_folders_and_single_files_of_shared_folders() {
        let scratch = ScratchFolder::new();
        let at = |name: &str| scratch.path().join(name);
        fs::create_dir_all(at("real")).expect("a folder");
        fs::write(at("real/a.toml"), "").expect("a file");
        std::os::unix::fs::symlink(at("real/a.toml"), at("a.toml")).expect("a link");
        let here = fs::canonicalize(scratch.path()).expect("a folder");

        let read = |file: &Path| {
            let mut plan = SandboxPlan::default();
            add_folder_of_file(&mut plan, file);
            plan.readable_paths
        };
        assert_eq!(read(&at("a.toml")), [here.clone(), here.join("real")]);
        let of_system = read(Path::new("/etc/hostname"));
        assert!(of_system.contains(&PathBuf::from("/etc/hostname")), "{of_system:?}");
        assert!(!of_system.contains(&PathBuf::from("/etc")), "{of_system:?}");
        // The file does not exist yet; another program creates it later.
        assert_eq!(read(&at("later/much/signal")), [here]);
        assert_eq!(read(Path::new("/no/such/folder/signal")), Vec::<PathBuf>::new());
    }

    #[test]
    fn reload_names_the_setting_that_exceeds_the_sandbox() {
        let old = SandboxPlan {
            readable_paths: vec!["/a".into()],
            writable_folders: vec!["/b".into()],
            changes_network: true,
            ..SandboxPlan::default()
        };
        let reads = |path: &str| SandboxPlan {
            readable_paths: vec![path.into()],
            changes_network: true,
            ..SandboxPlan::default()
        };
        for path in ["/a", "/a/c/d", "/b/c"] {
            assert_eq!(missing_right(&old, &reads(path)), None);
        }
        assert_eq!(missing_right(&old, &reads("/ab")).as_deref(), Some("reading in /ab"));
        let connects = SandboxPlan { connecting_tcp_ports: vec![80], ..old.clone() };
        assert_eq!(missing_right(&old, &connects).as_deref(), Some("connecting to TCP port 80"));
        assert_eq!(missing_right(&connects, &old), None);
        let programs = SandboxPlan { loads_bpf_programs: true, ..old.clone() };
        assert_eq!(missing_right(&old, &programs).as_deref(), Some("BPF programs"));
        assert_eq!(missing_right(&programs, &old), None);
    }
}
