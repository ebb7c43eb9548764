"""A link with the tester at one end: it owns addresses there, answers for them, and deals packets out to the cases."""

import contextlib
import queue
import socket
import struct
import threading
import time

from . import packets
from .packets import Malformed, Packet, Packet4

ETHERTYPE, IPV4, ARP, ALL = 0x86DD, 0x0800, 0x0806, 3
SO_RCVBUFFORCE = 33
SO_TIMESTAMPNS = 35
SOL_PACKET, PACKET_AUXDATA, CHECKSUM_NOT_READY = 263, 8, 8
ALL_NODES = packets.ip("ff02::1")


def group_mac(address):
    return b"\x33\x33" + address[12:]


class Heard:
    """A packet on a link: when it came (monotonic seconds), where, and to which MAC address."""

    def __init__(self, wire, frame, finished, when):
        self.when, self.wire = when, wire
        self.to, self.source_mac = frame[:6], frame[6:12]
        self.packet, self.problem = None, None
        try:
            kind = Packet if frame[12:14] == b"\x86\xdd" else Packet4
            self.packet = kind(frame[14:], finished)
        except Malformed as error:
            self.problem = str(error)

    def __repr__(self):
        return f"{self.wire.name}: {self.problem or self.packet!r}"


def concerned(octets):
    """The addresses that a packet is about: its own, those inside, and a Neighbor Discovery target."""
    if octets[0] >> 4 == 4:
        return {octets[12:16], octets[16:20]}
    found = {octets[8:24], octets[24:40]}
    if octets[6] == packets.ICMPV6 and len(octets) >= 64 and octets[40] in (135, 136):
        found.add(octets[48:64])
    if octets[6] == packets.IPV6 and len(octets) >= 80:
        found |= {octets[48:64], octets[64:80]}
    return found


def arrival(extra):
    """When a frame came (monotonic seconds), by the kernel's note of it."""
    for level, kind, data in extra:
        if (level, kind) == (socket.SOL_SOCKET, SO_TIMESTAMPNS):
            seconds, nanoseconds = struct.unpack("=qq", data[:16])
            return time.monotonic() - (time.time() - seconds - nanoseconds / 1e9)
    return time.monotonic()


class Wire:
    """The tester's end of one cable. Safe to use from several threads."""

    def __init__(self, name, interface, mac, capture=None):
        self.name, self.interface, self.mac, self.capture = name, interface, mac, capture
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        # The kernel leaves some checksums to a card that a virtual cable does not have, and says so.
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        # When a frame came, not when this program had time for it.
        self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.socket.bind((interface, ALL))
        self.owned, self.routers, self.watchers, self.neighbours = set(), set(), {}, {}
        self.known = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        """Until the cable or the socket goes."""
        while True:
            try:
                frame, extra, _, _ = self.socket.recvmsg(65536, 128)
            except OSError:
                return
            self._hear(frame, extra)

    def _hear(self, frame, extra):
        finished = not any((level, kind) == (SOL_PACKET, PACKET_AUXDATA) and
                           struct.unpack("=I", data[:4])[0] & CHECKSUM_NOT_READY for level, kind, data in extra)
        if frame[6:12] == self.mac or len(frame) < 42:
            return
        kind = struct.unpack(">H", frame[12:14])[0]
        # The cable may disappear during an answer; the caller repeats the request.
        with contextlib.suppress(OSError):
            if kind == ARP:
                self._resolve(frame)
            elif kind == ETHERTYPE and len(frame) >= 78:
                self._discover(frame)
        if kind not in (ETHERTYPE, IPV4) or kind == ETHERTYPE and len(frame) < 54:
            return
        if self.capture:
            self.capture.add(frame)
        heard = Heard(self, frame, finished, arrival(extra))
        for address in concerned(frame[14:]):
            for watcher in self.watchers.get(address, ()):
                watcher.put(heard)

    def _discover(self, frame):
        """Answers questions for the addresses that are owned, and hears answers to own ones."""
        octets = frame[14:]
        if octets[6] != packets.ICMPV6:
            return
        source, target = octets[8:24], octets[48:64]
        if octets[40] == 135 and target in self.owned and any(source):
            self.advertise(target, source, frame[6:12], 0xE0 if target in self.routers else 0x60)
        elif octets[40] == 136:
            with self.known:
                self.neighbours[target] = frame[6:12]
                self.known.notify_all()

    def _resolve(self, frame):
        """Answers ARP for the IPv4 addresses that are owned."""
        arp = frame[14:42]
        if arp[6:8] == b"\0\1" and arp[24:28] in self.owned:
            reply = arp[:6] + b"\0\2" + self.mac + arp[24:28] + arp[8:18]
            self.socket.send(frame[6:12] + self.mac + struct.pack(">H", ARP) + reply)

    def advertise(self, address, to=ALL_NODES, mac=None, flags=0x60):
        """Sends a Neighbor Advertisement for `address`."""
        body = bytes([flags, 0, 0, 0]) + address + b"\x02\x01" + self.mac
        message = packets.icmpv6(address, to, 136, 0, body)
        self.send(packets.ipv6(address, to, packets.ICMPV6, message, 255), mac or group_mac(to))

    def own(self, address):
        self.owned.add(address)

    def watch(self, address, into):
        self.watchers.setdefault(address, []).append(into)

    def mac_of(self, address, source, patience=3.0):
        """Who says that an address is his; `None` when nobody does."""
        with self.known:
            self.neighbours.pop(address, None)
        until = time.monotonic() + patience
        group = packets.ip("ff02::1:ff00:0")[:13] + address[13:]
        body = bytes(4) + address + b"\x01\x01" + self.mac
        question = packets.ipv6(source, group, packets.ICMPV6, packets.icmpv6(source, group, 135, 0, body), 255)
        while time.monotonic() < until:
            self.send(question, group_mac(group))
            with self.known:
                if self.known.wait_for(lambda: address in self.neighbours, min(0.5, patience)):
                    return self.neighbours[address]
        return None

    def send(self, packet, mac):
        """Sends an IPv6 or IPv4 packet."""
        kind = ETHERTYPE if packet[0] >> 4 == 6 else IPV4
        self.socket.send(mac + self.mac + struct.pack(">H", kind) + packet)

    def close(self):
        self.socket.close()


class Inbox:
    """Packets for one case, from all links, in order of arrival."""

    def __init__(self):
        self.queue, self.all = queue.Queue(), []

    def put(self, heard):
        self.queue.put(heard)

    def next(self, until):
        """The next packet before that time; `None` when there is none."""
        try:
            heard = self.queue.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return None
        self.all.append(heard)
        return heard

    def take(self, wanted):
        """Of what is here already that which is wanted; the rest stays."""
        with self.queue.mutex:
            found = [heard for heard in self.queue.queue if wanted(heard)]
            for heard in found:
                self.queue.queue.remove(heard)
        self.all += found
        return found
