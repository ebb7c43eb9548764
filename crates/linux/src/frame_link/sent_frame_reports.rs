//! Reads the frames that an 802.11 driver returns with a report whether the receiver acknowledged them.
//!
//! A socket with `SO_WIFI_STATUS` gets each unicast frame back on its error queue when mac80211 is done with
//! it. The control message `SCM_WIFI_STATUS` is 1 if the receiver acknowledged the frame. Other drivers and
//! other kinds of interface never return frames. A driver that does not learn of acknowledgements reports
//! every frame as not acknowledged. So reports of missing acknowledgements count only after the first
//! acknowledgement.

use std::io::{self, IoSliceMut};
use std::os::fd::AsRawFd;

use nix::errno::Errno;
use nix::sys::socket::{ControlMessageOwned, LinkAddr, MsgFlags, recvmsg};
use socket2::Socket;

use super::receive_batch::ReceiveBatch;
use crate::error::{Error, Result};

/// A sent frame with the driver's report.
#[derive(Debug, Clone, Copy)]
pub(super) struct SentFrameReport<'a> {
    /// Frame with its Ethernet header.
    pub sent_frame: &'a [u8],
    pub acknowledged: bool,
}

/// Requests the driver's reports about sent frames. A kernel without this option sends no reports.
pub(super) fn request_reports(socket: &Socket) {
    // A report wakes the task that waits for frames (EPOLLPRI).
    for option in [libc::SO_WIFI_STATUS, libc::SO_SELECT_ERR_QUEUE] {
        let on: libc::c_int = 1;
        // SAFETY: `on` is a live `c_int`, and the length is that of its type.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                option,
                (&raw const on).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            );
        }
    }
}

/// Returns the next report, or `None` if none is left. The frame in the report is a part of the receive
/// buffer `room`.
pub(super) fn receive_report<'a>(
    socket: &Socket,
    room: &'a mut ReceiveBatch,
) -> Result<Option<SentFrameReport<'a>>> {
    let slot = room.first_slot();
    // Each entry of the error queue has two control messages: the report, and the extended error with an
    // address.
    let mut control = nix::cmsg_space!([u8; 64], libc::c_int);
    loop {
        let mut vector = [IoSliceMut::new(slot)];
        let flags = MsgFlags::MSG_ERRQUEUE | MsgFlags::MSG_DONTWAIT;
        match recvmsg::<LinkAddr>(socket.as_raw_fd(), &mut vector, Some(&mut control), flags) {
            Ok(message) => {
                let length = message.bytes;
                let report =
                    message.cmsgs().ok().into_iter().flatten().find_map(|one| parse_acknowledgement(&one));
                if let Some(acknowledged) = report {
                    return Ok(Some(SentFrameReport {
                        sent_frame: &slot[..length.min(slot.len())],
                        acknowledged,
                    }));
                }
            }
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN | Errno::ENETDOWN | Errno::ENODEV | Errno::ENXIO) => return Ok(None),
            Err(error) => {
                return Err(Error::from_kernel_refusal(
                    "read the driver's reports about sent frames",
                    io::Error::from(error),
                ));
            }
        }
    }
}

fn parse_acknowledgement(message: &ControlMessageOwned) -> Option<bool> {
    let ControlMessageOwned::Unknown(unknown) = message else { return None };
    let header = &unknown.cmsg_header;
    (header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_WIFI_STATUS)
        .then(|| unknown.data_bytes.first_chunk().is_some_and(|octets| i32::from_ne_bytes(*octets) != 0))
}
