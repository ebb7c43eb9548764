//! This crate makes all system calls of carnet.
//!
//! The protocol crates decide, and this crate acts. [`Platform`] executes the [`EntryChange`]s of the
//! desired forwarding state (routes, rules, addresses, interface settings) and reports the kernel's
//! interfaces. It receives and sends ICMPv6 on links, and owns the TUN device of the slow path. It runs the
//! fast path, which forwards most packets without the TUN device. It can revert all its changes, even after a
//! crash.
//!
//! The crate needs `CAP_NET_ADMIN` and `CAP_NET_RAW` in the user namespace that owns its network namespace,
//! so it also runs without root in a user namespace. It needs a tokio runtime of one thread.
//!
//! No other crate of the workspace has `unsafe` code; each `unsafe` block here says why it is sound.
//!
//! [`EntryChange`]: carnet_nemo::forwarding::desired::EntryChange
#![deny(unsafe_op_in_unsafe_fn)]
#![warn(clippy::undocumented_unsafe_blocks)]

mod advertisement_settings;
mod async_descriptor;
mod bpf_call;
mod carrier_watch;
pub mod clock;
mod counters;
mod datagrams;
mod deadline_alarm;
mod desired_entries;
mod dhcp_port;
mod dhcpv6_port;
pub mod disk;
mod dns_port;
mod echo_requests;
mod entry_installer;
mod error;
mod event;
mod fast_path;
mod frame_device;
pub mod frame_link;
mod generic_netlink;
mod interface_counters;
mod interface_observer;
mod ipsec_socket;
mod kernel_settings;
mod kernel_state_keeper;
pub mod key_file;
mod link_sockets;
mod listening_sockets;
mod memory;
pub mod multicast_link;
mod netlink;
mod nftables;
mod offloads;
mod packet_socket;
mod platform;
mod portal_probe;
pub mod position;
mod privileges;
pub mod sandbox;
mod setting_contest;
pub mod signal_strength;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
mod tunnel;
mod undo_file;
#[cfg(all(panic = "abort", not(feature = "backtrace")))]
mod unwinder;
pub mod virtual_link;
mod wiping_allocator;

pub use carrier_watch::CarrierWatch;
pub use counters::PlatformCounters;
pub use datagrams::{DatagramReader, DatagramSockets, DatagramWriter, PacketTooBigReport, ReceivedDatagram};
pub use deadline_alarm::DeadlineAlarm;
pub use dhcp_port::{DhcpInput, DhcpPort};
pub use dhcpv6_port::Dhcpv6Port;
pub use dns_port::{DnsMessage, DnsPort, DnsReply, query_server};
pub use echo_requests::{EchoRequests, ProbedNeighbour};
pub use error::{Error, Result};
pub use event::PlatformEvent;
pub use fast_path::geonet as geonet_path;
pub use fast_path::{DataPath, FastPathConfig, FastPathCounters, InterfaceRoles, TunnelEnds, TunnelTraffic};
pub use interface_observer::interface_exists;
pub use ipsec_socket::{IpsecMessage, IpsecSocket, load_kernel_module as prepare_ipsec};
pub use link_sockets::WatchedInterface;
pub use listening_sockets::{bind_packet_socket, bind_udp_socket, is_local_address, listen_on};
pub use memory::{return_code_pages, return_free_memory};
pub use platform::{Platform, PlatformConfig};
pub use portal_probe::ProbeTarget;
pub use privileges::missing_for_bpf;
pub use sandbox::with_umask;
pub use tunnel::{DeviceQueue, TunDevice, TunnelReader, TunnelWriter};
pub use wiping_allocator::{WipingAllocator, run_with_secrets};

/// Origin of carnet's routes and rules (`ip route show proto 135`): the Mobility Header's protocol number,
/// which no routing daemon uses.
pub const ROUTE_PROTOCOL: u8 = 135;
