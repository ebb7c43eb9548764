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
    CONTROL, ERROR, FAMILY_ID, FAMILY_NAME, GET_FAMILY, Heard, Message, STAT_ACK, attribute, command,
    ethernet,
};
use super::{BATCH, FrameMover, RECEIVE_BUFFER, mac, nodes};
use crate::clock;
use crate::medium::channel::{Channel, Frame, Output};
use crate::process::{in_node, output};
use crate::scenario::Scenario;
use crate::tools;

/// The control channel of ITS-G5 (EN 302 663): centre in MHz, and width.
const CHANNEL: [&str; 2] = ["5900", "10MHZ"];
/// Number of mac80211_hwsim's regulatory domain that allows these frequencies.
const REGULATORY_DOMAIN: u32 = 0;
/// Maximum length in octets of a message from the kernel.
const LONGEST: usize = 16 << 10;
/// Signal in dBm of each received frame; it is strong, because the model has already decided the reception.
const SIGNAL: i32 = -50;

/// A frame of a radio, until the model has decided whether it was acknowledged.
#[derive(Debug)]
struct Pending {
    /// Keeps the frame in memory: its address is the key of this entry, so no other frame may get it.
    _frame: Frame,
    original: Vec<u8>,
    flags: u32,
    cookie: [u8; 8],
}

/// The socket that owns all radios.
#[derive(Debug)]
pub struct Hwsim {
    socket: OwnedFd,
    family: u16,
    radios: usize,
    /// Frames that the model has not finished, by their memory address.
    pending: HashMap<usize, Pending>,
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
        if setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER).is_err() {
            let _ = setsockopt(&socket, RcvBuf, &RECEIVE_BUFFER);
        }
        // Limit the wait: the kernel answers every request below within this time.
        setsockopt(&socket, ReceiveTimeout, &TimeVal::new(10, 0))?;
        let mut hwsim = Hwsim { socket, family: 0, radios: 0, pending: HashMap::new() };
        let name = b"MAC80211_HWSIM\0";
        let family = hwsim
            .ask(Message::new(CONTROL, GET_FAMILY, false).with(FAMILY_NAME, name), |heard| {
                heard.get(FAMILY_ID).and_then(|id| id.first_chunk()).map(|id| u16::from_ne_bytes(*id))
            })
            .context("no mac80211_hwsim in this kernel: expected after `modprobe mac80211_hwsim radios=0`")?;
        hwsim.family = family;
        // Radio names are shared by all namespaces of the machine.
        let run = clock::monotonic() as u32;
        let names = nodes(scenario);
        for number in 0..names.len() {
            let message = Message::new(family, command::NEW_RADIO, true)
                .with(attribute::RADIO_NAME, phy(run, number).as_bytes())
                .with(attribute::PERM_ADDR, &mac(number))
                .with(attribute::REG_CUSTOM_REG, &REGULATORY_DOMAIN.to_ne_bytes())
                .with(attribute::NO_VIF, &[])
                .with(attribute::DESTROY_RADIO_ON_CLOSE, &[]);
            hwsim
                .ask(message, |_| None)
                .or_else(done)
                .with_context(|| format!("cannot make radio {number}"))?;
        }
        hwsim.radios = names.len();
        let indices = indices(&output(std::process::Command::new(tools::path("iw")).arg("phy"))?);
        for (number, node) in names.iter().enumerate() {
            let Some(interface) = scenario.radio_of(node) else { continue };
            let index = indices
                .get(&phy(run, number))
                .with_context(|| format!("iw phy does not show {}", phy(run, number)))?;
            let phy = format!("phy#{index}");
            output(std::process::Command::new(tools::path("iw")).args([&phy, "set", "netns", "name", node]))?;
            output(in_node(node, tools::path("iw")).args([
                &phy,
                "interface",
                "add",
                interface,
                "type",
                "ocb",
            ]))?;
        }
        hwsim.ask(Message::new(family, command::REGISTER, true), |_| None).or_else(done)?;
        Ok(hwsim)
    }

    /// Joins the radios, whose interfaces must be up, to their channel.
    pub fn join(scenario: &Scenario) -> anyhow::Result<()> {
        for node in nodes(scenario) {
            let Some(interface) = scenario.radio_of(&node) else { continue };
            let mut iw = in_node(&node, tools::path("iw"));
            output(iw.args(["dev", interface, "ocb", "join"]).args(CHANNEL))?;
        }
        Ok(())
    }

    /// Sends a request, and waits for an answer for which `wanted` returns a value. If the kernel answers
    /// with a failure, the error is a [`Status`].
    fn ask<T>(&self, message: Message, wanted: impl Fn(&Heard<'_>) -> Option<T>) -> anyhow::Result<T> {
        send(self.socket.as_raw_fd(), &message.finish(), MsgFlags::empty())?;
        let mut buffer = vec![0; LONGEST];
        loop {
            let length =
                recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()).context("no answer")?;
            let mut rest = &buffer[..length];
            while let Some((heard, behind)) = Heard::parse(rest) {
                if heard.kind == ERROR {
                    let status = heard.status().unwrap_or(-(Errno::EPROTO as i32));
                    return Err(anyhow::Error::new(Status(status)));
                }
                if let Some(found) = wanted(&heard) {
                    return Ok(found);
                }
                rest = behind;
            }
        }
    }

    fn send(&self, message: Message) -> anyhow::Result<bool> {
        match send(self.socket.as_raw_fd(), &message.finish(), MsgFlags::empty()) {
            Ok(_) => Ok(true),
            Err(Errno::ENOBUFS | Errno::EAGAIN | Errno::EINTR) => Ok(false),
            Err(error) => Err(error).context("the medium cannot reach mac80211_hwsim"),
        }
    }

    /// Passes a frame that a radio sends on to the model's channel. Returns `None` for an incomplete message.
    fn handle_frame(&mut self, heard: &Heard<'_>, channel: &mut Channel) -> Option<()> {
        let transmitter = heard.get(attribute::ADDR_TRANSMITTER)?;
        let radio = (0..self.radios).find(|number| mac(*number) == transmitter)?;
        let original = heard.get(attribute::FRAME)?.to_vec();
        let flags = u32::from_ne_bytes(*heard.get(attribute::FLAGS)?.first_chunk()?);
        let cookie = *heard.get(attribute::COOKIE)?.first_chunk()?;
        let frame: Frame = Arc::from(ethernet(&original)?);
        self.pending.insert(key(&frame), Pending { _frame: frame.clone(), original, flags, cookie });
        channel.enqueue(clock::monotonic(), radio, frame);
        Some(())
    }
}

/// Status that the kernel returns for a request: 0, a negative error number, or the number of the new object.
#[derive(Debug)]
struct Status(i32);

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(Errno::from_raw(-self.0).desc())
    }
}

impl std::error::Error for Status {}

/// Converts the success status, which [`Hwsim::ask`] returns as an error, to `Ok`.
fn done(error: anyhow::Error) -> anyhow::Result<()> {
    if error.downcast_ref::<Status>().is_some_and(|status| status.0 >= 0) { Ok(()) } else { Err(error) }
}

fn phy(run: u32, number: usize) -> String {
    format!("carnet-{run:x}-{number}")
}

/// Returns the number of each radio by its name, from the output of `iw phy`.
fn indices(text: &str) -> HashMap<String, u32> {
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

fn key(frame: &Frame) -> usize {
    frame.as_ptr() as usize
}

impl FrameMover for Hwsim {
    fn receive(&mut self, channel: &mut Channel) -> anyhow::Result<u64> {
        let mut buffer = vec![0; LONGEST];
        let mut refused = 0;
        for _ in 0..BATCH {
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
            while let Some((heard, behind)) = Heard::parse(rest) {
                if heard.kind == ERROR {
                    refused += u64::from(heard.status() != Some(0));
                } else if heard.kind == self.family && heard.command() == Some(command::FRAME) {
                    let _understood = self.handle_frame(&heard, channel);
                }
                rest = behind;
            }
        }
        Ok(refused)
    }

    fn carry(&mut self, output: &Output) -> anyhow::Result<Option<bool>> {
        match output {
            Output::Sent { .. } => Ok(None),
            Output::Received { radio, frame, .. } => {
                let Some(pending) = self.pending.get(&key(frame)) else { return Ok(Some(false)) };
                let message = Message::new(self.family, command::FRAME, false)
                    .with(attribute::ADDR_RECEIVER, &mac(*radio))
                    .with(attribute::FRAME, &pending.original)
                    .with(attribute::RX_RATE, &0_u32.to_ne_bytes())
                    .with(attribute::SIGNAL, &SIGNAL.to_ne_bytes());
                self.send(message).map(Some)
            }
            Output::Done { radio, frame, tries, acknowledged } => {
                let Some(pending) = self.pending.remove(&key(frame)) else { return Ok(None) };
                let flags = if *acknowledged { pending.flags | STAT_ACK } else { pending.flags };
                // Only the first rate entry is valid: the rate and the number of tries.
                let mut rates = [0xff, 0, 0xff, 0, 0xff, 0, 0xff, 0];
                (rates[0], rates[1]) = (0, u8::try_from(*tries).unwrap_or(u8::MAX));
                let message = Message::new(self.family, command::TX_INFO_FRAME, false)
                    .with(attribute::ADDR_TRANSMITTER, &mac(*radio))
                    .with(attribute::FLAGS, &flags.to_ne_bytes())
                    .with(attribute::SIGNAL, &SIGNAL.to_ne_bytes())
                    .with(attribute::TX_INFO, &rates)
                    .with(attribute::COOKIE, &pending.cookie);
                self.send(message)?;
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
        let found = indices(text);
        assert_eq!((found.get("carnet-1-1"), found.get("phy0"), found.len()), (Some(&4), Some(&0), 2));
    }

    #[test]
    fn missing_hwsim_module_error_names_remedy() {
        assert!(done(anyhow::Error::new(Status(3))).is_ok());
        let error = done(anyhow::Error::new(Status(-2))).expect_err("an error");
        assert_eq!(error.to_string(), "No such file or directory");
    }
}
