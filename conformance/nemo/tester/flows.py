"""Messages of flow bindings (RFC 6089, RFC 6088) and of IPv4 (RFC 5555) that several cases send."""

import struct

from . import packets
from .packets import FLOW, A, H, R, option

# Binary traffic selectors (RFC 6088 3.2): the flag of "start destination port".
IPV6_SELECTOR, DESTINATION_PORT = 2, 1 << (31 - 10)
# Packets that a flow selects.
PORT = 40001


def flow(fid, bid=None, selector_format=IPV6_SELECTOR, sub=None):
    """A Flow Identification option (RFC 6089 4.2): what goes to `PORT` goes to a binding. `sub` takes the place of its
    suboptions."""
    data = struct.pack(">HHBB", fid, fid, 0, 0)
    if sub is not None:
        return option(FLOW, data + sub)
    if bid is not None:
        data += bytes([2, 2]) + struct.pack(">H", bid)
    selector = struct.pack(">IH", DESTINATION_PORT, PORT)
    data += bytes([3, 2 + len(selector), selector_format, 0]) + selector
    return option(FLOW, data + b"\0" * (-(len(data) + 2) % 2))


def update_over_ipv4(sequence, prefix, claimed):
    """A Binding Update of a mobile router that names this IPv4 care-of address (RFC 5555 3.1.2), without checksum."""
    options = [packets.prefix_option(prefix), option(packets.IPV4_CARE_OF, b"\0\0" + claimed)]
    return packets.mobility(packets.UPDATE, struct.pack(">HHH", sequence, A | H | R, 15), options)
