//! Unknown Binding Identifiers: the running home agent's answers, captured from the network.

use carnet_wire::extension::ExtensionHeaders;
use carnet_wire::ipv6::protocol;
use carnet_wire::mobility::flow_identification::emit_sub_options;
use carnet_wire::mobility::traffic_selector::{Ipv6Selector, TrafficSelector, ValueRange};
use carnet_wire::mobility::{
    BindingUpdateFlags, ControlPacket, MobilityHeaderBuilder, MobilityOption, message_type,
};

use crate::hosts::{can_run_or_report, seconds, wait_for};
use crate::station::Station;
use crate::testbed::{CARE_OF_ADDRESSES, HOME_AGENT_ADDRESS, Testbed, parse_address};
use crate::traffic::{PacketSniffer, RawSender};

/// Home address of a node without a key.
const NODE_HOME_ADDRESS: &str = "2001:db8:1::5678";
const NODE_ENTRY: &str = "
[[home_agent.mobile_router]]
home_address = '2001:db8:1::5678'
auth = 'none'
";

/// Content of a Binding Acknowledgement: the status, the Binding Identifier options (type 35, RFC 5648 4.1:
/// BID and status) and the Flow Identification options (type 45, RFC 6089 4.2: FID and status).
#[derive(Debug, PartialEq, Eq)]
struct AcknowledgedOptions {
    status: u8,
    binding_identifiers: Vec<(u16, u8)>,
    flow_identifiers: Vec<(u16, u8)>,
}

/// Returns the acknowledgement with this sequence number among the packets. The function parses the octets
/// itself, without carnet's parser.
fn find_acknowledgement(packets: &[Vec<u8>], sequence: u16) -> Option<AcknowledgedOptions> {
    packets.iter().find_map(|packet| {
        let found = ExtensionHeaders::parse(packet).ok().filter(|it| it.protocol == protocol::MOBILITY)?;
        let header = &packet[found.upper_layer_offset..];
        let is_it =
            header[2] == message_type::BINDING_ACKNOWLEDGEMENT && header[8..10] == sequence.to_be_bytes();
        if !is_it {
            return None;
        }
        let mut said = AcknowledgedOptions {
            status: header[6],
            binding_identifiers: Vec::new(),
            flow_identifiers: Vec::new(),
        };
        let mut options = &header[12..];
        while let [kind, rest @ ..] = options {
            // Pad1 is one octet; all other options have a length field.
            let Some((length, rest)) = rest.split_first().filter(|_| *kind != 0) else {
                options = rest;
                continue;
            };
            let (data, rest) = rest.split_at(usize::from(*length));
            let number = || u16::from_be_bytes([data[0], data[1]]);
            match kind {
                35 => said.binding_identifiers.push((number(), data[2])),
                45 => said.flow_identifiers.push((number(), data[5])),
                _ => {}
            }
            options = rest;
        }
        Some(said)
    })
}

#[test]
fn an_unknown_binding_identifier_is_answered_with_its_status() {
    if !can_run_or_report() {
        return;
    }
    let bed = Testbed::new();
    let agent = Station::start(&bed.agent, &(bed.agent_config() + NODE_ENTRY));
    let sniffer = PacketSniffer::start(&bed.router, &["wlan0"]);
    let cannon = RawSender::new(&bed.router);
    let (care_of, home_agent) = (parse_address(CARE_OF_ADDRESSES[0]), parse_address(HOME_AGENT_ADDRESS));
    let identifier = |bid, known: bool| MobilityOption::BindingIdentifier {
        bid,
        status: 0,
        home: false,
        priority: 10,
        care_of_address: known.then_some(care_of.into()),
    };
    let ask = |sequence, overwrite, options: &[MobilityOption<'_>]| {
        let flags = BindingUpdateFlags {
            acknowledge: true,
            home_registration: true,
            overwrite,
            ..Default::default()
        };
        let update = MobilityHeaderBuilder::binding_update(sequence, flags, 15);
        let mut mobility_header =
            options.iter().fold(update, |update, option| update.option(option)).finish();
        let packet = ControlPacket {
            source: care_of,
            destination: home_agent,
            hop_limit: 64,
            home_address: Some(parse_address(NODE_HOME_ADDRESS)),
            routing_home_address: None,
            mobility_header: &mut mobility_header,
        }
        .emit();
        wait_for(&format!("an answer to {sequence}"), seconds(10), || {
            cannon.send_packet(&packet, home_agent, 0);
            std::thread::sleep(seconds(1) / 10);
            find_acknowledgement(&sniffer.seen_packets(), sequence)
        })
    };
    let said = |status, identifiers: &[(u16, u8)], flows: &[(u16, u8)]| AcknowledgedOptions {
        status,
        binding_identifiers: identifiers.to_vec(),
        flow_identifiers: flows.to_vec(),
    };
    assert_eq!(ask(1, true, &[identifier(1, true)]), said(0, &[(1, 0)], &[]));
    let bindings = agent.bindings();
    assert_eq!(bindings.len(), 1);

    // RFC 5648 4.2: a Binding Identifier option without care-of address, whose identifier the home agent does
    // not know. Status 4 means "accepted, see the options"; 167 is MCOA UNKNOWN COA.
    assert_eq!(ask(2, false, &[identifier(9, false)]), said(4, &[(9, 167)], &[]));
    // RFC 6089 5.3.2.1: a flow for an unknown binding gets status 131, "BID not found". The home agent still
    // processes the other options.
    let udp = Ipv6Selector {
        next_header: Some(ValueRange::single(protocol::UDP)),
        destination_port: Some(ValueRange::single(5000)),
        ..Ipv6Selector::default()
    };
    let lost = emit_sub_options(Some(&TrafficSelector::Ipv6(udp)), &[9]);
    let found = emit_sub_options(Some(&TrafficSelector::Ipv6(udp)), &[1]);
    let flow = |fid, priority, sub_options| MobilityOption::FlowIdentification {
        fid,
        priority,
        status: 0,
        sub_options,
    };
    let options = [identifier(1, true), flow(4, 10, &lost), flow(5, 20, &found)];
    assert_eq!(ask(3, false, &options), said(0, &[(1, 0)], &[(4, 131), (5, 0)]));
    assert_eq!(agent.bindings(), bindings, "nothing of it concerns the binding that is there");
    sniffer.stop();
}
