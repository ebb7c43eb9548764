//! The fast path of a running station: whether it exists, on which interfaces it is, and when it reports.
//!
//! The fast path runs with a radio that sends Ethernet frames and does not report acknowledgements. If the
//! link reports lost frames, the router sends these another way (`carnet_geonet`, feedback). It gets reports
//! only for frames that it has sent itself.

use std::future::pending;
use std::net::Ipv6Addr;

use carnet_base::Time;
use carnet_linux::geonet_path::{GeonetPath, GeonetPathLoading, Place, Places};
use carnet_station::geonet::fast_path::SequenceNumbers;
use carnet_station::io::{Accelerate, Report};
use tracing::{info, warn};

use super::{Geonet, WireAddress};
use crate::settings;

/// Whether to use a fast path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wants {
    /// Do not use one.
    Never,
    /// Use one if possible.
    Perhaps,
    /// Use one, or do not start.
    Certainly,
}

/// State of the fast path.
#[derive(Debug, Default)]
pub(super) struct FastPath {
    path: Option<GeonetPath>,
    /// Loading thread; packets take the slow path meanwhile.
    loading: Option<GeonetPathLoading>,
    /// Whether the station must have it.
    is_needed: bool,
    /// The host's addresses on the topological interface.
    addresses: Vec<Ipv6Addr>,
    /// Whether the station knows about it.
    is_told: bool,
    /// Time of the next report, if the fast path has work.
    due: Option<Time>,
}

/// Returns the value of `dataplane.path` for a data path.
fn word(is_fast: bool) -> &'static str {
    if is_fast { "bpf" } else { "tun" }
}

impl FastPath {
    /// Returns the present data path.
    pub(super) fn name(&self) -> &'static str {
        word(self.path.as_ref().is_some_and(GeonetPath::is_placed))
    }

    /// Begins to load the programs, which takes seconds on a slow processor.
    ///
    /// # Errors
    /// Returns an error if the programs cannot be loaded but the config demands them.
    pub(super) fn open(wants: Wants) -> anyhow::Result<FastPath> {
        let mut fast_path = FastPath { is_needed: wants == Wants::Certainly, ..FastPath::default() };
        if wants != Wants::Never {
            match GeonetPathLoading::begin() {
                Ok(loading) => fast_path.loading = Some(loading),
                Err(why) => fast_path.without(&why).map_err(anyhow::Error::msg)?,
            }
        }
        Ok(fast_path)
    }

    /// Returns the data path after loading, while programs are being loaded.
    pub(super) fn loading(&self) -> Option<&'static str> {
        self.loading.as_ref().map(|_| word(true))
    }

    /// Waits until the programs are loaded. Safe to cancel.
    ///
    /// # Errors
    /// Returns why the programs cannot be loaded, if the config demands them.
    pub(super) async fn loaded(&mut self) -> Result<(), String> {
        let Some(loading) = &mut self.loading else { return pending().await };
        let result = loading.finish().await;
        self.loading = None;
        match result {
            Ok(mut path) => {
                path.set_addresses(self.addresses.iter().copied());
                self.path = Some(path);
                Ok(())
            }
            Err(why) => self.without(&why),
        }
    }

    /// Handles a failure to load the programs.
    fn without(&self, why: &str) -> Result<(), String> {
        if self.is_needed {
            let needed = settings::what_a_path_needs(carnet_linux::Path::Bpf);
            return Err(format!(
                "dataplane.path = \"bpf\" cannot be had for GeoNetworking: {why}; expected {needed}, or \
                 \"auto\""
            ));
        }
        info!("no data path \"bpf\" for GeoNetworking: {why}");
        Ok(())
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.due
    }

    pub(super) fn close(&mut self) {
        *self = FastPath::default();
    }

    pub(super) fn counters(&self) -> Vec<(String, u64)> {
        let counters = self.path.as_ref().map(GeonetPath::counters);
        let named = counters.into_iter().flatten();
        named.map(|(name, count)| (format!("geonet.fast_path.{name}"), count)).collect()
    }
}

impl Geonet {
    /// Attaches the fast path to the present interfaces. Returns whether it has begun or ended since the last
    /// call, for the station. `is_router` says whether the station has a router.
    pub fn place_fast_path(&mut self, is_router: bool) -> Option<bool> {
        let Geonet { link, interfaces, address, fast_path, .. } = self;
        let path = fast_path.path.as_mut()?;
        let place = |(name, index): (&str, u32)| Place { name: name.to_owned(), index };
        let radio = link.interface().filter(|_| is_router && !link.has_feedback()).map(place);
        let places = radio.zip(address.map(WireAddress::mid)).map(|(radio, address)| Places {
            radio,
            virtual_interface: interfaces.topological().map(place),
            address,
        });
        let before = path.is_placed();
        if let Err(error) = path.place(places) {
            // The next change of an interface causes another attempt.
            warn!("GeoNetworking takes the slow path: {error}");
        }
        let is = path.is_placed();
        if is != before {
            let path = word(is);
            let why = if link.has_feedback() { ", because the link tells of acknowledgements" } else { "" };
            info!("the data path of GeoNetworking is {path:?}{why}");
        }
        (std::mem::replace(&mut fast_path.is_told, is) != is).then(|| {
            fast_path.due = None;
            is
        })
    }

    /// Returns the sequence numbers that the router shares with the fast path.
    pub fn sequence_numbers(&self) -> Option<Box<dyn SequenceNumbers>> {
        self.fast_path.path.as_ref().map(GeonetPath::sequence_numbers)
    }

    /// Passes the router's message to the fast path.
    pub fn accelerate(&mut self, now: Time, told: &Accelerate) {
        if let Some(path) = &mut self.fast_path.path {
            path.apply(now, told);
            if self.fast_path.due.is_none() && path.is_busy() {
                self.fast_path.due = Some(now + self.freshness());
            }
        }
    }

    /// Returns the fast path's work since the last call. While it is in use, the caller asks as often as its
    /// packets need a new position.
    pub fn report(&mut self, now: Time) -> Option<Report> {
        let freshness = self.freshness();
        self.tell_listeners();
        let path = self.fast_path.path.as_mut()?;
        let report = path.report();
        self.fast_path.due = path.is_busy().then(|| now + freshness);
        Some(report)
    }

    /// Makes the fast path leave packets to the slow path if a client listens to them.
    pub fn tell_listeners(&mut self) {
        let is_heard = self.received.receiver_count() > 0;
        if let Some(path) = &mut self.fast_path.path {
            path.set_delivers(!is_heard);
        }
    }

    /// Notes the host's addresses on the topological interface.
    pub fn tell_addresses(&mut self, addresses: &[(Ipv6Addr, u8)]) {
        self.fast_path.addresses = addresses.iter().map(|(address, _)| *address).collect();
        if let Some(path) = &mut self.fast_path.path {
            path.set_addresses(self.fast_path.addresses.iter().copied());
        }
    }
}
