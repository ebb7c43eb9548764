"""The tester's own codec, written from the RFCs: IPv6 with extension headers, ICMPv6, Mobility Headers, UDP and IPv4.

It shares no code with what is tested. Reading is strict: a packet that breaks a rule raises `Malformed`, which fails
the case that it comes in.
"""

import hashlib
import hmac
import ipaddress
import struct

HOP_BY_HOP, TCP, UDP, IPV6, ROUTING, FRAGMENT, ICMPV6, NO_NEXT, DESTINATION, MOBILITY = 0, 6, 17, 41, 43, 44, 58, 59, 60, 135
# IPv4 inside IPv6 (RFC 2473).
IPV4_IN_IP = 4
HOME_ADDRESS_OPTION = 201
# MH Types.
REFRESH_REQUEST, UPDATE, ACKNOWLEDGEMENT, ERROR, HOME_AGENT_SWITCH, HEARTBEAT, REVOCATION = 0, 5, 6, 7, 12, 13, 16
# Mobility options.
REFRESH_ADVICE, ALTERNATE, NONCE_INDICES, PREFIX, AUTHENTICATION, MESSAGE_ID, IPV4_HOME, IPV4_ACK = 2, 3, 4, 6, 9, 10, 29, 30
NAT_DETECTION, IPV4_CARE_OF, BINDING_IDENTIFIER, FLOW_SUMMARY, FLOW = 31, 32, 35, 44, 45
# Flags of a Binding Update: RFC 6275 6.1.7, RFC 3963 4.1, RFC 5555 3.1.3, RFC 5648 4.1.
A, H, L, K, R, F, OVERWRITE = 0x8000, 0x4000, 0x2000, 0x1000, 0x0400, 0x0100, 0x0040
UDP_PORT = 4191
# Types, flags and some statuses of Binding Revocation messages: RFC 5846 5.
INDICATION, REVOKED = 1, 2
P_FLAG, V_FLAG, G_FLAG = 0x8000, 0x4000, 0x2000


class Malformed(AssertionError):
    """A packet that no standard allows."""


def ip(text):
    return ipaddress.IPv6Address(text).packed


def text(address):
    """An address of IPv6 or IPv4 as text."""
    return str(ipaddress.ip_address(address))


def checksum(source, destination, protocol, octets):
    """Over the pseudo-header of RFC 8200 8.1; 0 for octets that carry a right one."""
    whole = source + destination + struct.pack(">II", len(octets), protocol) + octets
    if len(whole) % 2:
        whole += b"\0"
    total = sum(struct.unpack(f">{len(whole) // 2}H", whole))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv6(source, destination, protocol, payload, hop_limit=64, traffic_class=0):
    word = 6 << 28 | traffic_class << 20
    return struct.pack(">IHBB", word, len(payload), protocol, hop_limit) + source + destination + payload


def home_address_option(home_address, protocol=MOBILITY):
    """A Destination Options header with a Home Address option (RFC 6275 6.3), aligned to 8n+6."""
    return bytes([protocol, 2, 1, 2, 0, 0, HOME_ADDRESS_OPTION, 16]) + home_address


def revocation(kind, status, sequence, flags=0, options=()):
    """A Binding Revocation message (RFC 5846 5), without checksum: an indication with a trigger, or an acknowledgement
    with a status."""
    return mobility(REVOCATION, struct.pack(">BBHH", kind, status, sequence, flags), options)


def routing_2(home_address, protocol=MOBILITY):
    """A type 2 Routing header (RFC 6275 6.4)."""
    return bytes([protocol, 2, 2, 1, 0, 0, 0, 0]) + home_address


def icmpv6(source, destination, kind, code, body):
    message = struct.pack(">BBH", kind, code, 0) + body
    return message[:2] + struct.pack(">H", checksum(source, destination, ICMPV6, message)) + message[4:]


def echo(source, destination, number, data=b"carnet", hop_limit=64):
    return ipv6(source, destination, ICMPV6, icmpv6(source, destination, 128, 0, struct.pack(">HH", 7, number) + data),
                hop_limit)


def udp(source, destination, ports, payload):
    message = struct.pack(">HHHH", *ports, 8 + len(payload), 0) + payload
    total = checksum(source, destination, UDP, message) or 0xFFFF
    return message[:6] + struct.pack(">H", total) + message[8:]


def option(kind, data):
    return bytes([kind, len(data)]) + data


def prefix_option(prefix):
    """A Mobile Network Prefix option (RFC 3963 4.3)."""
    network = ipaddress.IPv6Network(prefix)
    return option(PREFIX, bytes([0, network.prefixlen]) + network.network_address.packed)


def binding_identifier(bid, care_of=b"", status=0, flags=0, priority=0):
    """A Binding Identifier mobility option (RFC 5648 4.1, with BID-PRI of RFC 6089 4.1)."""
    return option(BINDING_IDENTIFIER, struct.pack(">HBB", bid, status, flags | priority) + care_of)


# Where an option's type has to stand: RFC 6275 6.2.2 and on; n and offset of "n*x + y".
ALIGNMENT = {REFRESH_ADVICE: (2, 0), ALTERNATE: (8, 6), NONCE_INDICES: (2, 0), PREFIX: (8, 4), AUTHENTICATION: (4, 1),
             MESSAGE_ID: (8, 2), BINDING_IDENTIFIER: (2, 0), IPV4_HOME: (4, 0), IPV4_ACK: (4, 0), IPV4_CARE_OF: (4, 0), FLOW: (2, 0)}


def pad(length):
    """Returns padding of this number of octets (RFC 6275 6.2.2 and 6.2.3)."""
    return b"" if length == 0 else b"\0" if length == 1 else bytes([1, length - 2]) + bytes(length - 2)


def mobility(kind, data, options=(), protocol=NO_NEXT):
    """A Mobility Header with its options aligned, its checksum zero. `data` follows the checksum."""
    header = bytes([protocol, 0, kind, 0, 0, 0]) + data
    for one in options:
        n, offset = ALIGNMENT.get(one[0], (1, 0))
        header += pad((offset - len(header)) % n) + one
    header += pad(-len(header) % 8)
    return header[:1] + bytes([len(header) // 8 - 1]) + header[2:]


def with_checksum(header, source, destination):
    header = header[:4] + b"\0\0" + header[6:]
    return header[:4] + struct.pack(">H", checksum(source, destination, MOBILITY, header)) + header[6:]


def authenticator(key, care_of, home_address, covered):
    """RFC 4285 5.1: over the Mobility Header up to and with the SPI, its checksum as zero."""
    covered = covered[:4] + b"\0\0" + covered[6:]
    return hmac.new(key, care_of + home_address + covered, hashlib.sha1).digest()[:12]


def key_for(key, home_agent):
    """What carnet makes of a key for one of several home agents (docs/config.md, `per_agent`); the messages are RFC
    4285's."""
    return hmac.new(key, b"home agent" + home_agent, hashlib.sha1).digest()[:16]


def authenticated(header, spi, key, care_of, home_address):
    """Puts the MN-HA mobility message authentication option last."""
    # 4n+1, and nothing behind it but padding.
    header += pad((1 - len(header)) % 4) + bytes([AUTHENTICATION, 17, 1]) + struct.pack(">I", spi)
    start = len(header)
    length = start + 12 + -(start + 12) % 8
    header = header[:1] + bytes([length // 8 - 1]) + header[2:]
    header += authenticator(key, care_of, home_address, header)
    return header + pad(length - len(header))


class Option:
    """A mobility option: type, data, and where it begins in its header."""

    def __init__(self, kind, data, at):
        self.kind, self.data, self.at = kind, data, at


class Packet:
    """An IPv6 packet: addresses, what extension headers say, and what is inside.

    `home_address` is that of a Home Address option, `routed_to` that of a type 2 Routing header. Behind them `protocol`
    and `payload`; `inner` for a packet in a packet, `mh` and `options` for a Mobility Header, `icmp` as (type, code,
    body), `ports` for UDP.
    """

    def __init__(self, octets, finished=True):
        """`finished` is false for a packet whose outermost checksum was left to a card."""
        if len(octets) < 40 or octets[0] >> 4 != 6:
            raise Malformed(f"no IPv6 header: {octets[:40].hex()}")
        word, length, protocol, self.hop_limit = struct.unpack(">IHBB", octets[:8])
        self.traffic_class, self.flow_label = word >> 20 & 0xFF, word & 0xFFFFF
        self.source, self.destination = octets[8:24], octets[24:40]
        payload = octets[40:40 + length]
        if len(payload) != length:
            raise Malformed(f"{len(octets)} octets, of which the payload should be {length}")
        self.octets = octets[:40 + length]
        self.inside = self.home_address = self.routed_to = self.inner = self.icmp = self.ports = self.mh = None
        self.fragmented = False
        self.options = []
        while protocol in (HOP_BY_HOP, DESTINATION, ROUTING):
            size = (payload[1] + 1) * 8
            if len(payload) < size:
                raise Malformed("an extension header that is cut off")
            header, rest = payload[:size], payload[size:]
            if protocol == ROUTING and header[2] == 2:
                if header[1] != 2 or header[3] != 1:
                    raise Malformed("a type 2 Routing header with not just one segment (RFC 6275 6.4)")
                self.routed_to = header[8:24]
            if protocol == DESTINATION:
                at = 2
                while at < size:
                    if header[at] == 0:
                        at += 1
                        continue
                    if header[at] == HOME_ADDRESS_OPTION:
                        if at % 8 != 6:
                            raise Malformed("a Home Address option that is not at 8n+6 (RFC 6275 6.3)")
                        self.home_address = header[at + 2:at + 18]
                    at += 2 + header[at + 1]
            protocol, payload = header[0], rest
        self.protocol, self.payload = protocol, payload
        # Returns source and destination as upper layers see them (RFC 6275 6.1.1).
        ends = (self.home_address or self.source, self.routed_to or self.destination)
        if protocol == FRAGMENT:
            self.fragmented = True
        elif protocol == IPV6:
            self.inner = self.inside = Packet(payload)
        elif protocol == ICMPV6:
            if finished and checksum(*ends, ICMPV6, payload):
                raise Malformed("a wrong checksum in ICMPv6")
            self.icmp = (payload[0], payload[1], payload[4:])
        elif protocol == UDP:
            self.ports = struct.unpack(">HH", payload[:4])
        elif protocol == MOBILITY:
            self._mobility(ends)

    def _mobility(self, ends):
        header = self.payload
        if checksum(*ends, MOBILITY, header):
            raise Malformed("a wrong checksum in a Mobility Header")
        if header[0] != NO_NEXT or len(header) != (header[1] + 1) * 8:
            raise Malformed(f"a Mobility Header of {len(header)} octets that says {(header[1] + 1) * 8}, or with a payload")
        self.mh = header[2]
        # RFC 5142 4: the addresses stand before the options.
        switch = 8 + 16 * header[6] if self.mh == HOME_AGENT_SWITCH else 8
        fixed = {REFRESH_REQUEST: 8, UPDATE: 12, ACKNOWLEDGEMENT: 12, ERROR: 24, HEARTBEAT: 12, REVOCATION: 12,
                 HOME_AGENT_SWITCH: switch}
        at = fixed.get(self.mh)
        if at is not None and at > len(header):
            raise Malformed(f"a Mobility Header of type {self.mh} of {len(header)} octets, which has {at} before its options")
        while at is not None and at < len(header):
            if header[at] == 0:
                at += 1
                continue
            if at + 2 > len(header) or at + 2 + header[at + 1] > len(header):
                raise Malformed("a mobility option that is longer than its header")
            kind, data = header[at], header[at + 2:at + 2 + header[at + 1]]
            n, offset = ALIGNMENT.get(kind, (1, 0))
            if (at - offset) % n:
                raise Malformed(f"mobility option {kind} at {at}, which is not {n}n+{offset}")
            if kind != 1:
                self.options.append(Option(kind, data, at))
            at += 2 + len(data)

    def all(self, kind):
        """The data of each option of a type."""
        return [one.data for one in self.options if one.kind == kind]

    def is_authentic(self, spi, key, care_of, home_address):
        """Whether it has an MN-HA authentication option that is right (RFC 4285 5.1)."""
        for one in self.options:
            if one.kind == AUTHENTICATION and one.data[0] == 1:
                covered = self.payload[:one.at + 7]
                right = authenticator(key, care_of, home_address, covered)
                return one.data[1:5] == struct.pack(">I", spi) and hmac.compare_digest(one.data[5:], right)
        return False

    def __repr__(self):
        what = f"MH {self.mh}" if self.mh is not None else f"ICMPv6 {self.icmp[:2]}" if self.icmp else \
            f"({self.inner!r})" if self.inner else f"protocol {self.protocol}"
        return f"{text(self.source)} > {text(self.destination)} {what}"


def ipv4(source, destination, protocol, payload):
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 0, 0x4000, 64, protocol, 0) + source + destination
    total = sum(struct.unpack(">10H", header))
    total = (total & 0xFFFF) + (total >> 16)
    return header[:10] + struct.pack(">H", ~total & 0xFFFF) + header[12:] + payload


def ipv4_with_class(packet, traffic_class):
    """An IPv4 packet with this DS field and ECN."""
    header = packet[:1] + bytes([traffic_class]) + packet[2:10] + bytes(2) + packet[12:20]
    return header[:10] + struct.pack(">H", ~sum_of(header) & 0xFFFF) + header[12:] + packet[20:]


class Packet4:
    """An IPv4 packet with IPv6 inside, straight or in UDP: `inside`, `ports`."""

    def __init__(self, octets, finished=True):
        size = (octets[0] & 0xF) * 4
        if octets[0] >> 4 != 4 or size < 20 or len(octets) < size:
            raise Malformed(f"no IPv4 header: {octets[:20].hex()}")
        if sum_of(octets[:size]) != 0xFFFF:
            raise Malformed("a wrong checksum in an IPv4 header")
        length = struct.unpack(">H", octets[2:4])[0]
        self.octets, self.source, self.destination = octets[:length], octets[12:16], octets[16:20]
        self.protocol, payload = octets[9], octets[size:length]
        self.inside = self.ports = self.inner = self.mh = self.icmp = None
        if self.protocol == UDP:
            self.ports, total = struct.unpack(">HH", payload[:4]), struct.unpack(">H", payload[6:8])[0]
            pseudo = self.source + self.destination + struct.pack(">HH", UDP, len(payload))
            if finished and total and sum_of(pseudo + payload) != 0xFFFF:
                raise Malformed("a wrong UDP checksum")
            payload = payload[8:]
        if self.protocol in (IPV6, UDP) and len(payload) >= 40 and payload[0] >> 4 == 6:
            self.inside = Packet(payload)

    def __repr__(self):
        how = f" in UDP {self.ports}" if self.ports else ""
        return f"{text(self.source)} > {text(self.destination)} ({self.inside!r}{how})"


def sum_of(octets):
    octets += b"\0" * (len(octets) % 2)
    total = sum(struct.unpack(f">{len(octets) // 2}H", octets))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total
