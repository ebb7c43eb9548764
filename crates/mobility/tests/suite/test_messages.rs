//! Builds Binding Updates by hand, and parses the answers.
//!
//! A [`ReceivedPacket`] contains the values that a receiver reads from a packet with a correct checksum.

use std::net::{IpAddr, Ipv6Addr};

use carnet_mobility::{MobilityMessage, ReplayProtection, SecurityAssociation};
pub use carnet_virtual::{address as addr, prefix as net};
use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::icmpv6::{self, Icmpv6ErrorMessage};
use carnet_wire::ipv6::{Header, protocol};
use carnet_wire::mobility::{
    BindingUpdateFlags, ControlPacket, MobilityHeader, MobilityHeaderBuilder, MobilityOption,
    ParsedMobilityMessage, authentication_field,
};
use ipnet::Ipv6Net;

pub const HOME_AGENT_ADDRESS: &str = "2001:db8:1::1";
pub const HOME_ADDRESS: &str = "2001:db8:1::1234";
pub const HOME_PREFIX: &str = "2001:db8:1::/64";
pub const MOBILE_NETWORK_PREFIX: &str = "2001:db8:a::/64";
pub const SECOND_MOBILE_NETWORK_PREFIX: &str = "2001:db8:b::/64";
pub const CARE_OF_ADDRESS: &str = "2001:db8:f1::10";
pub const OTHER_CARE_OF_ADDRESS: &str = "2001:db8:f2::10";

/// Returns the Mobility Header message in a packet; `None` if there is no such message.
pub fn parse_mobility_message(packet: &[u8]) -> Option<MobilityMessage<'_>> {
    let header = Header::parse(packet).expect("an IPv6 header");
    let extensions = ExtensionHeaders::parse(packet).expect("extension headers");
    MobilityMessage::new(packet, &header, &extensions)
}

pub fn octets_of_hex(text: &str) -> Vec<u8> {
    let digits: String = text.split_whitespace().collect();
    (0..digits.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex digits"))
        .collect()
}

/// Security association with SPI 300 and key 00..0f.
pub fn test_association() -> SecurityAssociation {
    SecurityAssociation {
        spi: 300,
        key: std::array::from_fn::<u8, 16, _>(|i| i as u8).into(),
        replay: ReplayProtection::Sequence,
    }
}

pub const NO_FLAGS: BindingUpdateFlags = BindingUpdateFlags {
    acknowledge: false,
    home_registration: false,
    link_local: false,
    key_management: false,
    map: false,
    mobile_router: false,
    proxy: false,
    force_udp: false,
    tlv: false,
    overwrite: false,
};
/// Flags that a mobile router sets.
pub const ROUTER_FLAGS: BindingUpdateFlags =
    BindingUpdateFlags { acknowledge: true, home_registration: true, mobile_router: true, ..NO_FLAGS };
/// Flags that a mobile node sets.
pub const NODE_FLAGS: BindingUpdateFlags =
    BindingUpdateFlags { acknowledge: true, home_registration: true, ..NO_FLAGS };

/// A Binding Update to be sent to the home agent.
#[derive(Debug, Clone)]
pub struct TestUpdate {
    pub source: Ipv6Addr,
    pub home_address: Option<Ipv6Addr>,
    pub flags: BindingUpdateFlags,
    pub sequence: u16,
    /// Lifetime in units of 4 seconds.
    pub lifetime: u16,
    pub options: Vec<MobilityOption<'static>>,
    pub association: Option<SecurityAssociation>,
}

impl TestUpdate {
    /// Returns an update of a mobile router from [`CARE_OF_ADDRESS`], for 60 seconds, without prefixes
    /// (implicit mode).
    pub fn implicit_update(sequence: u16) -> TestUpdate {
        TestUpdate {
            source: addr(CARE_OF_ADDRESS),
            home_address: Some(addr(HOME_ADDRESS)),
            flags: ROUTER_FLAGS,
            sequence,
            lifetime: 15,
            options: Vec::new(),
            association: None,
        }
    }

    /// Returns an update of a mobile router from [`CARE_OF_ADDRESS`], for 60 seconds, with
    /// [`MOBILE_NETWORK_PREFIX`] (explicit mode).
    pub fn explicit_update(sequence: u16) -> TestUpdate {
        TestUpdate::implicit_update(sequence).prefix(MOBILE_NETWORK_PREFIX)
    }

    /// Returns an update of a mobile node (RFC 6275, no R flag).
    pub fn node_update(sequence: u16) -> TestUpdate {
        TestUpdate { flags: NODE_FLAGS, ..TestUpdate::implicit_update(sequence) }
    }

    pub fn lifetime(self, lifetime: u16) -> TestUpdate {
        TestUpdate { lifetime, ..self }
    }

    pub fn with_flags(self, flags: BindingUpdateFlags) -> TestUpdate {
        TestUpdate { flags, ..self }
    }

    pub fn from(self, source: &str) -> TestUpdate {
        TestUpdate { source: addr(source), ..self }
    }

    pub fn for_home_address(self, home_address: &str) -> TestUpdate {
        TestUpdate { home_address: Some(addr(home_address)), ..self }
    }

    /// Sends the update from the home link, without a Home Address option.
    pub fn sent_on_home_link(self) -> TestUpdate {
        TestUpdate { source: addr(HOME_ADDRESS), home_address: None, ..self }
    }

    pub fn with_option(mut self, option: MobilityOption<'static>) -> TestUpdate {
        self.options.push(option);
        self
    }

    pub fn prefix(self, prefix: &str) -> TestUpdate {
        let prefix = net(prefix);
        self.with_option(MobilityOption::MobileNetworkPrefix {
            prefix: prefix.addr(),
            prefix_length: prefix.prefix_len(),
        })
    }

    pub fn with_alternate_care_of_address(self, address: &str) -> TestUpdate {
        self.with_option(MobilityOption::AlternateCareOfAddress(addr(address)))
    }

    pub fn with_signature(self) -> TestUpdate {
        self.with_signature_by(test_association())
    }

    pub fn with_signature_by(self, association: SecurityAssociation) -> TestUpdate {
        TestUpdate { association: Some(association), ..self }
    }

    fn care_of_address(&self) -> Ipv6Addr {
        let named = |kind: u8| {
            self.options.iter().filter(move |option| option.option_type() == kind).find_map(|option| {
                match option {
                    MobilityOption::AlternateCareOfAddress(address) => Some(*address),
                    MobilityOption::BindingIdentifier { care_of_address, .. } => match (*care_of_address)? {
                        IpAddr::V6(address) => Some(address),
                        IpAddr::V4(address) => Some(address.to_ipv6_mapped()),
                    },
                    MobilityOption::Ipv4CareOfAddress(address) => Some(address.to_ipv6_mapped()),
                    _ => None,
                }
            })
        };
        // Types of the options that name a care-of address: Binding Identifier, Alternate Care-of Address,
        // IPv4 Care-of Address.
        [35, 3, 32].into_iter().find_map(named).unwrap_or(self.source)
    }

    /// Returns the Mobility Header with checksum zero.
    pub fn mobility_header(&self) -> Vec<u8> {
        let mut builder = MobilityHeaderBuilder::binding_update(self.sequence, self.flags, self.lifetime);
        for option in &self.options {
            builder = builder.option(option);
        }
        if let Some(association) = &self.association {
            builder = builder.option(&association.empty_authentication_option());
        }
        let mut octets = builder.finish();
        if let Some(association) = &self.association {
            let home = self.home_address.unwrap_or(self.source);
            association.sign(&mut octets, self.care_of_address(), home);
        }
        octets
    }

    pub fn to_packet(&self) -> Vec<u8> {
        self.packet_around(&mut self.mobility_header())
    }

    /// Builds the update's packet around another Mobility Header, with a right checksum.
    pub fn packet_around(&self, mobility_header: &mut [u8]) -> Vec<u8> {
        ControlPacket {
            source: self.source,
            destination: addr(HOME_AGENT_ADDRESS),
            hop_limit: 64,
            home_address: self.home_address,
            routing_home_address: None,
            mobility_header,
        }
        .emit()
    }
}

/// A packet as its receiver reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceivedPacket {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub hop_limit: u8,
    pub home_address: Option<Ipv6Addr>,
    pub routing_home_address: Option<Ipv6Addr>,
    pub mobility_header: Vec<u8>,
    pub message: ReceivedMessage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceivedMessage {
    Update {
        sequence: u16,
        flags: BindingUpdateFlags,
        lifetime: u16,
        options: ReceivedOptions,
    },
    Acknowledgement {
        status: u8,
        mobile_router: bool,
        key_management: bool,
        sequence: u16,
        lifetime: u16,
        options: ReceivedOptions,
    },
    BindingError {
        status: u8,
        home_address: Ipv6Addr,
    },
    ParameterProblem {
        code: u8,
        pointer: u32,
    },
    Other,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReceivedOptions {
    pub alternate_care_of_address: Option<Ipv6Addr>,
    pub prefixes: Vec<Ipv6Net>,
    pub timestamp: Option<u64>,
    pub refresh_advice: Option<u16>,
    pub spi: Option<u32>,
}

impl ReceivedOptions {
    fn read_options(options: carnet_wire::mobility::MobilityOptions<'_>) -> ReceivedOptions {
        let mut seen = ReceivedOptions::default();
        for option in options.iter() {
            match option.expect("an option that parses") {
                MobilityOption::AlternateCareOfAddress(address) => {
                    seen.alternate_care_of_address = Some(address)
                }
                MobilityOption::MobileNetworkPrefix { prefix, prefix_length } => {
                    seen.prefixes.push(Ipv6Net::new(prefix, prefix_length).expect("a prefix"));
                }
                MobilityOption::MessageIdentifier(timestamp) => seen.timestamp = Some(timestamp),
                MobilityOption::BindingRefreshAdvice(units) => seen.refresh_advice = Some(units),
                MobilityOption::Authentication { spi, .. } => seen.spi = Some(spi),
                _ => {}
            }
        }
        seen
    }
}

impl ReceivedPacket {
    /// Reads a packet; panics if the packet is not valid on the wire.
    pub fn parse_packet(packet: &[u8]) -> ReceivedPacket {
        let header = Header::parse(packet).expect("an IPv6 header");
        assert_eq!(packet.len(), 40 + usize::from(header.payload_length), "payload length");
        let extensions = ExtensionHeaders::parse(packet).expect("extension headers");
        let upper = &packet[extensions.upper_layer_offset..];
        let pseudo_source = extensions.home_address.unwrap_or(header.source);
        let pseudo_destination = extensions.routing_home_address.unwrap_or(header.destination);
        let mut mobility_header = Vec::new();
        let message = match extensions.protocol {
            protocol::ICMPV6 => {
                icmpv6::verify_checksum(header.source, header.destination, upper)
                    .expect("a right ICMPv6 checksum");
                match icmpv6::parse_error(upper).expect("an ICMPv6 error").0 {
                    Icmpv6ErrorMessage::ParameterProblem { code, pointer } => {
                        ReceivedMessage::ParameterProblem { code, pointer }
                    }
                    _ => ReceivedMessage::Other,
                }
            }
            protocol::MOBILITY => {
                let parsed = MobilityHeader::parse_verified(upper, pseudo_source, pseudo_destination)
                    .expect("a right Mobility Header");
                mobility_header = parsed.octets().to_vec();
                match parsed.message().expect("a message") {
                    ParsedMobilityMessage::BindingUpdate(update) => ReceivedMessage::Update {
                        sequence: update.sequence,
                        flags: update.flags,
                        lifetime: update.lifetime,
                        options: ReceivedOptions::read_options(update.options),
                    },
                    ParsedMobilityMessage::BindingAcknowledgement(acknowledgement) => {
                        ReceivedMessage::Acknowledgement {
                            status: acknowledgement.status,
                            mobile_router: acknowledgement.mobile_router,
                            key_management: acknowledgement.key_management,
                            sequence: acknowledgement.sequence,
                            lifetime: acknowledgement.lifetime,
                            options: ReceivedOptions::read_options(acknowledgement.options),
                        }
                    }
                    ParsedMobilityMessage::BindingError(error) => ReceivedMessage::BindingError {
                        status: error.status,
                        home_address: error.home_address,
                    },
                    _ => ReceivedMessage::Other,
                }
            }
            other => panic!("protocol {other} on the wire"),
        };
        ReceivedPacket {
            source: header.source,
            destination: header.destination,
            hop_limit: header.hop_limit,
            home_address: extensions.home_address,
            routing_home_address: extensions.routing_home_address,
            mobility_header,
            message,
        }
    }

    /// Returns the status of an acknowledgement.
    pub fn status(&self) -> u8 {
        match self.message {
            ReceivedMessage::Acknowledgement { status, .. } => status,
            ref other => panic!("expected an acknowledgement, found {other:?}"),
        }
    }

    /// Returns the sequence number of an update or acknowledgement.
    pub fn sequence(&self) -> u16 {
        match self.message {
            ReceivedMessage::Acknowledgement { sequence, .. } | ReceivedMessage::Update { sequence, .. } => {
                sequence
            }
            ref other => panic!("expected an update or acknowledgement, found {other:?}"),
        }
    }

    /// Returns the lifetime of an update or acknowledgement in units of 4 seconds.
    pub fn lifetime(&self) -> u16 {
        match self.message {
            ReceivedMessage::Acknowledgement { lifetime, .. } | ReceivedMessage::Update { lifetime, .. } => {
                lifetime
            }
            ref other => panic!("expected an update or acknowledgement, found {other:?}"),
        }
    }

    /// Returns the R flag of an update or acknowledgement.
    pub fn mobile_router(&self) -> bool {
        match self.message {
            ReceivedMessage::Acknowledgement { mobile_router, .. } => mobile_router,
            ReceivedMessage::Update { flags, .. } => flags.mobile_router,
            ref other => panic!("expected an update or acknowledgement, found {other:?}"),
        }
    }

    pub fn options(&self) -> &ReceivedOptions {
        match &self.message {
            ReceivedMessage::Acknowledgement { options, .. } | ReceivedMessage::Update { options, .. } => {
                options
            }
            other => panic!("expected an update or acknowledgement, found {other:?}"),
        }
    }

    pub fn is_update(&self) -> bool {
        matches!(self.message, ReceivedMessage::Update { .. })
    }

    /// Returns whether the message has a right MAC of this association.
    pub fn is_signed(&self, association: &SecurityAssociation, care_of: &str, home: &str) -> bool {
        authentication_field(&self.mobility_header).expect("options").is_some()
            && association.verify(&self.mobility_header, addr(care_of), addr(home)).is_ok()
    }
}

/// A Binding Acknowledgement to be sent to a mobile router.
#[derive(Debug, Clone)]
pub struct TestAcknowledgement {
    pub source: Ipv6Addr,
    pub destination: Ipv6Addr,
    pub routing_home_address: Option<Ipv6Addr>,
    pub status: u8,
    pub mobile_router: bool,
    pub sequence: u16,
    pub lifetime: u16,
    pub options: Vec<MobilityOption<'static>>,
    pub association: Option<SecurityAssociation>,
}

impl TestAcknowledgement {
    /// Returns the answer of a correct home agent to an update, without authentication.
    pub fn answering(update: &ReceivedPacket, status: u8) -> TestAcknowledgement {
        TestAcknowledgement {
            source: update.destination,
            destination: update.source,
            routing_home_address: update.home_address,
            status,
            mobile_router: true,
            sequence: update.sequence(),
            lifetime: if status < 128 { update.lifetime() } else { 0 },
            options: Vec::new(),
            association: None,
        }
    }

    pub fn to_packet(&self) -> Vec<u8> {
        let mut builder = MobilityHeaderBuilder::binding_acknowledgement(
            self.status,
            false,
            self.mobile_router,
            self.sequence,
            self.lifetime,
        );
        for option in &self.options {
            builder = builder.option(option);
        }
        if let Some(association) = &self.association {
            builder = builder.option(&association.empty_authentication_option());
        }
        let mut mobility_header = builder.finish();
        if let Some(association) = &self.association {
            let home = self.routing_home_address.unwrap_or(self.destination);
            association.sign(&mut mobility_header, self.destination, home);
        }
        control_packet(self.source, self.destination, self.routing_home_address, &mut mobility_header)
    }
}

/// Returns a packet with a Mobility Header from a home agent.
pub fn control_packet(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    routing_home_address: Option<Ipv6Addr>,
    mobility_header: &mut [u8],
) -> Vec<u8> {
    ControlPacket {
        source,
        destination,
        hop_limit: 64,
        home_address: None,
        routing_home_address,
        mobility_header,
    }
    .emit()
}
