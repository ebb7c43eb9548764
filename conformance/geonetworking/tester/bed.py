"""The test bed: a station, a cable, and the tester at its other end."""

import json
import os
import socket
import struct
import time

import testbed
from testbed import CLONE_NEWNET, call, die_with_parent, enter, libc, run

from . import gn, ipv6, upper

SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
STATION_MAC = bytes.fromhex("02000000aa01")
STATION_LAT, STATION_LON = 488_375_000, 21_008_000
UPPER_TESTER_PORT = 12345
# How long a station may take to answer on a machine that has other things to do.
PATIENCE = 20.0


class Frame:
    """A frame as it came: when (seconds), from which and to which MAC address, and the packet in it."""

    def __init__(self, when, octets):
        self.when, self.octets = when, octets
        self.to, self.source = octets[:6], octets[6:12]
        self.packet = gn.Packet(octets[14:])

    def __repr__(self):
        return f"{self.packet!r} to {self.to.hex(':')}"


class Bed(testbed.Station):
    """One station with a config, and the tester's end of its cable."""

    cables = 0

    def __init__(self, program, geonet):
        lat, lon = STATION_LAT / 1e7, STATION_LON / 1e7
        super().__init__(
            program,
            f"[dataplane]\npath = 'tun'\n[geonet]\ninterface = 'gn0'\nstation_type = 'passenger_car'\n"
            f"position = 'fixed:{lat},{lon}'\n{geonet}\n"
            f"[conformance]\nupper_tester = '[::1]:{UPPER_TESTER_PORT}'\n")

    def lay_cables(self):
        # The last cable may still be on its way out.
        Bed.cables += 1
        here, there = f"cable{Bed.cables}", "gn0"
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "address",
            STATION_MAC.hex(":"), "netns", str(self.pid))
        self.inside("ip", "link", "set", there, "up")
        run("ip", "link", "set", here, "up")
        self.link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(gn.ETHERTYPE))
        self.link.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)
        self.link.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.link.bind((here, gn.ETHERTYPE))
        self.link.setblocking(False)
        # A socket belongs to the namespace in which it was made.
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        away = os.open(f"/proc/{self.pid}/ns/net", os.O_RDONLY)
        try:
            call(libc.setns(away, CLONE_NEWNET))
            self.udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            self.udp.bind(("::1", 0))
            self.udp.connect(("::1", UPPER_TESTER_PORT))
            # The host's end of the virtual interfaces: of all of them, also those to come.
            self.host = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ipv6.ETHERTYPE))
            self.host.setblocking(False)
        finally:
            call(libc.setns(home, CLONE_NEWNET))
            os.close(home)
            os.close(away)
        self.udp.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
        self.upper = upper.UpperTester(self.udp, PATIENCE)

    def cut_cables(self):
        for closing in ("link", "udp", "host"):
            if hasattr(self, closing):
                getattr(self, closing).close()

    def is_ready(self):
        """Whether the API answers and the station knows where it is."""
        try:
            return bool(json.loads(self.command("status", "--json")).get("geonet", {}).get("latitude"))
        except (OSError, ValueError):
            return False

    def counters(self):
        return json.loads(self.command("show", "counters", "--json"))

    def locations(self):
        return json.loads(self.command("show", "locations", "--json"))

    def memory(self):
        """Resident kilobytes."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))

    def receive(self):
        """The frames that are there."""
        frames = []
        while True:
            try:
                octets, extra, _, _ = self.link.recvmsg(65536, 64)
            except BlockingIOError:
                return frames
            except OSError:
                # The station has ended, and the cable with it.
                return frames
            when = time.time()
            for level, kind, data in extra:
                if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
                    seconds, nanoseconds = struct.unpack("@ll", data[:16])
                    when = seconds + nanoseconds / 1e9
            frames.append((when, octets))

    def send(self, source, to, packet):
        """Sends a frame; says when."""
        when = time.time()
        self.link.send(to + source + struct.pack(">H", gn.ETHERTYPE) + packet)
        return when

    def put(self, interface, to, packet):
        """The host puts a packet into a virtual interface."""
        self.host.sendto(to + STATION_MAC + struct.pack(">H", ipv6.ETHERTYPE) + packet, (interface, 0))

    def came_out(self):
        """The frames that came out of interfaces of the host."""
        frames = []
        while True:
            try:
                data, (interface, _, kind, *_) = self.host.recvfrom(65536)
            except OSError:
                return frames
            if kind != socket.PACKET_OUTGOING:
                frames.append(ipv6.HostFrame(interface, data))


__all__ = ["PATIENCE", "STATION_LAT", "STATION_LON", "STATION_MAC", "Bed", "Frame", "die_with_parent", "enter"]
