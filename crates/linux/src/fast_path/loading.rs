//! Loads BPF programs in a thread while the station uses another path.
//!
//! The thread has the rights of its creator ([`crate::sandbox`]). So it starts before the sandbox takes the
//! right to load programs from the station, and ends when they are loaded. The station's own thread attaches
//! the programs and uses maps and sockets.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use tokio::sync::oneshot;

use super::bpf_programs::{AttachmentKind, LoadedPrograms};
use super::{DataPath, FastPathConfig, NO_BPF_PROGRAMS};
use crate::netlink::NetlinkRequests;

/// A running thread that loads BPF programs; see the head of the module.
#[derive(Debug)]
pub(super) struct LoadingPrograms {
    /// The path that these programs implement.
    pub(super) data_path: DataPath,
    /// Present config of the station. It may need more bindings than the config with which the thread
    /// started.
    pub(super) config: FastPathConfig,
    /// Paths to try if these programs cannot be loaded.
    pub(super) fallback_paths: Vec<DataPath>,
    /// Paths earlier in the list that are unavailable, each with its reason.
    pub(super) unavailable_paths: Vec<(DataPath, String)>,
    loaded_programs: oneshot::Receiver<Result<Box<LoadedPrograms>, String>>,
}

impl LoadingPrograms {
    /// Starts the loading thread.
    ///
    /// # Errors
    /// Fails if the kernel does not list its interfaces, if the machine cannot start a thread, or if this
    /// program was built without BPF programs.
    pub(super) fn begin_loading(
        kind: AttachmentKind,
        config: &FastPathConfig,
        tunnel_device: u32,
        requests: &mut NetlinkRequests,
    ) -> Result<LoadingPrograms, String> {
        if !cfg!(feature = "bpf") {
            return Err(NO_BPF_PROGRAMS.to_owned());
        }
        let (sender, programs) = oneshot::channel();
        let wanted = config.clone();
        let links = requests.link_requests().list_links().map_err(|error| error.to_string())?;
        let load = move || {
            // If the station has ended, nothing receives from the channel any more: ignore the error.
            let _ = sender.send(LoadedPrograms::open_for(kind, &wanted, tunnel_device, &links).map(Box::new));
        };
        thread::Builder::new()
            .name("bpf-loader".into())
            .spawn(load)
            .map_err(|error| format!("cannot start the thread that loads BPF programs: {error}"))?;
        Ok(LoadingPrograms {
            data_path: kind.data_path(),
            config: config.clone(),
            fallback_paths: Vec::new(),
            unavailable_paths: Vec::new(),
            loaded_programs: programs,
        })
    }

    /// Returns the loaded programs, or why the kernel cannot load them. Returns pending while the thread
    /// still runs.
    pub(super) fn poll_loaded(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<LoadedPrograms>, String>> {
        Pin::new(&mut self.loaded_programs).poll(cx).map(|result| {
            result.unwrap_or_else(|_| Err("the thread that loads BPF programs has failed".into()))
        })
    }
}
