"""GeoNetworking packets as octets: EN 302 636-4-1 V1.4.1 clause 9, and EN 302 636-5-1 for BTP.

Written from the standard for the tester, so that it shares no mistake with the station under test. Parsing
is strict: `parse` returns a packet and notes in `faults` whatever the standard does not allow; a station that
sends such a packet fails the case. Left out: secured packets (NH 2).
"""

import struct
import time

ETHERTYPE = 0x8947
BROADCAST = b"\xff" * 6

# Header types and subtypes (9.7.3).
BEACON = 0x10
GUC = 0x20
GAC, GAC_RECTANGLE, GAC_ELLIPSE = 0x30, 0x31, 0x32
GBC, GBC_RECTANGLE, GBC_ELLIPSE = 0x40, 0x41, 0x42
SHB = 0x50
TSB = 0x51
LS_REQUEST = 0x60
LS_REPLY = 0x61
NAMES = {
    BEACON: "beacon", GUC: "guc", GAC: "gac", GAC_RECTANGLE: "gac", GAC_ELLIPSE: "gac", GBC: "gbc",
    GBC_RECTANGLE: "gbc", GBC_ELLIPSE: "gbc", SHB: "shb", TSB: "tsb", LS_REQUEST: "ls_request",
    LS_REPLY: "ls_reply",
}

# Next headers of the Basic Header (9.6.3) and of the Common Header (9.7.2).
NH_COMMON = 1
NH_ANY, NH_BTP_A, NH_BTP_B, NH_IPV6 = 0, 1, 2, 3

LIFETIME_BASES = (50, 1000, 10_000, 100_000)
# itsGnProtocolVersion, itsGnDefaultHopLimit, itsGnMaxSduSize
VERSION = 1
HOP_LIMIT = 10
MAX_SDU = 1398


def now():
    """TST: TAI milliseconds since 2004-01-01 (9.5.2.3); since then there were five leap seconds."""
    return (int(time.time() * 1000) - 1_072_915_200_000 + 5_000) % 2**32


def address(mac, station_type=5, manual=False):
    """GN_ADDR (6.3): M, ST, ten reserved bits, MID."""
    return struct.pack(">H", manual << 15 | station_type << 10) + mac


class Position:
    """A position vector, long or short (9.5)."""

    def __init__(self, addr, tst, lat, lon, pai=True, speed=0, heading=0):
        self.addr, self.tst, self.lat, self.lon = addr, tst, lat, lon
        self.pai, self.speed, self.heading = pai, speed, heading

    def short(self):
        return self.addr + struct.pack(">Iii", self.tst, self.lat, self.lon)

    def long(self):
        return self.short() + struct.pack(">HH", self.pai << 15 | self.speed & 0x7FFF, self.heading)

    @property
    def mid(self):
        return self.addr[2:]

    @property
    def place(self):
        return self.lat, self.lon

    @staticmethod
    def read_short(octets):
        return Position(octets[:8], *struct.unpack(">Iii", octets[8:20]))

    @staticmethod
    def read_long(octets):
        position = Position.read_short(octets)
        speed, position.heading = struct.unpack(">HH", octets[20:24])
        position.pai = bool(speed & 0x8000)
        position.speed = (speed & 0x7FFF) - (speed & 0x4000) * 2
        return position


class Area:
    """A geographical area (9.8.5.2); the distances in metres, the angle in degrees."""

    def __init__(self, lat, lon, a, b=0, angle=0, shape=0):
        self.lat, self.lon, self.a, self.b, self.angle, self.shape = lat, lon, a, b, angle, shape

    def octets(self):
        return struct.pack(">iiHHH", self.lat, self.lon, self.a, self.b, self.angle)

    def __eq__(self, other):
        return isinstance(other, Area) and vars(self) == vars(other)

    def __repr__(self):
        return f"area {self.shape} at {self.lat} {self.lon}, {self.a} x {self.b} m, {self.angle} degrees"


def lifetime_octet(milliseconds):
    """LT (9.6.4), with the finest base that holds it."""
    for base, unit in enumerate(LIFETIME_BASES):
        if milliseconds <= 63 * unit:
            return milliseconds // unit << 2 | base
    raise ValueError(milliseconds)


def packet(header, extended, payload=b"", *, version=VERSION, basic_next=NH_COMMON, lifetime=60_000,
           hops=None, max_hops=HOP_LIMIT, next_header=NH_ANY, scf=False, flags=0x80, length=None,
           reserved=0):
    """A packet: Basic Header (9.6), Common Header (9.7), extended header, payload. The parameters can make
    every field of the packet wrong."""
    single = header in (BEACON, SHB)
    max_hops = 1 if single and max_hops == HOP_LIMIT else max_hops
    hops = max_hops if hops is None else hops
    length = len(payload) if length is None else length
    basic = bytes([version << 4 | basic_next, reserved, lifetime_octet(lifetime), hops])
    common = struct.pack(">BBBBHBB", next_header << 4, header, scf << 7, flags, length, max_hops, 0)
    return basic + common + extended + payload


class Packet:
    """A packet that was received."""

    def __init__(self, octets):
        self.octets = octets
        self.faults = []
        self.sn = self.so = self.de = self.area = self.request = self.media = None
        fault = self.faults.append
        if len(octets) < 12:
            raise ValueError(f"{len(octets)} octets are no packet")
        first, reserved, lifetime, self.hops = octets[:4]
        self.version, self.basic_next = first >> 4, first & 15
        self.lifetime_octet = lifetime
        self.lifetime = (lifetime >> 2) * LIFETIME_BASES[lifetime & 3]
        (nh, self.type, tc, self.flags, self.length, self.max_hops, reserved2) = struct.unpack(
            ">BBBBHBB", octets[4:12])
        self.next_header = nh >> 4
        self.tc, self.scf = tc, bool(tc & 0x80)
        if self.version != VERSION:
            fault(f"version {self.version}")
        if self.basic_next != NH_COMMON:
            fault(f"NH {self.basic_next} in the Basic Header")
        if reserved or reserved2 or nh & 15:
            fault("reserved bits are set")
        if self.flags & 0x7F:
            fault(f"flags {self.flags:#04x}")
        if self.hops > self.max_hops:
            fault(f"RHL {self.hops} > MHL {self.max_hops}")
        if not self.lifetime:
            fault("a lifetime of 0")
        rest = octets[12:]
        if self.type == BEACON:
            size = 24
            self.so = self._long(rest, 0)
        elif self.type == SHB:
            size = 28
            self.so, self.media = self._long(rest, 0), rest[24:28]
        elif self.type == TSB:
            size = 28
            self._sequence(rest)
        elif self.type in (GUC, LS_REPLY):
            size = 48
            self._sequence(rest)
            self.de = Position.read_short(self._part(rest, 28, 20))
            self._address(self.de.addr)
        elif NAMES.get(self.type) in ("gac", "gbc"):
            size = 44
            self._sequence(rest)
            lat, lon, a, b, angle, reserved = struct.unpack(">iiHHHH", self._part(rest, 28, 16))
            self.area = Area(lat, lon, a, b, angle, self.type & 15)
            if reserved:
                fault("reserved octets behind the area")
        elif self.type == LS_REQUEST:
            size = 36
            self._sequence(rest)
            self.request = self._part(rest, 28, 8)
            self._address(self.request)
        else:
            raise ValueError(f"header type {self.type:#04x}")
        self.payload = rest[size:]
        if self.length != len(self.payload):
            fault(f"PL {self.length}, but {len(self.payload)} octets of payload")

    def _part(self, octets, at, size):
        if len(octets) < at + size:
            raise ValueError(f"a {NAMES[self.type]} of {len(self.octets)} octets is cut off")
        return octets[at:at + size]

    def _long(self, octets, at):
        position = Position.read_long(self._part(octets, at, 24))
        self._address(position.addr)
        if abs(position.lat) > 900_000_000 or abs(position.lon) > 1_800_000_000:
            self.faults.append("a position that is not on the globe")
        return position

    def _sequence(self, octets):
        self.sn, reserved = struct.unpack(">HH", self._part(octets, 0, 4))
        if reserved:
            self.faults.append("reserved octets behind the sequence number")
        self.so = self._long(octets, 4)

    def _address(self, addr):
        if struct.unpack(">H", addr[:2])[0] & 0x3FF:
            self.faults.append("reserved bits of a GN address are set")

    @property
    def name(self):
        return NAMES[self.type]

    def __repr__(self):
        sn = "" if self.sn is None else f" sn {self.sn}"
        return f"{self.name}{sn} rhl {self.hops} from {self.so.mid.hex(':')} {len(self.payload)} octets"


def btp_a(destination, source, payload=b""):
    return struct.pack(">HH", destination, source) + payload


def btp_b(destination, info=0, payload=b""):
    return struct.pack(">HH", destination, info) + payload
