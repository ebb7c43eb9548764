//! Loads the fast path of a running GeoNetworking station, attaches its programs to interfaces, and reads its
//! reports.
//!
//! The fast path runs only on a radio that sends Ethernet frames and does not report acknowledgements. On a
//! link that reports lost frames, the router sends a lost frame again to another next hop (`carnet_geonet`,
//! feedback). Such a link reports only frames that the router has sent itself, so it cannot be used with a
//! fast path.

use std::future::pending;
use std::net::Ipv6Addr;

use carnet_base::Time;
use carnet_cits::geonetworking::acceleration::SequenceNumbers;
use carnet_linux::geonet_path::{AttachedInterface, FastPathInterfaces, GeonetBpfPath, GeonetBpfPathLoading};
use carnet_station::io::{Accelerate, FastPathReport};
use carnet_wire::geonet::GnAddress;
use tracing::{info, warn};

use super::Geonet;
use crate::settings::{self, GeonetPathChoice};

/// State of the fast path.
#[derive(Debug, Default)]
pub(super) struct GeonetFastPath {
    geonet_path: Option<GeonetBpfPath>,
    /// Thread that loads the programs; packets take the slow path meanwhile. `None` if no thread loads any.
    loading_thread: Option<GeonetBpfPathLoading>,
    /// Whether the station must not run without the fast path.
    is_needed: bool,
    /// Addresses that the host has on the topological interface.
    addresses: Vec<Ipv6Addr>,
    /// Whether the station already knows that the fast path exists.
    is_announced: bool,
    /// Time at which the counts of the fast path are read next; `None` if the fast path has nothing to do.
    next_report_at: Option<Time>,
}

/// Returns the value of `dataplane.path` that names this kind of data path: `bpf` if it is fast, else `tun`.
fn path_name(is_fast: bool) -> &'static str {
    if is_fast { "bpf" } else { "tun" }
}

impl GeonetFastPath {
    /// Returns the name of the present data path.
    pub(super) fn name(&self) -> &'static str {
        path_name(self.geonet_path.as_ref().is_some_and(GeonetBpfPath::is_attached_to_interfaces))
    }

    /// Starts to load the programs, which takes seconds on a slow processor.
    ///
    /// # Errors
    /// Returns an error if the programs cannot be loaded but the config demands them.
    pub(super) fn start_loading(choice: GeonetPathChoice) -> anyhow::Result<GeonetFastPath> {
        let mut fast_path =
            GeonetFastPath { is_needed: choice == GeonetPathChoice::Certainly, ..GeonetFastPath::default() };
        if choice != GeonetPathChoice::Never {
            match GeonetBpfPathLoading::begin_loading() {
                Ok(loading) => fast_path.loading_thread = Some(loading),
                Err(why) => fast_path.continue_without_fast_path(&why).map_err(anyhow::Error::msg)?,
            }
        }
        Ok(fast_path)
    }

    /// Returns the name of the data path that follows after loading; `None` if no programs are being loaded.
    pub(super) fn path_being_loaded(&self) -> Option<&'static str> {
        self.loading_thread.as_ref().map(|_| path_name(true))
    }

    /// Waits until the programs are loaded. Safe to cancel.
    ///
    /// # Errors
    /// Returns the reason why the programs cannot be loaded, if the config demands them.
    pub(super) async fn wait_until_programs_loaded(&mut self) -> Result<(), String> {
        let Some(loading) = &mut self.loading_thread else { return pending().await };
        let result = loading.finish_loading().await;
        self.loading_thread = None;
        match result {
            Ok(mut path) => {
                path.set_addresses(self.addresses.iter().copied());
                self.geonet_path = Some(path);
                Ok(())
            }
            Err(why) => self.continue_without_fast_path(&why),
        }
    }

    /// Handles a failure to load the BPF programs: writes a log message, or returns an error if the config
    /// demands the fast path.
    fn continue_without_fast_path(&self, why: &str) -> Result<(), String> {
        if self.is_needed {
            let needed = settings::requirements_of_path(carnet_linux::DataPath::Bpf);
            return Err(format!(
                "dataplane.path = \"bpf\" cannot be used for GeoNetworking: {why}; expected {needed}, or \
                 \"auto\""
            ));
        }
        info!("GeoNetworking packets cannot use the data path \"bpf\": {why}");
        Ok(())
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.next_report_at
    }

    pub(super) fn detach_programs(&mut self) {
        *self = GeonetFastPath::default();
    }

    pub(super) fn counters(&self) -> Vec<(String, u64)> {
        let counters = self.geonet_path.as_ref().map(GeonetBpfPath::counters);
        let named = counters.into_iter().flatten();
        named.map(|(name, count)| (format!("geonet.fast_path.{name}"), count)).collect()
    }
}

impl Geonet {
    /// Attaches the fast path to the present interfaces. Returns whether the fast path exists now if this has
    /// changed, otherwise `None`. `is_router` says whether the station has a GeoNetworking router.
    pub fn attach_fast_path(&mut self, is_router: bool) -> Option<bool> {
        let Geonet { frame_link: link, interfaces, address, fast_path, .. } = self;
        let path = fast_path.geonet_path.as_mut()?;
        let place = |(name, index): (&str, u32)| AttachedInterface { name: name.to_owned(), index };
        let radio = link.interface().filter(|_| is_router && !link.has_acknowledgement_reports()).map(place);
        let places = radio.zip(address.map(GnAddress::mid)).map(|(radio, address)| FastPathInterfaces {
            radio_interface: radio,
            virtual_interface: interfaces.topological_interface().map(place),
            address,
        });
        let before = path.is_attached_to_interfaces();
        if let Err(error) = path.attach_to(places) {
            // The station continues on the slow path. When an interface changes, it tries to attach the BPF
            // programs again.
            warn!("GeoNetworking packets take the slow path: {error}");
        }
        let is = path.is_attached_to_interfaces();
        if is != before {
            let path = path_name(is);
            let why = if link.has_acknowledgement_reports() {
                ", because the link reports acknowledgements"
            } else {
                ""
            };
            info!("GeoNetworking packets take the data path {path:?}{why}");
        }
        (std::mem::replace(&mut fast_path.is_announced, is) != is).then(|| {
            fast_path.next_report_at = None;
            is
        })
    }

    /// Returns the sequence numbers that the router shares with the fast path; `None` without a fast path.
    pub fn sequence_numbers(&self) -> Option<Box<dyn SequenceNumbers>> {
        self.fast_path.geonet_path.as_ref().map(GeonetBpfPath::sequence_numbers)
    }

    /// Passes a forwarding decision of the router to the fast path.
    pub fn apply_decision(&mut self, now: Time, decision: &Accelerate) {
        if let Some(path) = &mut self.fast_path.geonet_path {
            path.apply_update(now, decision);
            if self.fast_path.next_report_at.is_none() && path.has_destinations_or_sources() {
                self.fast_path.next_report_at = Some(now + self.max_position_age());
            }
        }
    }

    /// Returns the counts of the packets that the fast path has handled since the previous call. While the
    /// fast path forwards packets, the next report is due when their position reaches its maximum age.
    /// Returns `None` without a fast path.
    pub fn take_report(&mut self, now: Time) -> Option<FastPathReport> {
        let freshness = self.max_position_age();
        self.update_listeners();
        let path = self.fast_path.geonet_path.as_mut()?;
        let report = path.take_report();
        self.fast_path.next_report_at = path.has_destinations_or_sources().then(|| now + freshness);
        Some(report)
    }

    /// Tells the fast path whether a client of `GET /v1/gnrecv` listens. If so, the fast path leaves packets
    /// to the slow path.
    pub fn update_listeners(&mut self) {
        let is_heard = self.payload_sender.receiver_count() > 0;
        if let Some(path) = &mut self.fast_path.geonet_path {
            path.set_delivers_to_host(!is_heard);
        }
    }

    /// Stores the host's addresses on the topological interface, and passes them to the fast path.
    pub fn update_addresses(&mut self, addresses: &[(Ipv6Addr, u8)]) {
        self.fast_path.addresses = addresses.iter().map(|(address, _)| *address).collect();
        if let Some(path) = &mut self.fast_path.geonet_path {
            path.set_addresses(self.fast_path.addresses.iter().copied());
        }
    }
}
