"""What happens in a case, as inputs of a station, and what has to come of each.

A story is a function that is handed a `Station` and tells it what comes in. After an input, `says` lists what the
station has to send, in order and nothing else, in words (`words`); changes of the forwarding state are shown by packets
that go through. The octets are written and read by the tester's codec (`conformance/nemo/tester`), which shares no code
with the station.
"""

import ipaddress
import json
import struct

from tester import packets
from tester.packets import A, H, R, ip, text

# The date of every case, in nanoseconds: it stands in no output.
WALL = 1_800_000_000_000_000_000
SECOND = 1_000_000_000

HOME_AGENT = "2001:db8:1::1"
CARE_OF, OTHER_CARE_OF = "2001:db8:f1::10", "2001:db8:f2::10"
CORRESPONDENT = "2001:db8:99::1"
# The nodes of home-agent.toml and home-link.toml: home address, prefixes, SPI and key.
ROUTER, OTHER_ROUTER, NODE = "2001:db8:1::a1", "2001:db8:1::b1", "2001:db8:1::77"
INSIDE_ROUTER, SIGNING = "2001:db8:d::5", "2001:db8:1::e1"
PREFIX, SECOND_PREFIX, OTHER_PREFIX = "2001:db8:a::/64", "2001:db8:b::/64", "2001:db8:c::/64"
INSIDE_PREFIX, SIGNING_PREFIX = "2001:db8:d::/64", "2001:db8:e::/64"
SPI, KEY = 300, bytes(range(16))

STORIES = []


def case(name, clauses, title, config="home-agent.toml", items=(), tahi=()):
    """Declares a story. `name` is its file below a standard's folder; `items` are those of the black-box suite, `tahi`
    titles of the TAHI suite for home agents."""
    def declare(tell):
        STORIES.append(Story(name, clauses, title, config, items, tahi, tell))
        return tell
    return declare


def host(prefix, number=5):
    return text(ipaddress.IPv6Network(prefix).network_address.packed[:8] + struct.pack(">Q", number))


class Story:
    def __init__(self, name, clauses, title, config, items, tahi, tell):
        self.name, self.clauses, self.title, self.config, self.tell = name, clauses, title, config, tell
        self.items, self.tahi = list(items), list(tahi)

    def path(self, folder, kind):
        return folder / f"{self.name}.{kind}.jsonl"

    def told(self):
        station = Station()
        self.tell(station)
        return station

    def write(self, folder):
        station = self.told()
        header = {"title": self.title, "clauses": self.clauses, "config": self.config}
        header |= {"items": self.items} if self.items else {}
        header |= {"tahi": self.tahi} if self.tahi else {}
        header |= {"seed": 1, "time": 0, "wall": WALL, "state": station.state}
        lines = [header] + [{"time": time, "wall": WALL + time, "input": put} for time, put, _ in station.inputs]
        path = self.path(folder, "in")
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def check(self, folder):
        """Returns the errors in the recorded outputs, one in each line."""
        station = self.told()
        try:
            lines = [json.loads(line) for line in self.path(folder, "out").read_text().splitlines()]
        except OSError as error:
            return [f"{self.name}: {error}"]
        # Outputs stand behind a line with the number of the input that they came of.
        came, number = {}, 0
        for line in lines:
            if "input" in line:
                number = line["input"]
            else:
                came.setdefault(number, []).append(line["output"])
        wrong = []
        for number, (time, put, wanted) in enumerate(station.inputs, 1):
            try:
                found = [said for output in came.get(number, []) if (said := words(output)) is not None]
            except packets.Malformed as error:
                found = [f"MALFORMED: {error}"]
            if wanted is not None and found != wanted:
                wrong.append(f"{self.name}: input {number} at {time / SECOND:g} s: {found}, expected {wanted}")
        return wrong


class Station:
    """Collects inputs and what is expected of each."""

    def __init__(self):
        self.inputs, self.time, self.state = [], 0, {}
        self.number = 0

    def put(self, what):
        self.inputs.append((self.time, what, None))
        return self

    def says(self, *lines):
        """Everything that the station sends because of the last input."""
        time, what, _ = self.inputs[-1]
        self.inputs[-1] = (time, what, list(lines))
        return self

    def after(self, seconds):
        """Time passes, and the station's clock rings."""
        self.time += int(seconds * SECOND)
        return self.put("timeout")

    def packet(self, octets):
        return self.put({"packet": octets.hex()})

    # --- messages --------------------------------------------------------------------------------------

    def update(self, sequence, home=ROUTER, source=CARE_OF, care_of=None, flags=A | H | R, lifetime=60, prefixes=(),
               options=(), at_home=False, key=None, raw=None, checksum=True):
        """A Binding Update arrives. `key` signs for the care-of address; `raw` changes the finished header."""
        every = [packets.prefix_option(prefix) for prefix in prefixes]
        every += [packets.option(packets.ALTERNATE, ip(care_of))] if care_of else []
        header = packets.mobility(packets.UPDATE, struct.pack(">HHH", sequence, flags, lifetime // 4), every + list(options))
        if key:
            header = packets.authenticated(header, SPI, key, ip(care_of or source), ip(home))
        header = raw(header) if raw else header
        return self.mobility(header, home, source, at_home, checksum)

    def mobility(self, header, home=ROUTER, source=CARE_OF, at_home=False, checksum=True):
        seen_from = ip(home)
        header = packets.with_checksum(header, seen_from, ip(HOME_AGENT))
        if not checksum:
            header = header[:5] + bytes([header[5] ^ 1]) + header[6:]
        if at_home:
            return self.packet(packets.ipv6(ip(home), ip(HOME_AGENT), packets.MOBILITY, header))
        extension = packets.home_address_option(ip(home))
        return self.packet(packets.ipv6(ip(source), ip(HOME_AGENT), packets.DESTINATION, extension + header))

    def echo(self, source, destination, hop_limit=64, size=6):
        return self.packet(packets.echo(ip(source), ip(destination), 1, b"c" * size, hop_limit))

    def tunnelled(self, source, destination, outer=CARE_OF, to=HOME_AGENT):
        inner = packets.echo(ip(source), ip(destination), 1)
        return self.packet(packets.ipv6(ip(outer), ip(to), packets.IPV6, inner))

    # --- what mostly follows ---------------------------------------------------------------------------

    def registered(self, sequence=1, **keys):
        """A registration that is in order."""
        home, care_of = keys.get("home", ROUTER), keys.get("source", CARE_OF)
        keys.setdefault("prefixes", [PREFIX] if home == ROUTER else [])
        return self.update(sequence, **keys).says(accepted(sequence, home=home, care_of=care_of, flags=keys.get("flags", A | H | R)))

    def reaches(self, destination, care_of=CARE_OF, source=CORRESPONDENT, agent=HOME_AGENT):
        """A packet from elsewhere goes into the tunnel."""
        return self.echo(source, destination).says(f"{agent} > {care_of} [{source} > {destination} echo request]")

    def unreachable(self, destination, source=CORRESPONDENT):
        """The packet is dropped, and its sender gets an error."""
        return self.echo(source, destination).says(f"{HOME_AGENT} > {source} ICMPv6 1/3")

    def unbound(self, *destinations):
        """A while after a goodbye: what was on its way may still go into the tunnel before (RFC 6275 says nothing of it)."""
        self.after(6)
        for destination in destinations:
            self.unreachable(destination)
        return self

    def comes_out(self, source, destination=CORRESPONDENT, outer=CARE_OF):
        """A packet comes out of the reverse tunnel."""
        return self.tunnelled(source, destination, outer).says(f"{source} > {destination} echo request")

    def stays_in(self, source, destination=CORRESPONDENT, outer=CARE_OF):
        return self.tunnelled(source, destination, outer).says()

    # --- links -----------------------------------------------------------------------------------------

    def interface(self, name, *addresses, running=True, routers=("fe80::ffff",), mac=1):
        def entry(address):
            return {"address": address, "prefix_length": 64, "tentative": False, "duplicate": False, "deprecated": False,
                    "temporary": False}
        return self.put({"interface": {
            "name": name, "running": running, "mtu": 1500, "link_address": [2, 0, 0, 0, 0, mac],
            "addresses": [entry(address) for address in ("fe80::1", *addresses)] if running else [],
            "routers": list(routers) if running else []}})

    def link(self, interface, source, destination, kind, body, hop_limit=255, peer=(2, 0, 0, 0, 0, 9)):
        message = packets.icmpv6(ip(source), ip(destination), kind, 0, body)
        return self.put({"icmpv6": {"interface": interface, "source": source, "destination": destination,
                                    "hop_limit": hop_limit, "peer": list(peer), "message": message.hex()}})

    def asks_for(self, target, source="fe80::9", interface="h0"):
        """A Neighbor Solicitation; from `::`, the duplicate address detection of another."""
        option = b"\x01\x01" + bytes([2, 0, 0, 0, 0, 9]) if source != "::" else b""
        return self.link(interface, source, solicited_node(target), 135, bytes(4) + ip(target) + option)

    def claims(self, target, interface="h0"):
        """A neighbour's Neighbor Advertisement, with O."""
        return self.link(interface, "fe80::9", "ff02::1", 136, struct.pack(">I", 1 << 29) + ip(target)
                         + b"\x02\x01" + bytes([2, 0, 0, 0, 0, 9]))

    # --- a home agent that answers a mobile router -----------------------------------------------------

    def acknowledge(self, sequence, status=0, home=ROUTER, care_of=CARE_OF, flags=0x40, lifetime=60, options=(), source=HOME_AGENT):
        header = packets.mobility(packets.ACKNOWLEDGEMENT, struct.pack(">BBHH", status, flags, sequence, lifetime // 4), options)
        return self.answer(header, home, care_of, source)

    def answer(self, header, home=ROUTER, care_of=CARE_OF, source=HOME_AGENT):
        header = packets.with_checksum(header, ip(source), ip(home))
        extension = packets.routing_2(ip(home))
        return self.packet(packets.ipv6(ip(source), ip(care_of), packets.ROUTING, extension + header))


def solicited_node(target):
    return text(ip("ff02::1:ff00:0")[:13] + ip(target)[13:])


def accepted(sequence, status=0, home=ROUTER, care_of=CARE_OF, flags=A | H | R, lifetime=60, more=""):
    """The acknowledgement of a Binding Update that came with a Home Address option."""
    router = " R" if flags & R else ""
    return f"{HOME_AGENT} > {care_of} to {home} BA {status}{router} seq {sequence} life {lifetime}{more}"


def refused(sequence, status, home=ROUTER, care_of=CARE_OF, flags=A | H | R, more=""):
    return accepted(sequence, status, home, care_of, flags, 0, more)


def words(output):
    """What an output sends, in words; `None` for one that sends nothing, or a probe of a tunnel's path (RFC 8899)."""
    if "packet" in output:
        if "…" in output["packet"]:
            return None  # of a probe the beginning is recorded
        packet = packets.Packet(bytes.fromhex(output["packet"]))
        return None if is_probe(packet) else of_packet(packet)
    if "encapsulated" in output:
        put = output["encapsulated"]
        packet = packets.Packet(bytes.fromhex(put["packet"]))
        return None if is_probe(packet) else f"{put['local']} > {put['remote']} inside: {of_packet(packet)}"
    if "icmpv6" in output:
        put = output["icmpv6"]
        message = bytes.fromhex(put["message"])
        if packets.checksum(ip(put["source"]), ip(put["destination"]), packets.ICMPV6, message):
            raise packets.Malformed("a wrong checksum in ICMPv6")
        if message[0] == 136:
            flags = "".join(name for bit, name in ((7, "R"), (6, "S"), (5, "O")) if message[4] >> bit & 1)
            return f"{put['interface']}: {text(message[8:24])} is here ({flags}) to {put['destination']}"
        if message[0] == 135:
            return f"{put['interface']}: who has {text(message[8:24])}, from {put['source']}"
        # Routers are solicited until one answers (RFC 4861 6.3.7): that is no case's matter.
        return None if message[0] == 133 else f"{put['interface']}: ICMPv6 {message[0]}"
    return None


def is_probe(packet):
    """Whether the home agent and a home address ping each other through the tunnel."""
    inner = packet.inner or packet
    return (packet.inner or packet.routed_to is None) and inner.icmp is not None and inner.icmp[0] in (128, 129) and (
        inner.source == ip(HOME_AGENT) or inner.destination == ip(HOME_AGENT))


def of_packet(packet):
    out = f"{text(packet.source)} > {text(packet.destination)}"
    out += f" to {text(packet.routed_to)}" if packet.routed_to else ""
    out += f" of {text(packet.home_address)}" if packet.home_address else ""
    if packet.inner:
        return f"{out} [{of_packet(packet.inner)}]"
    if packet.icmp:
        kind, code, body = packet.icmp
        if kind in (128, 129):
            return f"{out} echo {'request' if kind == 128 else 'reply'}"
        pointer = {2: f" mtu {struct.unpack('>I', body[:4])[0]}", 4: f" at {struct.unpack('>I', body[:4])[0]}"}.get(kind, "")
        return f"{out} ICMPv6 {kind}/{code}{pointer}"
    if packet.mh == packets.ACKNOWLEDGEMENT:
        status, flags, sequence, lifetime = struct.unpack(">BBHH", packet.payload[6:12])
        said = f"{out} BA {status}{' K' if flags & 0x80 else ''}{' R' if flags & 0x40 else ''} seq {sequence} life {lifetime * 4}"
        for data in packet.all(packets.BINDING_IDENTIFIER):
            said += f" bid {struct.unpack('>H', data[:2])[0]}={data[2]}"
        for data in packet.all(packets.FLOW):
            said += f" flow {struct.unpack('>H', data[:2])[0]}={data[5]}"
        for data in packet.all(packets.NAT_DETECTION):
            said += f" nat {struct.unpack('>I', data[2:6])[0]}"
        for data in packet.all(packets.IPV4_ACK):
            said += f" ipv4 {data[0]}"
        for data in packet.all(packets.REFRESH_ADVICE):
            said += f" refresh {struct.unpack('>H', data)[0] * 4}"
        return said
    if packet.mh == packets.UPDATE:
        sequence, flags, lifetime = struct.unpack(">HHH", packet.payload[6:12])
        names = ((0x8000, "A"), (0x4000, "H"), (0x2000, "L"), (0x1000, "K"), (0x0400, "R"), (0x0040, "O"))
        said = f"{out} BU {''.join(name for bit, name in names if flags & bit)} seq {sequence} life {lifetime * 4}"
        for data in packet.all(packets.PREFIX):
            said += f" {text(data[2:18])}/{data[1]}"
        for data in packet.all(packets.ALTERNATE):
            said += f" at {text(data)}"
        for data in packet.all(packets.BINDING_IDENTIFIER):
            said += f" bid {struct.unpack('>H', data[:2])[0]}"
        return said
    if packet.mh == packets.ERROR:
        return f"{out} BE {packet.payload[6]} for {text(packet.payload[8:24])}"
    return f"{out} MH {packet.mh}" if packet.mh is not None else f"{out} protocol {packet.protocol}"
