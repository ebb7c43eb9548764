//! Encodes and decodes messages of generic netlink to and from mac80211_hwsim, by
//! `include/uapi/linux/genetlink.h` and `mac80211_hwsim.h` of the kernel. Numbers are in the byte order of
//! the machine.
//!
//! The module also converts the 802.11 frames in the messages (IEEE 802.11-2020 9.2 and 9.3.2.1) to Ethernet
//! frames, which the model of the medium uses. Left out: encrypted frames, aggregated frames and frames with
//! four addresses, which stations outside the context of a BSS do not send.

/// Message type `NLMSG_ERROR`.
pub const NLMSG_ERROR: u16 = 2;
/// Number of the control family, `GENL_ID_CTRL`.
pub const GENL_ID_CTRL: u16 = 16;
/// Command `CTRL_CMD_GETFAMILY` of the control family.
pub const CTRL_CMD_GETFAMILY: u8 = 3;
/// Attribute `CTRL_ATTR_FAMILY_ID`, a u16.
pub const CTRL_ATTR_FAMILY_ID: u16 = 1;
/// Attribute `CTRL_ATTR_FAMILY_NAME`.
pub const CTRL_ATTR_FAMILY_NAME: u16 = 2;
/// Flag `NLM_F_REQUEST`.
const NLM_F_REQUEST: u16 = 1;
/// Flag `NLM_F_ACK`.
const NLM_F_ACK: u16 = 4;

/// Commands of mac80211_hwsim, `HWSIM_CMD_...`.
pub mod command {
    pub const REGISTER: u8 = 1;
    pub const FRAME: u8 = 2;
    pub const TX_INFO_FRAME: u8 = 3;
    pub const NEW_RADIO: u8 = 4;
}

/// Attributes of mac80211_hwsim, `HWSIM_ATTR_...`.
pub mod attribute {
    pub const ADDR_RECEIVER: u16 = 1;
    pub const ADDR_TRANSMITTER: u16 = 2;
    pub const FRAME: u16 = 3;
    pub const FLAGS: u16 = 4;
    pub const RX_RATE: u16 = 5;
    pub const SIGNAL: u16 = 6;
    pub const TX_INFO: u16 = 7;
    pub const COOKIE: u16 = 8;
    pub const REG_CUSTOM_REG: u16 = 12;
    pub const DESTROY_RADIO_ON_CLOSE: u16 = 16;
    pub const RADIO_NAME: u16 = 17;
    pub const NO_VIF: u16 = 18;
    pub const PERM_ADDR: u16 = 22;
}

/// Flag `HWSIM_TX_STAT_ACK` of a transmission status: the frame was acknowledged.
pub const TX_STATUS_ACKNOWLEDGED: u32 = 1 << 2;

/// A generic netlink message to send.
#[derive(Debug)]
pub struct RequestMessage(Vec<u8>);

impl RequestMessage {
    /// Creates a request to a family. With `answered`, the kernel returns a status.
    pub fn new(family: u16, command: u8, answered: bool) -> RequestMessage {
        let mut octets = vec![0; 4];
        octets.extend_from_slice(&family.to_ne_bytes());
        let flags = if answered { NLM_F_REQUEST | NLM_F_ACK } else { NLM_F_REQUEST };
        octets.extend_from_slice(&flags.to_ne_bytes());
        octets.extend_from_slice(&[0; 8]);
        octets.extend_from_slice(&[command, 1, 0, 0]);
        RequestMessage(octets)
    }

    /// Appends an attribute.
    pub fn with_attribute(mut self, kind: u16, value: &[u8]) -> RequestMessage {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.0.extend_from_slice(&length.to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Returns the octets of the message.
    pub fn finish(mut self) -> Vec<u8> {
        let length = (self.0.len() as u32).to_ne_bytes();
        self.0[..4].copy_from_slice(&length);
        self.0
    }
}

/// A received generic netlink message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedMessage<'a> {
    /// Number of the message's family, or [`NLMSG_ERROR`].
    pub message_type: u16,
    body: &'a [u8],
}

impl<'a> ReceivedMessage<'a> {
    /// Parses the first message in these octets. Also returns the octets after it. `None` if no complete
    /// message is left.
    pub fn parse(octets: &'a [u8]) -> Option<(ReceivedMessage<'a>, &'a [u8])> {
        let length = u32::from_ne_bytes(*octets.first_chunk()?) as usize;
        let kind = u16::from_ne_bytes(*octets.get(4..)?.first_chunk()?);
        let body = octets.get(16..length)?;
        Some((
            ReceivedMessage { message_type: kind, body },
            octets.get(length.next_multiple_of(4)..).unwrap_or_default(),
        ))
    }

    /// Returns the status in an [`NLMSG_ERROR`]: 0 for success, a negative error number, or the result of a
    /// command. `None` if the message is truncated.
    pub fn error_status(&self) -> Option<i32> {
        Some(i32::from_ne_bytes(*self.body.first_chunk()?))
    }

    /// Returns the command of the message; `None` if the message is truncated.
    pub fn command(&self) -> Option<u8> {
        self.body.first().copied()
    }

    /// Returns the value of the first attribute of this type; `None` if the message lacks it.
    pub fn attribute(&self, wanted: u16) -> Option<&'a [u8]> {
        let mut rest = self.body.get(4..)?;
        loop {
            let length = usize::from(u16::from_ne_bytes(*rest.first_chunk()?));
            let kind = u16::from_ne_bytes(*rest.get(2..)?.first_chunk()?);
            let value = rest.get(4..length)?;
            // The two upper bits are flags for a nested attribute and for network byte order.
            if kind & 0x3fff == wanted {
                return Some(value);
            }
            rest = rest.get(length.next_multiple_of(4)..)?;
        }
    }
}

/// Converts an 802.11 frame to an Ethernet frame: destination, source, EtherType, payload. If a frame
/// contains no packet, the result has EtherType 0 and the octets after the frame's addresses. Returns `None`
/// for a truncated frame.
pub fn ethernet_frame_of_80211(frame: &[u8]) -> Option<Vec<u8>> {
    /// First octet of a QoS data frame, which has a QoS Control field.
    const QOS_DATA: u8 = 0x88;
    const DATA: u8 = 0x08;
    /// LLC and SNAP header before an EtherType (IEEE 802-2014 9.2).
    const SNAP_HEADER: [u8; 6] = [0xaa, 0xaa, 0x03, 0, 0, 0];
    let (receiver, transmitter) = (frame.get(4..10)?, frame.get(10..16)?);
    let body = match frame[0] {
        QOS_DATA => frame.get(26..)?,
        _ => frame.get(24..)?,
    };
    let mut octets = [receiver, transmitter].concat();
    match body.strip_prefix(&SNAP_HEADER) {
        Some(packet) if matches!(frame[0], DATA | QOS_DATA) => octets.extend_from_slice(packet),
        _ => {
            octets.extend_from_slice(&[0, 0]);
            octets.extend_from_slice(body);
        }
    }
    Some(octets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hwsim_messages_are_encoded_and_decoded() {
        let octets = RequestMessage::new(30, command::FRAME, false)
            .with_attribute(attribute::ADDR_TRANSMITTER, &[2, 0, 0, 0, 0, 1])
            .with_attribute(attribute::NO_VIF, &[])
            .with_attribute(attribute::COOKIE, &7_u64.to_ne_bytes())
            .finish();
        assert_eq!(octets.len(), 16 + 4 + 12 + 4 + 12);
        let twice = [&octets[..], &octets[..]].concat();
        let (heard, rest) = ReceivedMessage::parse(&twice).expect("a message");
        assert_eq!(rest, octets);
        assert_eq!((heard.message_type, heard.command()), (30, Some(command::FRAME)));
        assert_eq!(heard.attribute(attribute::ADDR_TRANSMITTER), Some(&[2, 0, 0, 0, 0, 1][..]));
        assert_eq!(heard.attribute(attribute::COOKIE), Some(&7_u64.to_ne_bytes()[..]));
        assert_eq!(heard.attribute(attribute::NO_VIF), Some(&[][..]));
        assert_eq!(heard.attribute(attribute::FRAME), None);
    }

    #[test]
    fn truncated_hwsim_messages_are_refused() {
        let octets =
            RequestMessage::new(30, command::FRAME, true).with_attribute(attribute::FRAME, &[1; 9]).finish();
        for length in 0..octets.len() {
            assert_eq!(ReceivedMessage::parse(&octets[..length]), None);
        }
        let mut odd = octets.clone();
        // One attribute claims to be longer than the message, others to be shorter than their header.
        for claimed in [60_000_u16, 3, 0] {
            odd[20..22].copy_from_slice(&claimed.to_ne_bytes());
            let (heard, _) = ReceivedMessage::parse(&odd).expect("a message");
            assert_eq!((heard.attribute(attribute::FRAME), heard.attribute(attribute::COOKIE)), (None, None));
        }
    }

    #[test]
    fn frames_of_80211_become_ethernet_frames() {
        let addresses = [[0xff; 6], [2, 0, 0, 0, 0, 1], [0xff; 6]].concat();
        let qos = [&[0x88, 0, 0, 0][..], &addresses, &[0, 0, 0, 0, 0xaa, 0xaa, 3, 0, 0, 0, 0x89, 0x47, 1, 2]]
            .concat();
        let expected = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x89, 0x47, 1, 2]].concat();
        assert_eq!(ethernet_frame_of_80211(&qos), Some(expected.clone()));
        let plain =
            [&[0x08, 0, 0, 0][..], &addresses, &[0, 0, 0xaa, 0xaa, 3, 0, 0, 0, 0x89, 0x47, 1, 2]].concat();
        assert_eq!(ethernet_frame_of_80211(&plain), Some(expected));
        let beacon = [&[0x80, 0, 0, 0][..], &addresses, &[0, 0, 9]].concat();
        assert_eq!(ethernet_frame_of_80211(&beacon).map(|e| e[12..].to_vec()), Some(vec![0, 0, 9]));
        assert_eq!(ethernet_frame_of_80211(&qos[..20]), None);
    }
}
