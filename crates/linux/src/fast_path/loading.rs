//! Programs that a thread loads while the station serves by what it has.
//!
//! The thread has the rights of the one that starts it ([`crate::sandbox`]). So it starts while that one may
//! still load programs, and ends when they are loaded. Interfaces, maps and sockets stay with the station's
//! own thread.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;

use carnet_base::parts;
use tokio::sync::oneshot;

use super::programs::{Kind, Programs};
use super::{FastPathConfig, Path};
use crate::netlink::Requests;

/// See the head of the module.
#[derive(Debug)]
pub(super) struct Loading {
    /// The way for which they are.
    pub(super) path: Path,
    /// The station's present config, which may need more than the one at the begin.
    pub(super) config: FastPathConfig,
    /// The ways to try if these programs cannot be had.
    pub(super) others: Vec<Path>,
    /// Why the ways before cannot be had.
    pub(super) obstacles: Vec<(Path, String)>,
    pub(super) part: parts::Bpf,
    programs: oneshot::Receiver<Result<Box<Programs>, String>>,
}

impl Loading {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the kernel does not list its interfaces, or the machine cannot start a thread.
    pub(super) fn begin(
        kind: Kind,
        config: &FastPathConfig,
        tunnel_device: u32,
        part: parts::Bpf,
        requests: &mut Requests,
    ) -> Result<Loading, String> {
        let (sender, programs) = oneshot::channel();
        let wanted = config.clone();
        let links = requests.links().map_err(|error| error.to_string())?;
        let load = move || {
            // The station may have ended meanwhile.
            let _ = sender.send(Programs::open(kind, &wanted, tunnel_device, &links).map(Box::new));
        };
        thread::Builder::new()
            .name("bpf-loader".into())
            .spawn(load)
            .map_err(|error| format!("cannot start a thread that loads programs: {error}"))?;
        Ok(Loading {
            path: kind.path(),
            config: config.clone(),
            others: Vec::new(),
            obstacles: Vec::new(),
            part,
            programs,
        })
    }

    /// The programs, or why they cannot be had; asks to be woken.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Box<Programs>, String>> {
        Pin::new(&mut self.programs)
            .poll(cx)
            .map(|result| result.unwrap_or_else(|_| Err("the thread that loads programs has failed".into())))
    }
}
