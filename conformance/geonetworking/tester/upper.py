"""The tester's end of the upper tester protocol (ETSI TR 103 099 V1.3.1 annex C), over UDP."""

import socket
import struct

INITIALIZE, CHANGE_POSITION, CHANGE_PSEUDONYM = 0x00, 0x02, 0x04
GUC, GBC, GAC, SHB, TSB = 0x50, 0x51, 0x52, 0x53, 0x54
BTP_A, BTP_B = 0x70, 0x71
GN_EVENT, BTP_EVENT = 0x55, 0x63
RESULTS = {INITIALIZE: 0x01, CHANGE_POSITION: 0x03, CHANGE_PSEUDONYM: 0x05, BTP_A: 0x61, BTP_B: 0x61,
           **dict.fromkeys((GUC, GBC, GAC, SHB, TSB), 0x41)}


def traffic_class(scf):
    return bytes([scf << 7])


def payload(octets):
    return struct.pack(">H", len(octets)) + octets


def initialize():
    return bytes([INITIALIZE]) + bytes(8)


def change_position(north, east):
    return struct.pack(">BiiB", CHANGE_POSITION, north, east, 0)


def guc(addr, data=b"", lifetime=10_000, scf=True):
    return bytes([GUC]) + addr + struct.pack(">H", lifetime) + traffic_class(scf) + payload(data)


def to_area(number, area, data=b"", lifetime=10_000, scf=True):
    head = struct.pack(">BBH", number, area.shape, lifetime) + traffic_class(scf) + bytes(3)
    return head + area.octets() + payload(data)


def shb(data=b"", scf=True):
    return bytes([SHB]) + traffic_class(scf) + payload(data)


def tsb(data=b"", hops=10, lifetime=10_000, scf=True):
    return struct.pack(">BBH", TSB, hops, lifetime) + traffic_class(scf) + payload(data)


def btp(number, destination, other):
    return struct.pack(">BHH", number, destination, other)


class UpperTester:
    """A conversation with the station's upper tester. Events arrive in between."""

    def __init__(self, sock, patience):
        self.socket, self.patience = sock, patience
        self.events = []

    def _take(self, octets):
        if octets[0] in (GN_EVENT, BTP_EVENT):
            (length,) = struct.unpack(">H", octets[1:3])
            if length != len(octets) - 3:
                raise AssertionError(f"an event says {length} octets and has {len(octets) - 3}")
            self.events.append((octets[0], octets[3:]))
            return None
        return octets

    def poll(self):
        """Takes what is there."""
        self.socket.setblocking(False)
        try:
            while True:
                self._take(self.socket.recv(65536))
        except (BlockingIOError, ConnectionRefusedError):
            pass

    def ask(self, message):
        """Sends a message; returns whether the station says that it was done."""
        self.poll()
        self.socket.send(message)
        self.socket.settimeout(self.patience)
        while True:
            try:
                answer = self._take(self.socket.recv(65536))
            except socket.timeout:
                raise AssertionError(f"no answer to upper tester message {message[0]:#04x}") from None
            if answer is None:
                continue
            if len(answer) != 2 or answer[0] != RESULTS[message[0]]:
                raise AssertionError(f"{answer.hex()} answers upper tester message {message[0]:#04x}")
            return answer[1] == 1
