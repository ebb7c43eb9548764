"""A fleet for the dashboard to show: mobile routers that register, renew and move, or vehicles that drive around.

    traffic.py routers INTERFACE MAC_OF_THE_HOME_AGENT COUNT
    traffic.py vehicles OWN_PORT PORT_OF_THE_STATION COUNT

Runs until it is ended, in the network namespace that it is started in. The octets are those of the conformance suites.
"""

import math
import pathlib
import socket
import struct
import sys
import time

sys.dont_write_bytecode = True
CONFORMANCE = pathlib.Path(__file__).resolve().parents[2] / "conformance"

LIFETIME_S = 240
# Degrees of latitude that are a metre.
METRE = 1 / 111_320


def home_address(number):
    return f"2001:db8:1::{number + 0x1000:x}"


def prefix(number):
    return f"2001:db8:{number + 0xa000:x}::/64"


def update(packets, number, sequence, place):
    """A Binding Update of one router, which is at that place of the visited link."""
    care_of = packets.ip(f"2001:db8:f1::{place + 1:x}:{number + 0x1000:x}")
    home, agent = packets.ip(home_address(number)), packets.ip("2001:db8:1::1")
    flags = packets.A | packets.H | packets.R
    data = struct.pack(">HHH", sequence, flags, LIFETIME_S // 4)
    header = packets.with_checksum(packets.mobility(packets.UPDATE, data, [packets.prefix_option(prefix(number))]), home, agent)
    return packets.ipv6(care_of, agent, packets.DESTINATION, packets.home_address_option(home) + header)


def routers(interface, mac, count):
    """All register, then one in ten every second, of which half have moved."""
    sys.path.append(str(CONFORMANCE / "nemo"))
    from tester import packets

    cable = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    cable.bind((interface, 0))
    frame = bytes.fromhex(mac.replace(":", "")) + cable.getsockname()[4] + b"\x86\xdd"
    places, sequence, start = [0] * count, 1, 0
    for number in range(count):
        cable.send(frame + update(packets, number, sequence, 0))
        time.sleep(0.002)
    while True:
        time.sleep(1)
        sequence += 1
        for number in range(start, start + count // 10):
            places[number % count] += number % 2
            cable.send(frame + update(packets, number % count, sequence, places[number % count]))
        start += count // 10


def vehicles(own, port, count):
    """Rings of vehicles around the station, which all drive; each tells where it is once a second."""
    sys.path.append(str(CONFORMANCE / "geonetworking"))
    from tester import gn

    link = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    link.bind(("::1", own))
    began = time.monotonic()
    while True:
        for number in range(count):
            mac = bytes([2, 0, 0, 0x42, number >> 8, number & 0xFF])
            radius = (60 + 35 * (number % 12)) * METRE
            angle = number * 2.4 + (time.monotonic() - began) * 0.05
            latitude = 48.8375 + radius * math.cos(angle)
            longitude = 2.1008 + radius * math.sin(angle) / math.cos(math.radians(48.8375))
            where = gn.Position(gn.address(mac), gn.now(), round(latitude * 1e7), round(longitude * 1e7), speed=1250)
            beacon = gn.packet(gn.BEACON, where.long())
            link.sendto(gn.BROADCAST + mac + beacon, ("::1", port))
            time.sleep(1 / count)


if __name__ == "__main__":
    if sys.argv[1] == "routers":
        routers(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        vehicles(int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
