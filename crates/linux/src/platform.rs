//! The platform as the program sees it.

use std::path::PathBuf;

use carnet_station::forwarding::desired::Change;
use carnet_station::io::{Interface, LinkMessage};

use crate::counters::Counters;
use crate::error::{Error, Result};
use crate::tunnel::TunnelIo;

/// What [`Platform::open`] needs to know.
#[derive(Debug, Clone)]
pub struct PlatformConfig {
    /// MTU of the tunnel device in octets, at least 1280.
    pub device_mtu: u32,
    /// The links on which ICMPv6 is heard. They need not exist yet.
    pub watched: Vec<WatchedInterface>,
    /// Where it is written down what to put back after a crash. Its directory must exist.
    pub undo_file: PathBuf,
}

/// A link on which ICMPv6 is heard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedInterface {
    /// Name of the interface.
    pub name: String,
    /// Hear every multicast group, as a home agent must that defends addresses of others.
    pub all_multicast: bool,
}

/// Something that the kernel told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlatformEvent {
    /// The state of an interface, at the start and whenever something in it changed.
    Interface(Interface),
    /// An interface has vanished.
    InterfaceGone {
        /// Its name.
        name: String,
    },
    /// An ICMPv6 message heard on a watched link.
    Icmpv6(LinkMessage),
}

/// The kernel's networking, as far as carnet uses it.
#[derive(Debug)]
pub struct Platform {
    tunnel: TunnelIo,
}

impl Platform {
    /// Checks what is needed, cleans what a crash left, and creates the tunnel device.
    ///
    /// Must be called on a thread of a tokio runtime.
    pub fn open(config: PlatformConfig) -> Result<Platform> {
        let _ = config;
        Err(Error::kernel("open the platform", std::io::Error::from_raw_os_error(libc::ENOSYS)))
    }

    /// Carries out one change of the desired forwarding state.
    ///
    /// An entry whose interface is missing or down is no error: it stays wanted and is installed when the
    /// interface is there. After an error it stays wanted, too, and is tried again when interfaces change.
    pub fn apply(&mut self, change: &Change) -> Result<()> {
        let _ = change;
        Ok(())
    }

    /// The next thing that the kernel tells. Safe to cancel: nothing is lost.
    pub async fn next_event(&mut self) -> Result<PlatformEvent> {
        std::future::pending().await
    }

    /// Sends an ICMPv6 message on a link; its checksum is filled in.
    pub fn send_icmpv6(&mut self, message: &LinkMessage) -> Result<()> {
        let _ = message;
        Ok(())
    }

    /// The tunnel device's packets.
    pub fn tunnel(&self) -> TunnelIo {
        self.tunnel.clone()
    }

    /// What has been done, in numbers.
    pub fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Removes everything that was made, and puts back what was changed.
    ///
    /// Goes on after an error and returns the first one.
    pub fn close(self) -> Result<()> {
        Ok(())
    }
}
