//! The rtnetlink channel to a simulated kernel. It takes requests and returns answers and events as octets,
//! and can inject faults.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroI32;
use std::rc::Rc;

use carnet_nemo::forwarding::desired::{Ipv4Rule, PortMatch, Rule};
use ipnet::{Ipv4Net, Ipv6Net};
use netlink_packet_core::{
    DoneMessage, Emitable, ErrorMessage, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_EXCL, NetlinkBuffer,
    NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, AddressProtocol};
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkLayerType, LinkMessage};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteProtocol, RouteScope, RouteType,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage, RulePortRange};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};

use super::kernel::{
    KernelEvent, KernelState, ObjectOwner, RequestResult, SimulatedAddress, SimulatedIpv4Route,
    SimulatedIpv4Rule, SimulatedLink, SimulatedRoute, SimulatedRouteAction, SimulatedRule,
};
use crate::kernel_settings::SettingsTree;
use crate::netlink::NetlinkChannel;

/// Errors that a kernel may return for any request.
const RANDOM_ERRORS: [i32; 5] = [libc::ENOBUFS, libc::ENOMEM, libc::EINVAL, libc::EBUSY, libc::EAGAIN];
/// Netlink port of carnet.
const CARNET_PORT_ID: u32 = 77;
/// Length of `struct nlmsghdr` in octets.
const NETLINK_HEADER_LENGTH: u32 = 16;
/// Netlink port of all other programs.
const OTHER_PROGRAMS_PORT: u32 = 5;

/// Socket of one process to the simulated kernel.
pub(super) struct SimulatedChannel {
    pub(super) simulated_kernel: Rc<RefCell<KernelState>>,
    pending_answers: VecDeque<Vec<u8>>,
    /// Whether the next reading fails with `ENOBUFS`, as if the kernel had dropped the answer to the last
    /// request.
    loses_answer: bool,
}

impl SimulatedChannel {
    pub(super) fn new(kernel: Rc<RefCell<KernelState>>) -> SimulatedChannel {
        SimulatedChannel { simulated_kernel: kernel, pending_answers: VecDeque::new(), loses_answer: false }
    }
}

impl NetlinkChannel for SimulatedChannel {
    fn port_id(&self) -> u32 {
        CARNET_PORT_ID
    }

    fn kernel_stores_address_protocol(&self) -> bool {
        self.simulated_kernel.borrow().stores_address_protocol
    }

    fn send(&mut self, request: &[u8]) -> io::Result<()> {
        let mut state = self.simulated_kernel.borrow_mut();
        if state.count_step() {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let header = NetlinkBuffer::new(request);
        let (sequence, flags) = (header.sequence_number(), header.flags());
        let trouble = state.failure_probability;
        let fails = state.rng.is_true_with_probability(trouble);
        let kind = if fails { state.rng.number_below(8) } else { 9 };
        if kind == 0 {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        let parsed = NetlinkMessage::<RouteNetlinkMessage>::deserialize(request);
        let NetlinkPayload::InnerMessage(message) =
            parsed.expect("a request must be an rtnetlink message").payload
        else {
            panic!("received a netlink message that is no request");
        };
        // A moment before carnet's request, another program makes the same change.
        if fails && (kind == 1 || kind == 6 && state.rng.is_true_with_probability(0.5)) {
            make_change_first(&mut state, &message, flags);
        }
        let mut answers = Vec::new();
        let result = match kind {
            2..=4 => Err(RANDOM_ERRORS[state.rng.number_below(RANDOM_ERRORS.len() as u64) as usize]),
            _ => serve_request(&mut state, message, flags, &mut answers),
        };
        let is_dump = flags & NLM_F_DUMP == NLM_F_DUMP;
        let interrupted = if kind == 5 && is_dump { NLM_F_DUMP_INTR } else { 0 };
        self.loses_answer = matches!(kind, 6 | 7);
        let late = kind == 7;
        let mut octets = Vec::new();
        for answer in answers {
            octets.extend(emit(NetlinkPayload::InnerMessage(answer), sequence, interrupted, CARNET_PORT_ID));
        }
        let end = match result {
            Ok(()) if is_dump => NetlinkPayload::Done(DoneMessage::default()),
            result => {
                let mut error = ErrorMessage::default();
                error.code = result.err().and_then(|errno| NonZeroI32::new(-errno));
                error.header = request[..16].to_vec();
                NetlinkPayload::Error(error)
            }
        };
        octets.extend(emit::<RouteNetlinkMessage>(end, sequence, interrupted, CARNET_PORT_ID));
        if !self.loses_answer || late {
            self.pending_answers.push_back(octets);
        }
        Ok(())
    }

    fn receive(&mut self, buffer: &mut Vec<u8>) -> io::Result<()> {
        if std::mem::take(&mut self.loses_answer) {
            return Err(io::Error::from_raw_os_error(libc::ENOBUFS));
        }
        let answer = self.pending_answers.pop_front().expect("bug: carnet reads an answer without a request");
        buffer.extend(answer);
        Ok(())
    }

    fn join_solicited_node_group(&mut self, _: u32, _: Ipv6Addr) {}

    fn leave_solicited_node_group(&mut self, _: u32, _: Ipv6Addr) {}
}

fn emit<T: netlink_packet_core::NetlinkSerializable>(
    payload: NetlinkPayload<T>,
    sequence: u32,
    flags: u16,
    port: u32,
) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    (header.sequence_number, header.flags, header.port_number) = (sequence, flags, port);
    let mut message = NetlinkMessage::new(header, payload);
    message.finalize();
    let mut octets = vec![0; message.buffer_len().next_multiple_of(4)];
    let length = message.buffer_len();
    message.serialize(&mut octets[..length]);
    octets
}

/// Returns an event in the format that listeners receive.
pub(super) fn event_message(news: KernelEvent, by: ObjectOwner) -> Vec<u8> {
    use RouteNetlinkMessage::*;
    let message = match news {
        KernelEvent::Link(link, true) => NewLink(link_message(&link)),
        KernelEvent::Link(link, false) => DelLink(link_message(&link)),
        KernelEvent::Address(address, true) => NewAddress(address_message(&address)),
        KernelEvent::Address(address, false) => DelAddress(address_message(&address)),
        KernelEvent::Route(route, true) => NewRoute(route_message(&route)),
        KernelEvent::Route(route, false) => DelRoute(route_message(&route)),
        KernelEvent::Rule(rule, true) => NewRule(rule_message(&rule)),
        KernelEvent::Rule(rule, false) => DelRule(rule_message(&rule)),
        KernelEvent::Ipv4Address(index, address, true) => NewAddress(ipv4_address_message(index, address)),
        KernelEvent::Ipv4Address(index, address, false) => DelAddress(ipv4_address_message(index, address)),
        KernelEvent::Ipv4Route(route, true) => NewRoute(ipv4_route_message(&route)),
        KernelEvent::Ipv4Route(route, false) => DelRoute(ipv4_route_message(&route)),
        KernelEvent::Ipv4Rule(rule, true) => NewRule(ipv4_rule_message(&rule)),
        KernelEvent::Ipv4Rule(rule, false) => DelRule(ipv4_rule_message(&rule)),
        KernelEvent::Setting => return setting_event(),
    };
    let port = if by == ObjectOwner::Station { CARNET_PORT_ID } else { OTHER_PROGRAMS_PORT };
    emit(NetlinkPayload::InnerMessage(message), 0, 0, port)
}

/// Returns an `RTM_NEWNETCONF` message, without attributes that carnet does not read.
fn setting_event() -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    (header.message_type, header.length) = (80, NETLINK_HEADER_LENGTH);
    let mut octets = vec![0; NETLINK_HEADER_LENGTH as usize];
    header.emit(&mut octets);
    octets
}

/// Makes the change that carnet requests, as if an operator had made it a moment earlier.
fn make_change_first(state: &mut KernelState, message: &RouteNetlinkMessage, flags: u16) {
    match message {
        RouteNetlinkMessage::NewAddress(message) if flags & NLM_F_EXCL != 0 => {
            let address = parse_address_message(message);
            let _ = state.add_address(SimulatedAddress {
                protocol: 0,
                created_by: ObjectOwner::Other,
                ..address
            });
        }
        RouteNetlinkMessage::NewRoute(message)
            if flags & NLM_F_EXCL != 0 && message.header.address_family == AddressFamily::Inet =>
        {
            let route = SimulatedIpv4Route {
                protocol: 3,
                created_by: ObjectOwner::Other,
                ..parse_ipv4_route_message(message)
            };
            let _ = state.add_ipv4_route(route, true);
        }
        RouteNetlinkMessage::NewRoute(message) if flags & NLM_F_EXCL != 0 => {
            let route = parse_route_message(message);
            let _ = state
                .add_route(SimulatedRoute { protocol: 3, created_by: ObjectOwner::Other, ..route }, true);
        }
        _ => {}
    }
}

fn serve_request(
    state: &mut KernelState,
    message: RouteNetlinkMessage,
    flags: u16,
    answers: &mut Vec<RouteNetlinkMessage>,
) -> RequestResult {
    use RouteNetlinkMessage::*;
    let by = ObjectOwner::Station;
    match message {
        GetLink(message) => {
            let name = message.attributes.iter().find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name.clone()),
                _ => None,
            });
            let links = state.links.iter().filter(|link| name.as_ref().is_none_or(|it| *it == link.name));
            answers.extend(links.map(|link| NewLink(link_message(link))));
            if answers.is_empty() { Err(libc::ENODEV) } else { Ok(()) }
        }
        DelLink(message) => state.remove_link(message.header.index),
        GetAddress(message) => {
            if message.header.family == AddressFamily::Inet6 {
                answers.extend(state.addresses.iter().map(|it| NewAddress(address_message(it))));
            } else {
                let known = state.ipv4_addresses.iter();
                answers.extend(known.map(|(index, it)| NewAddress(ipv4_address_message(*index, *it))));
            }
            Ok(())
        }
        NewAddress(message) => state.add_address(parse_address_message(&message)),
        DelAddress(message) => {
            let SimulatedAddress { index, address, prefix_length, .. } = parse_address_message(&message);
            state.delete_address(index, address, prefix_length, by)
        }
        GetRoute(message) => {
            let asked = u8::from(message.header.protocol);
            let table = message.attributes.iter().find_map(|attribute| match attribute {
                RouteAttribute::Table(table) => Some(*table),
                _ => None,
            });
            let is_asked = |number: u32, protocol: u8| {
                table.is_none_or(|it| it == number) && (asked == 0 || asked == protocol)
            };
            if message.header.address_family == AddressFamily::Inet6 {
                let routes = state.routes.iter().filter(|it| is_asked(it.table, it.protocol));
                answers.extend(routes.map(|it| NewRoute(route_message(it))));
            } else {
                let routes = state.ipv4_routes.iter().filter(|it| is_asked(it.table, it.protocol));
                answers.extend(routes.map(|it| NewRoute(ipv4_route_message(it))));
            }
            if table.is_some() && answers.is_empty() { Err(libc::ENOENT) } else { Ok(()) }
        }
        NewRoute(message) if message.header.address_family == AddressFamily::Inet => {
            state.add_ipv4_route(parse_ipv4_route_message(&message), flags & NLM_F_EXCL != 0)
        }
        DelRoute(message) if message.header.address_family == AddressFamily::Inet => {
            let SimulatedIpv4Route { table, destination, protocol, .. } = parse_ipv4_route_message(&message);
            state.delete_ipv4_route(table, destination, protocol, by)
        }
        NewRoute(message) => state.add_route(parse_route_message(&message), flags & NLM_F_EXCL != 0),
        DelRoute(message) => {
            let SimulatedRoute { table, destination, metric, protocol, .. } = parse_route_message(&message);
            state.delete_route(table, destination, metric, protocol, by)
        }
        GetRule(message) if message.header.family == AddressFamily::Inet => {
            answers.extend(state.ipv4_rules.iter().map(|it| NewRule(ipv4_rule_message(it))));
            Ok(())
        }
        NewRule(message) if message.header.family == AddressFamily::Inet => {
            state.add_ipv4_rule(parse_ipv4_rule_message(&message))
        }
        DelRule(message) if message.header.family == AddressFamily::Inet => {
            let SimulatedIpv4Rule { rule, protocol, .. } = parse_ipv4_rule_message(&message);
            state.delete_ipv4_rule(&rule, protocol, by)
        }
        GetRule(_) => {
            answers.extend(state.rules.iter().map(|it| NewRule(rule_message(it))));
            Ok(())
        }
        NewRule(message) => state.add_rule(parse_rule_message(&message)),
        DelRule(message) => {
            let SimulatedRule { rule, protocol, .. } = parse_rule_message(&message);
            state.delete_rule(&rule, protocol, by)
        }
        // The simulated kernel has no neighbours.
        GetNeighbour(_) => Err(libc::ENOENT),
        // The simulated machine has no fast path, so filters and qdiscs do not exist.
        DelTrafficFilter(_) | DelQueueDiscipline(_) => Err(libc::ENOENT),
        GetTrafficFilter(_) => Ok(()),
        other => panic!("the simulated kernel does not know this request: {other:?}"),
    }
}

fn link_message(link: &SimulatedLink) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.index = link.index;
    let is_loopback = link.name == "lo";
    message.header.link_layer_type = if is_loopback { LinkLayerType::Loopback } else { LinkLayerType::Ether };
    let up = if link.is_up { LinkFlags::Up } else { LinkFlags::empty() };
    let running = if link.is_running { LinkFlags::LowerUp } else { LinkFlags::empty() };
    message.header.flags = up | running;
    message.attributes = vec![
        LinkAttribute::IfName(link.name.clone()),
        LinkAttribute::Mtu(1500),
        LinkAttribute::Address(vec![2, 0, 0, 0, 0, link.index as u8]),
    ];
    message
}

fn address_message(address: &SimulatedAddress) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.prefix_len = address.prefix_length;
    message.header.index = address.index;
    if address.is_deprecated {
        message.header.flags = AddressHeaderFlags::Deprecated;
    }
    message.attributes = vec![
        AddressAttribute::Address(address.address.into()),
        AddressAttribute::Protocol(AddressProtocol::from(address.protocol)),
    ];
    message
}

fn parse_address_message(message: &AddressMessage) -> SimulatedAddress {
    let (mut address, mut protocol, mut deprecated) = (Ipv6Addr::UNSPECIFIED, 0, false);
    for attribute in &message.attributes {
        match attribute {
            AddressAttribute::Local(IpAddr::V6(it)) | AddressAttribute::Address(IpAddr::V6(it)) => {
                address = *it
            }
            AddressAttribute::Protocol(it) => protocol = u8::from(*it),
            AddressAttribute::CacheInfo(_) => deprecated = true,
            _ => {}
        }
    }
    SimulatedAddress {
        index: message.header.index,
        address,
        prefix_length: message.header.prefix_len,
        protocol,
        is_deprecated: deprecated,
        created_by: ObjectOwner::Station,
    }
}

fn route_message(route: &SimulatedRoute) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet6;
    message.header.destination_prefix_length = route.destination.prefix_len();
    message.header.table = u8::try_from(route.table).unwrap_or(libc::RT_TABLE_COMPAT);
    message.header.protocol = RouteProtocol::from(route.protocol);
    message.header.scope = RouteScope::Universe;
    message.attributes = vec![
        RouteAttribute::Table(route.table),
        RouteAttribute::Destination(RouteAddress::Inet6(route.destination.addr())),
        RouteAttribute::Priority(route.metric),
    ];
    message.header.kind = match route.route_action {
        SimulatedRouteAction::Unreachable => RouteType::Unreachable,
        SimulatedRouteAction::Local(index) => {
            message.attributes.push(RouteAttribute::Oif(index));
            RouteType::Local
        }
        SimulatedRouteAction::Forward(index, gateway) => {
            message.attributes.push(RouteAttribute::Oif(index));
            message.attributes.extend(gateway.map(|it| RouteAttribute::Gateway(RouteAddress::Inet6(it))));
            RouteType::Unicast
        }
    };
    message
}

fn parse_route_message(message: &RouteMessage) -> SimulatedRoute {
    let (mut table, mut metric) = (u32::from(message.header.table), 0);
    let (mut destination, mut index, mut gateway) = (Ipv6Addr::UNSPECIFIED, 0, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(it) => table = *it,
            RouteAttribute::Priority(it) => metric = *it,
            RouteAttribute::Destination(RouteAddress::Inet6(it)) => destination = *it,
            RouteAttribute::Oif(it) => index = *it,
            RouteAttribute::Gateway(RouteAddress::Inet6(it)) => gateway = Some(*it),
            _ => {}
        }
    }
    let length = message.header.destination_prefix_length;
    SimulatedRoute {
        table,
        destination: Ipv6Net::new(destination, length).expect("a prefix"),
        metric,
        protocol: u8::from(message.header.protocol),
        route_action: match message.header.kind {
            RouteType::Unreachable => SimulatedRouteAction::Unreachable,
            RouteType::Local => SimulatedRouteAction::Local(index),
            _ => SimulatedRouteAction::Forward(index, gateway),
        },
        created_by: ObjectOwner::Station,
    }
}

fn rule_message(known: &SimulatedRule) -> RuleMessage {
    let SimulatedRule { rule, protocol, .. } = known;
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::Inet6;
    message.header.action = RuleAction::ToTable;
    message.header.table = u8::try_from(rule.table).unwrap_or(0);
    message.header.src_len = rule.from.map_or(0, |it| it.prefix_len());
    message.header.dst_len = rule.to.map_or(0, |it| it.prefix_len());
    let attributes = &mut message.attributes;
    // The kernel sends no attribute for priority 0.
    attributes.extend((rule.priority != 0).then_some(RuleAttribute::Priority(rule.priority)));
    attributes.extend([RuleAttribute::Table(rule.table), RuleAttribute::SuppressPrefixLen(u32::MAX)]);
    attributes.push(RuleAttribute::Protocol(RouteProtocol::from(*protocol)));
    attributes.extend(rule.input_interface.clone().map(RuleAttribute::Iifname));
    attributes.extend(rule.from.map(|it| RuleAttribute::Source(it.addr().into())));
    attributes.extend(rule.to.map(|it| RuleAttribute::Destination(it.addr().into())));
    attributes.extend(rule.protocol.map(|it| RuleAttribute::IpProtocol(i32::from(it).into())));
    attributes.extend(rule.ports.map(|it| match it {
        PortMatch::Source(start, end) => RuleAttribute::SourcePortRange(RulePortRange { start, end }),
        PortMatch::Destination(start, end) => {
            RuleAttribute::DestinationPortRange(RulePortRange { start, end })
        }
    }));
    message
}

fn parse_rule_message(message: &RuleMessage) -> SimulatedRule {
    let header = &message.header;
    let mut rule = Rule { table: u32::from(header.table), ..super::kernel::local_rule(0) };
    let mut protocol = 0;
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(it) => rule.priority = *it,
            RuleAttribute::Table(it) => rule.table = *it,
            RuleAttribute::Iifname(it) => rule.input_interface = Some(it.clone()),
            RuleAttribute::Source(IpAddr::V6(it)) => rule.from = Ipv6Net::new(*it, header.src_len).ok(),
            RuleAttribute::Destination(IpAddr::V6(it)) => rule.to = Ipv6Net::new(*it, header.dst_len).ok(),
            RuleAttribute::IpProtocol(it) => rule.protocol = Some(u8::from(*it)),
            RuleAttribute::SourcePortRange(it) => rule.ports = Some(PortMatch::Source(it.start, it.end)),
            RuleAttribute::DestinationPortRange(it) => {
                rule.ports = Some(PortMatch::Destination(it.start, it.end));
            }
            RuleAttribute::Protocol(it) => protocol = u8::from(*it),
            _ => {}
        }
    }
    SimulatedRule { rule, protocol, created_by: ObjectOwner::Station }
}

fn ipv4_address_message(index: u32, address: Ipv4Net) -> AddressMessage {
    let mut message = AddressMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.prefix_len = address.prefix_len();
    message.header.index = index;
    message.attributes = vec![AddressAttribute::Local(address.addr().into())];
    message
}

fn ipv4_route_message(route: &SimulatedIpv4Route) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = AddressFamily::Inet;
    message.header.destination_prefix_length = route.destination.prefix_len();
    message.header.table = u8::try_from(route.table).unwrap_or(libc::RT_TABLE_COMPAT);
    message.header.protocol = RouteProtocol::from(route.protocol);
    message.header.kind = RouteType::Unicast;
    message.header.scope = if route.gateway.is_some() { RouteScope::Universe } else { RouteScope::Link };
    let destination = RouteAddress::Inet(route.destination.addr());
    message.attributes = vec![RouteAttribute::Table(route.table), RouteAttribute::Oif(route.index)];
    let is_default = route.destination.prefix_len() == 0;
    message.attributes.extend((!is_default).then_some(RouteAttribute::Destination(destination)));
    message.attributes.extend(route.gateway.map(|it| RouteAttribute::Gateway(RouteAddress::Inet(it))));
    message
}

fn parse_ipv4_route_message(message: &RouteMessage) -> SimulatedIpv4Route {
    let (mut table, mut destination) = (u32::from(message.header.table), Ipv4Addr::UNSPECIFIED);
    let (mut index, mut gateway) = (0, None);
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(it) => table = *it,
            RouteAttribute::Destination(RouteAddress::Inet(it)) => destination = *it,
            RouteAttribute::Oif(it) => index = *it,
            RouteAttribute::Gateway(RouteAddress::Inet(it)) => gateway = Some(*it),
            _ => {}
        }
    }
    SimulatedIpv4Route {
        table,
        destination: Ipv4Net::new(destination, message.header.destination_prefix_length).expect("a prefix"),
        protocol: u8::from(message.header.protocol),
        index,
        gateway,
        created_by: ObjectOwner::Station,
    }
}

fn ipv4_rule_message(known: &SimulatedIpv4Rule) -> RuleMessage {
    let SimulatedIpv4Rule { rule, protocol, .. } = known;
    let mut message = RuleMessage::default();
    message.header.family = AddressFamily::Inet;
    message.header.action = RuleAction::ToTable;
    message.header.src_len = 32;
    message.attributes = vec![
        RuleAttribute::Priority(rule.priority),
        RuleAttribute::Table(rule.table),
        RuleAttribute::Protocol(RouteProtocol::from(*protocol)),
        RuleAttribute::Source(rule.from.into()),
        RuleAttribute::Oifname(rule.output_interface.clone()),
        RuleAttribute::SuppressPrefixLen(if rule.without_default { 0 } else { u32::MAX }),
    ];
    message
}

fn parse_ipv4_rule_message(message: &RuleMessage) -> SimulatedIpv4Rule {
    let (from, output_interface) = (Ipv4Addr::UNSPECIFIED, String::new());
    let mut rule = Ipv4Rule { priority: 0, from, output_interface, table: 0, without_default: false };
    let mut protocol = 0;
    for attribute in &message.attributes {
        match attribute {
            RuleAttribute::Priority(it) => rule.priority = *it,
            RuleAttribute::Table(it) => rule.table = *it,
            RuleAttribute::Oifname(it) => rule.output_interface = it.clone(),
            RuleAttribute::SuppressPrefixLen(it) => rule.without_default = *it == 0,
            RuleAttribute::Source(IpAddr::V4(it)) => rule.from = *it,
            RuleAttribute::Protocol(it) => protocol = u8::from(*it),
            _ => {}
        }
    }
    SimulatedIpv4Rule { rule, protocol, created_by: ObjectOwner::Station }
}

/// The settings of a simulated kernel.
pub(super) struct SimulatedSettings(pub(super) Rc<RefCell<KernelState>>);

impl SettingsTree for SimulatedSettings {
    fn read(&self, interface: &str, name: &str) -> io::Result<Option<String>> {
        self.fail_at_random()?;
        Ok(self.0.borrow().setting_value(interface, name))
    }

    fn write(&mut self, interface: &str, name: &str, value: &str) -> io::Result<()> {
        self.fail_at_random()?;
        let result = self.0.borrow_mut().set_setting(interface, name, value, ObjectOwner::Station);
        result.map_err(io::Error::from_raw_os_error)
    }

    fn interfaces(&self) -> io::Result<Vec<String>> {
        self.fail_at_random()?;
        Ok(self.0.borrow().interfaces())
    }
}

impl SimulatedSettings {
    /// Fails at random, as a write of a real setting may.
    fn fail_at_random(&self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        if state.count_step() {
            return Err(io::Error::from_raw_os_error(libc::EBADF));
        }
        let trouble = state.failure_probability / 2.0;
        match state.rng.is_true_with_probability(trouble) {
            true => Err(io::Error::from_raw_os_error(libc::ENOMEM)),
            false => Ok(()),
        }
    }
}
