//! Errors of operations on the kernel.

use std::io;
use std::path::PathBuf;

use carnet_nemo::forwarding::desired::TUNNEL_DEVICE;

/// Result type of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Error of an operation on the kernel. Its text has the operation, its object, and the kernel's error. The
/// kernel's error is no `source`, because a chain of errors would print it twice.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A capability is missing.
    #[error(
        "missing capability {missing}: start carnet as root, with `setcap cap_net_admin,cap_net_raw+ep`, or \
         in a user and network namespace of its own (`unshare -Urn`)"
    )]
    Capability {
        /// Names of the capabilities that the process lacks.
        missing: String,
    },
    /// The device node `/dev/net/tun` is missing, or the kernel has no driver for it.
    #[error(
        "{path} is missing: load the TUN driver (`modprobe tun`), or create the node \
         (`mkdir -p /dev/net && mknod /dev/net/tun c 10 200`) ({answer})"
    )]
    TunMissing {
        /// Path of the device node.
        path: PathBuf,
        /// The kernel's error.
        answer: io::Error,
    },
    /// The process has no permission to open `/dev/net/tun`.
    #[error("no permission to open {path}: it must be readable and writable by carnet's user ({answer})")]
    TunPermission {
        /// Path of the device node.
        path: PathBuf,
        /// The kernel's error.
        answer: io::Error,
    },
    /// The tunnel device exists already.
    #[error(
        "{device} exists already: another carnet station runs in this network namespace, or another \
         program made the device (remove it with `ip link del {device}`)"
    )]
    Busy {
        /// Name of the device.
        device: String,
    },
    /// Another program has deleted the tunnel device or moved it to another network namespace. carnet must be
    /// restarted.
    #[error("another program has deleted the tunnel device {device}: restart carnet")]
    TunnelGone {
        /// Name of the device.
        device: String,
    },
    /// The caller gave an invalid argument.
    #[error("{what}: expected {expected}, found {got}")]
    Invalid {
        /// Name of the argument.
        what: String,
        /// Description of the valid values.
        expected: String,
        /// Found value.
        got: String,
    },
    /// The kernel refused an operation.
    #[error("cannot {operation}: {answer}{detail}")]
    Kernel {
        /// The operation and its object, in words.
        operation: String,
        /// Explanation from the kernel with a leading `: `; empty if the kernel gave none.
        detail: String,
        /// The kernel's error.
        answer: io::Error,
    },
    /// Another program's route has the destination and metric of a route that carnet needs.
    #[error(
        "cannot {operation}: another program (routing protocol number {protocol}) has installed a route \
         with the same destination and metric (`ip -6 route show table {table}`)"
    )]
    RouteTaken {
        /// The operation and its object, in words.
        operation: String,
        /// Routing protocol number of the other program's route (`proto` in `ip route`).
        protocol: u8,
        /// Table of the route.
        table: u32,
    },
    /// The kernel's answer to an operation is invalid.
    #[error("cannot {operation}: unexpected netlink answer: {detail}")]
    Protocol {
        /// The operation and its object, in words.
        operation: String,
        /// Invalid part of the kernel's answer.
        detail: String,
    },
}

impl Error {
    /// Builds an error from the kernel's refusal of `operation`.
    pub(crate) fn from_kernel_refusal(operation: impl Into<String>, answer: impl Into<io::Error>) -> Error {
        Error::Kernel { operation: operation.into(), detail: String::new(), answer: answer.into() }
    }

    /// Returns the kernel's error number (errno); `None` if the error does not come from the kernel.
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Error::TunMissing { answer, .. }
            | Error::TunPermission { answer, .. }
            | Error::Kernel { answer, .. } => answer.raw_os_error(),
            Error::RouteTaken { .. } => Some(libc::EEXIST),
            Error::Capability { .. } => Some(libc::EPERM),
            Error::Busy { .. } => Some(libc::EBUSY),
            Error::TunnelGone { .. } => Some(libc::ENODEV),
            Error::Invalid { .. } | Error::Protocol { .. } => None,
        }
    }

    /// Returns whether a further attempt would fail as well, so that carnet must end.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Error::TunnelGone { .. })
    }

    /// Builds [`Error::TunnelGone`].
    pub(crate) fn tunnel_device_gone_error() -> Error {
        Error::TunnelGone { device: TUNNEL_DEVICE.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_chain_names_each_cause_once() {
        let busy = || io::Error::from_raw_os_error(libc::EBUSY);
        let errors = [
            Error::from_kernel_refusal("add carnet0", busy()),
            Error::TunMissing { path: "/dev/net/tun".into(), answer: busy() },
            Error::TunPermission { path: "/dev/net/tun".into(), answer: busy() },
        ];
        for error in errors {
            let mut link: Option<&dyn std::error::Error> = Some(&error);
            let mut chain = String::new();
            while let Some(one) = link {
                chain += &format!("{one}: ");
                link = one.source();
            }
            assert_eq!(chain.matches("(os error 16)").count(), 1, "{chain}");
        }
    }
}
