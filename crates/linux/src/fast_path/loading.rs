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

use super::programs::{Kind, Programs};
use super::{FastPathConfig, Path, WITHOUT_BPF};
use crate::netlink::Requests;

/// A running thread that loads BPF programs; see the head of the module.
#[derive(Debug)]
pub(super) struct Loading {
    /// The path that these programs implement.
    pub(super) path: Path,
    /// Present config of the station. It may need more bindings than the config with which the thread
    /// started.
    pub(super) config: FastPathConfig,
    /// Paths to try if these programs cannot be loaded.
    pub(super) fallback_paths: Vec<Path>,
    /// Paths earlier in the list that are unavailable, each with its reason.
    pub(super) obstacles: Vec<(Path, String)>,
    programs: oneshot::Receiver<Result<Box<Programs>, String>>,
}

impl Loading {
    /// Starts the loading thread.
    ///
    /// # Errors
    /// Fails if the kernel does not list its interfaces, if the machine cannot start a thread, or if this
    /// program was built without BPF programs.
    pub(super) fn begin(
        kind: Kind,
        config: &FastPathConfig,
        tunnel_device: u32,
        requests: &mut Requests,
    ) -> Result<Loading, String> {
        if !cfg!(feature = "bpf") {
            return Err(WITHOUT_BPF.to_owned());
        }
        let (sender, programs) = oneshot::channel();
        let wanted = config.clone();
        let links = requests.links().list().map_err(|error| error.to_string())?;
        let load = move || {
            // If the station has ended, nothing receives from the channel any more: ignore the error.
            let _ = sender.send(Programs::open(kind, &wanted, tunnel_device, &links).map(Box::new));
        };
        thread::Builder::new()
            .name("bpf-loader".into())
            .spawn(load)
            .map_err(|error| format!("cannot start the thread that loads BPF programs: {error}"))?;
        Ok(Loading {
            path: kind.path(),
            config: config.clone(),
            fallback_paths: Vec::new(),
            obstacles: Vec::new(),
            programs,
        })
    }

    /// Returns the loaded programs, or why the kernel cannot load them. Returns pending while the thread
    /// still runs.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<Programs>, String>> {
        Pin::new(&mut self.programs).poll(cx).map(|result| {
            result.unwrap_or_else(|_| Err("the thread that loads BPF programs has failed".into()))
        })
    }
}
