//! Uses radios of mac80211_hwsim: the kernel's real 802.11 stack, with the model as the medium between them.
//!
//! The lab creates one radio for each node ([`Hwsim::build`]), with the address that a veth radio of the node
//! would have. It moves the radio into the node's namespace. There `iw` creates an interface of type OCB
//! (outside the context of a BSS, as in ITS-G5). The interface joins the control channel, 5.9 GHz and 10 MHz
//! wide. This process is registered as the medium of the radios, so it gets their frames. The model decides
//! which radio receives a frame, and whether a unicast frame was acknowledged. This module reports that to
//! the sender's stack as a driver would. The radios vanish when the socket closes.
//!
//! The module must be loaded (`modprobe mac80211_hwsim radios=0`). For `carnet` the interface is like any
//! other 802.11 interface, with reports of transmission status.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::sys::socket::sockopt::{RcvBuf, RcvBufForce, ReceiveTimeout};
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
    socket,
};
use nix::sys::time::TimeVal;

use super::netlink::{
    CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME, CTRL_CMD_GETFAMILY, GENL_ID_CTRL, NLMSG_ERROR,
    ReceivedMessage, RequestMessage, TX_STATUS_ACKNOWLEDGED, attribute, command, ethernet_frame_of_80211,
};
use super::{FRAMES_PER_BATCH, FrameTransport, RECEIVE_BUFFER_SIZE, nodes_with_radio, radio_mac};
use crate::clock;
use crate::medium::channel::{Channel, ChannelOutput, Frame};
use crate::process::{command_in_node, run_for_output};
use crate::scenario::Scenario;
use crate::tools;

/// The control channel of ITS-G5 (EN 302 663): centre in MHz, and width.
const CHANNEL_AND_WIDTH: [&str; 2] = ["5900", "10MHZ"];
/// Number of mac80211_hwsim's regulatory domain that allows these frequencies.
const CUSTOM_REGULATORY_DOMAIN: u32 = 0;
/// Maximum length in octets of a message from the kernel.
const MAX_MESSAGE_LENGTH: usize = 16 << 10;
/// Signal in dBm of each received frame; it is strong, because the model has already decided the reception.
const SIGNAL_DBM: i32 = -50;

/// A frame of a radio, until the model has decided whether it was acknowledged.
#[derive(Debug)]
struct UnfinishedFrame {
    /// Keeps the frame in memory. The frame's address is the key of this entry, so no other frame may get the
    /// same address.
    _frame: Frame,
    original_frame: Vec<u8>,
    flags: u32,
    cookie: [u8; 8],
}

/// The socket that owns all radios.
#[derive(Debug)]
pub struct Hwsim {
    socket: OwnedFd,
    family: u16,
    radio_count: usize,
    /// Frames that the model has not finished, by their memory address.
    unfinished_frames: HashMap<usize, UnfinishedFrame>,
}

impl Hwsim {
    /// Creates the radios of a scenario, each in its node. The interfaces are still down.
    ///
    /// # Errors
    /// Fails if the kernel has no mac80211_hwsim, or if `iw` is missing.
    pub fn build(scenario: &Scenario) -> anyhow::Result<Hwsim> {
        if tools::find_program("iw").is_none() {
            bail!("cannot find the program iw; install it with: apt-get install iw");
        }
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkGeneric,
        )
        .context("cannot open a socket of generic netlink")?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        if setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER_SIZE).is_err() {
            let _ = setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER_SIZE);
        }
        // Limit the wait: the kernel answers every request below within this time.
        setsockopt(&socket, ReceiveTimeout, &TimeVal::new(10, 0))?;
        let mut hwsim = Hwsim { socket, family: 0, radio_count: 0, unfinished_frames: HashMap::new() };
        let name = b"MAC80211_HWSIM\0";
        let family = hwsim
            .request(
                RequestMessage::new(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, false)
                    .with_attribute(CTRL_ATTR_FAMILY_NAME, name),
                |heard| {
                    heard
                        .attribute(CTRL_ATTR_FAMILY_ID)
                        .and_then(|id| id.first_chunk())
                        .map(|id| u16::from_ne_bytes(*id))
                },
            )
            .context("no mac80211_hwsim in this kernel: expected after `modprobe mac80211_hwsim radios=0`")?;
        hwsim.family = family;
        // All namespaces of the machine share the names of radios. So each run puts its own number into the
        // names.
        let run = clock::monotonic_now() as u32;
        let names = nodes_with_radio(scenario);
        for number in 0..names.len() {
            let message = RequestMessage::new(family, command::NEW_RADIO, true)
                .with_attribute(attribute::RADIO_NAME, radio_name_of_run(run, number).as_bytes())
                .with_attribute(attribute::PERM_ADDR, &radio_mac(number))
                .with_attribute(attribute::REG_CUSTOM_REG, &CUSTOM_REGULATORY_DOMAIN.to_ne_bytes())
                .with_attribute(attribute::NO_VIF, &[])
                .with_attribute(attribute::DESTROY_RADIO_ON_CLOSE, &[]);
            hwsim
                .request(message, |_| None)
                .or_else(accept_success_status)
                .with_context(|| format!("cannot make radio {number}"))?;
        }
        hwsim.radio_count = names.len();
        let indices = radio_numbers_by_name(&run_for_output(
            std::process::Command::new(tools::path_of_program("iw")).arg("phy"),
        )?);
        for (number, node) in names.iter().enumerate() {
            let Some(interface) = scenario.radio_of(node) else { continue };
            let index = indices
                .get(&radio_name_of_run(run, number))
                .with_context(|| format!("iw phy does not show {}", radio_name_of_run(run, number)))?;
            let phy = format!("phy#{index}");
            run_for_output(
                std::process::Command::new(tools::path_of_program("iw"))
                    .args([&phy, "set", "netns", "name", node]),
            )?;
            run_for_output(command_in_node(node, tools::path_of_program("iw")).args([
                &phy,
                "interface",
                "add",
                interface,
                "type",
                "ocb",
            ]))?;
        }
        hwsim
            .request(RequestMessage::new(family, command::REGISTER, true), |_| None)
            .or_else(accept_success_status)?;
        Ok(hwsim)
    }

    /// Joins the radios, whose interfaces must be up, to their channel.
    pub fn join_radios(scenario: &Scenario) -> anyhow::Result<()> {
        for node in nodes_with_radio(scenario) {
            let Some(interface) = scenario.radio_of(&node) else { continue };
            let mut iw = command_in_node(&node, tools::path_of_program("iw"));
            run_for_output(iw.args(["dev", interface, "ocb", "join"]).args(CHANNEL_AND_WIDTH))?;
        }
        Ok(())
    }

    /// Sends a request, and waits for an answer for which `wanted` returns a value. If the kernel answers
    /// with a failure, the error is a [`KernelStatus`].
    fn request<T>(
        &self,
        message: RequestMessage,
        wanted: impl Fn(&ReceivedMessage<'_>) -> Option<T>,
    ) -> anyhow::Result<T> {
        send(self.socket.as_raw_fd(), &message.finish(), MsgFlags::empty())?;
        let mut buffer = vec![0; MAX_MESSAGE_LENGTH];
        loop {
            let length =
                recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()).context("no answer")?;
            let mut rest = &buffer[..length];
            while let Some((heard, behind)) = ReceivedMessage::parse(rest) {
                if heard.message_type == NLMSG_ERROR {
                    let status = heard.error_status().unwrap_or(-(Errno::EPROTO as i32));
                    return Err(anyhow::Error::new(KernelStatus(status)));
                }
                if let Some(found) = wanted(&heard) {
                    return Ok(found);
                }
                rest = behind;
            }
        }
    }

    fn send_message(&self, message: RequestMessage) -> anyhow::Result<bool> {
        match send(self.socket.as_raw_fd(), &message.finish(), MsgFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EINTR) => Ok(false),
            Err(error) => Err(error).context("the medium cannot reach mac80211_hwsim"),
        }
    }

    /// Passes on to the model's channel a frame that a radio has sent. Returns `None` for an incomplete
    /// message.
    fn handle_frame(&mut self, heard: &ReceivedMessage<'_>, channel: &mut Channel) -> Option<()> {
        let transmitter = heard.attribute(attribute::ADDR_TRANSMITTER)?;
        let radio = (0..self.radio_count).find(|number| radio_mac(*number) == transmitter)?;
        let original = heard.attribute(attribute::FRAME)?.to_vec();
        let flags = u32::from_ne_bytes(*heard.attribute(attribute::FLAGS)?.first_chunk()?);
        let cookie = *heard.attribute(attribute::COOKIE)?.first_chunk()?;
        let frame: Frame = Arc::from(ethernet_frame_of_80211(&original)?);
        self.unfinished_frames.insert(
            frame_key(&frame),
            UnfinishedFrame { _frame: frame.clone(), original_frame: original, flags, cookie },
        );
        channel.enqueue(clock::monotonic_now(), radio, frame);
        Some(())
    }
}

/// Status that the kernel returns for a request: 0, a negative error number, or the number of the new object.
#[derive(Debug)]
struct KernelStatus(i32);

impl std::fmt::Display for KernelStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(Errno::from_raw(-self.0).desc())
    }
}

impl std::error::Error for KernelStatus {}

/// Converts the success status, which [`Hwsim::request`] returns as an error, to `Ok`.
fn accept_success_status(error: anyhow::Error) -> anyhow::Result<()> {
    if error.downcast_ref::<KernelStatus>().is_some_and(|status| status.0 >= 0) { Ok(()) } else { Err(error) }
}

fn radio_name_of_run(run: u32, number: usize) -> String {
    format!("carnet-{run:x}-{number}")
}

/// Returns the number of each radio by its name, from the output of `iw phy`.
fn radio_numbers_by_name(text: &str) -> HashMap<String, u32> {
    let mut found = HashMap::new();
    let mut name = None;
    for line in text.lines() {
        if let Some(after) = line.strip_prefix("Wiphy ") {
            name = Some(after.trim().to_string());
        } else if let Some(index) = line.trim().strip_prefix("wiphy index:")
            && let (Some(name), Ok(index)) = (name.take(), index.trim().parse())
        {
            found.insert(name, index);
        }
    }
    found
}

fn frame_key(frame: &Frame) -> usize {
    frame.as_ptr() as usize
}

impl FrameTransport for Hwsim {
    fn receive(&mut self, channel: &mut Channel) -> anyhow::Result<u64> {
        let mut buffer = vec![0; MAX_MESSAGE_LENGTH];
        let mut refused = 0;
        for _ in 0..FRAMES_PER_BATCH {
            let length = match recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::MSG_DONTWAIT) {
                Ok(length) => length,
                Err(Errno::EAGAIN) => break,
                // The kernel dropped frames before this socket received them.
                Err(Errno::ENOBUFS) => {
                    refused += 1;
                    continue;
                }
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error).context("the medium cannot receive from mac80211_hwsim"),
            };
            let mut rest = &buffer[..length];
            while let Some((heard, behind)) = ReceivedMessage::parse(rest) {
                if heard.message_type == NLMSG_ERROR {
                    refused += u64::from(heard.error_status() != Some(0));
                } else if heard.message_type == self.family && heard.command() == Some(command::FRAME) {
                    let _understood = self.handle_frame(&heard, channel);
                }
                rest = behind;
            }
        }
        Ok(refused)
    }

    fn execute_output(&mut self, output: &ChannelOutput) -> anyhow::Result<Option<bool>> {
        match output {
            ChannelOutput::Sent { .. } => Ok(None),
            ChannelOutput::Received { radio, frame, .. } => {
                let Some(pending) = self.unfinished_frames.get(&frame_key(frame)) else {
                    return Ok(Some(false));
                };
                let message = RequestMessage::new(self.family, command::FRAME, false)
                    .with_attribute(attribute::ADDR_RECEIVER, &radio_mac(*radio))
                    .with_attribute(attribute::FRAME, &pending.original_frame)
                    .with_attribute(attribute::RX_RATE, &0_u32.to_ne_bytes())
                    .with_attribute(attribute::SIGNAL, &SIGNAL_DBM.to_ne_bytes());
                self.send_message(message).map(Some)
            }
            ChannelOutput::Done { radio, frame, tries, acknowledged } => {
                let Some(pending) = self.unfinished_frames.remove(&frame_key(frame)) else { return Ok(None) };
                let flags =
                    if *acknowledged { pending.flags | TX_STATUS_ACKNOWLEDGED } else { pending.flags };
                // Only the first rate entry is valid: the rate and the number of tries.
                let mut rates = [0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0];
                (rates[0], rates[1]) = (0, u8::try_from(*tries).unwrap_or(u8::MAX));
                let message = RequestMessage::new(self.family, command::TX_INFO_FRAME, false)
                    .with_attribute(attribute::ADDR_TRANSMITTER, &radio_mac(*radio))
                    .with_attribute(attribute::FLAGS, &flags.to_ne_bytes())
                    .with_attribute(attribute::SIGNAL, &SIGNAL_DBM.to_ne_bytes())
                    .with_attribute(attribute::TX_INFO, &rates)
                    .with_attribute(attribute::COOKIE, &pending.cookie);
                self.send_message(message)?;
                Ok(None)
            }
        }
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hwsim_radios_are_identified_by_iw() {
        let text =
            "Wiphy carnet-1-1\n\twiphy index: 4\n\tmax # scan SSIDs: 4\nWiphy phy0\n\twiphy index: 0\n";
        let found = radio_numbers_by_name(text);
        assert_eq!((found.get("carnet-1-1"), found.get("phy0"), found.len()), (Some(&4), Some(&0), 2));
    }

    #[test]
    fn missing_hwsim_module_error_names_remedy() {
        assert!(accept_success_status(anyhow::Error::new(KernelStatus(3))).is_ok());
        let error = accept_success_status(anyhow::Error::new(KernelStatus(-2))).expect_err("an error");
        assert_eq!(error.to_string(), "No such file or directory");
    }
}
