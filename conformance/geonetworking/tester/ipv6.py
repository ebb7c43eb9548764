"""IPv6 packets and addresses as octets, for the tester: RFC 8200, RFC 4861, and what EN 302 636-6-1 makes of a MID."""

import ipaddress
import struct

ETHERTYPE = 0x86DD
ALL_NODES = "ff02::1"
# RFC 2526 with the anycast identifier 0x7d of geographic anycast, and as the TTCN-3 suite builds it.
ANYCAST = ("fdff:ffff:ffff:fffd", "fd00:0:0:fd")
NO_NEXT_HEADER, ICMPV6 = 59, 58


def octets(address):
    return ipaddress.IPv6Address(address).packed


def identifier(mac):
    """The modified EUI-64 of a MAC address (RFC 4291 appendix A)."""
    return bytes([mac[0] ^ 2]) + mac[1:3] + b"\xff\xfe" + mac[3:]


def link_local(mac):
    return str(ipaddress.IPv6Address(octets("fe80::")[:8] + identifier(mac)))


def group_mac(group):
    """RFC 2464 7."""
    return b"\x33\x33" + octets(group)[12:]


def packet(source, destination, payload=b"", next_header=NO_NEXT_HEADER, hop_limit=64):
    """A packet that no host answers, unless something else is asked for."""
    return (struct.pack(">IHBB", 6 << 28, len(payload), next_header, hop_limit) + octets(source)
            + octets(destination) + payload)


def checksum(source, destination, message):
    data = octets(source) + octets(destination) + struct.pack(">II", len(message), ICMPV6) + message
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return 0xFFFF - total


def router_advertisement(mac, prefix, seconds, group=ALL_NODES):
    """RFC 4861 4.2, as the test purposes have it: one prefix, on link and for autoconfiguration."""
    source = link_local(mac)
    message = struct.pack(">BBHBBHII", 134, 0, 0, 64, 0, 0, 0, 0)
    message += bytes([1, 1]) + mac
    message += struct.pack(">BBBBIII", 3, 4, 64, 0xC0, seconds, seconds, 0) + octets(prefix)
    message = message[:2] + struct.pack(">H", checksum(source, group, message)) + message[4:]
    return packet(source, group, message, ICMPV6, 255)


class HostFrame:
    """A frame that came out of a virtual interface."""

    def __init__(self, interface, data):
        self.interface, self.to, self.source, self.packet = interface, data[:6], data[6:12], data[14:]

    def __repr__(self):
        return f"{self.interface}: {self.to.hex(':')} from {self.source.hex(':')}, {len(self.packet)} octets"
