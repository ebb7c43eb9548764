"""The test bed: a station in a network namespace of its own, a cable, and the tester at its other end.

The process that makes a bed sits in a nameless namespace (`enter`), each station in another; both vanish with
their last process. A pipe from the runner and PR_SET_PDEATHSIG see to it that none outlives it.
"""

import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import time

from . import gn, ipv6, upper

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
SO_TIMESTAMPNS = 35
SO_RCVBUFFORCE = 33
STATION_MAC = bytes.fromhex("02000000aa01")
STATION_LAT, STATION_LON = 488_375_000, 21_008_000
UPPER_TESTER_PORT = 12345
# How long a station may take to start, stop and answer on a machine that has other things to do.
PATIENCE = 20.0

libc = ctypes.CDLL(None, use_errno=True)


def _call(result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def enter():
    """Goes into a new network namespace."""
    _call(libc.unshare(CLONE_NEWNET))
    run("ip", "link", "set", "lo", "up")


def die_with_parent(by=signal.SIGKILL):
    libc.prctl(PR_SET_PDEATHSIG, by)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Frame:
    """A frame as it came: when (seconds), from which and to which MAC address, and the packet in it."""

    def __init__(self, when, octets):
        self.when, self.octets = when, octets
        self.to, self.source = octets[:6], octets[6:12]
        self.packet = gn.Packet(octets[14:])

    def __repr__(self):
        return f"{self.packet!r} to {self.to.hex(':')}"


class Bed:
    """One station with a config, and the tester's end of its cable."""

    cables = 0

    def __init__(self, program, geonet):
        self.directory = tempfile.TemporaryDirectory(prefix="carnet-conformance-")
        path = self.directory.name
        self.api = os.path.join(path, "station.sock")
        self.program = program
        config = os.path.join(path, "station.toml")
        lat, lon = STATION_LAT / 1e7, STATION_LON / 1e7
        with open(config, "w", encoding="utf-8") as file:
            file.write(
                f"[station]\nname = 'station'\nsocket = '{self.api}'\n"
                f"[dataplane]\npath = 'tun'\n[geonet]\ninterface = 'gn0'\nstation_type = 'passenger_car'\n"
                f"position = 'fixed:{lat},{lon}'\n{geonet}\n"
                f"[conformance]\nupper_tester = '[::1]:{UPPER_TESTER_PORT}'\n"
            )
        self.log = open(os.path.join(path, "station.log"), "w+", encoding="utf-8")
        # The namespace has to be there before the cable leads into it.
        go, self.gate = os.pipe()
        ready, told = os.pipe()
        self.holder = os.fork()
        if self.holder == 0:
            self._be_station(go, told, config)
        os.close(go)
        os.close(told)
        if os.read(ready, 1) != b"!":
            raise OSError("no network namespace for the station")
        os.close(ready)
        try:
            self._lay_cable()
            os.write(self.gate, b"!")
            os.close(self.gate)
            self._wait()
        except BaseException:
            self.close()
            raise

    def _be_station(self, go, told, config):
        """The child: waits for its cable, then becomes the program."""
        try:
            die_with_parent()
            _call(libc.unshare(CLONE_NEWNET))
            os.close(self.gate)
            os.write(told, b"!")
            if os.read(go, 1) != b"!":
                os._exit(1)
            os.dup2(self.log.fileno(), 1)
            os.dup2(self.log.fileno(), 2)
            os.execv(self.program, [self.program, "run", "--config", config])
        finally:
            os._exit(1)

    def _lay_cable(self):
        # The last cable may still be on its way out.
        Bed.cables += 1
        here, there = f"cable{Bed.cables}", "gn0"
        run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "address",
            STATION_MAC.hex(":"), "netns", str(self.holder))
        inside = ("nsenter", "-t", str(self.holder), "-n", "--")
        for command in (("ip", "link", "set", "lo", "up"), ("ip", "link", "set", there, "up")):
            run(*inside, *command)
        run("ip", "link", "set", here, "up")
        self.link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(gn.ETHERTYPE))
        self.link.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 32 << 20)
        self.link.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self.link.bind((here, gn.ETHERTYPE))
        self.link.setblocking(False)
        # A socket belongs to the namespace in which it was made.
        home = os.open("/proc/self/ns/net", os.O_RDONLY)
        away = os.open(f"/proc/{self.holder}/ns/net", os.O_RDONLY)
        try:
            _call(libc.setns(away, CLONE_NEWNET))
            self.udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
            self.udp.bind(("::1", 0))
            self.udp.connect(("::1", UPPER_TESTER_PORT))
            # The host's end of the virtual interfaces: of all of them, also those to come.
            self.host = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ipv6.ETHERTYPE))
            self.host.setblocking(False)
        finally:
            _call(libc.setns(home, CLONE_NEWNET))
            os.close(home)
            os.close(away)
        self.udp.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 8 << 20)
        self.upper = upper.UpperTester(self.udp, PATIENCE)

    def _wait(self):
        """Until the API answers and the station knows where it is."""
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if not self.alive():
                raise AssertionError(f"the station ended at its start:\n{self.tail()}")
            if os.path.exists(self.api):
                try:
                    if json.loads(self.command("status", "--json")).get("geonet", {}).get("latitude"):
                        return
                except (OSError, ValueError):
                    pass
            time.sleep(0.05)
        raise AssertionError(f"the station did not start in {PATIENCE} s:\n{self.tail()}")

    def command(self, *arguments):
        """What the program says to an operator."""
        return run(self.program, *arguments, "--socket", self.api)

    def counters(self):
        return json.loads(self.command("show", "counters", "--json"))

    def locations(self):
        return json.loads(self.command("show", "locations", "--json"))

    def memory(self):
        """Resident kilobytes."""
        with open(f"/proc/{self.holder}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))

    def alive(self):
        if self.holder is None:
            return False
        pid, _ = os.waitpid(self.holder, os.WNOHANG)
        if pid:
            self.holder = None
        return self.holder is not None

    def tail(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-15:])

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

    def inside(self, *command, check=True):
        """Runs a program where the station is."""
        done = subprocess.run(["nsenter", "-t", str(self.holder), "-n", "--", *command], capture_output=True,
                              text=True, check=False)
        if check and done.returncode:
            raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
        return done.stdout

    def close(self):
        """Ends the station; says how it ended: 0 for a good end."""
        status = None
        if self.holder is not None:
            os.kill(self.holder, signal.SIGTERM)
            until = time.monotonic() + PATIENCE
            while self.holder is not None and time.monotonic() < until:
                pid, result = os.waitpid(self.holder, os.WNOHANG)
                if pid:
                    self.holder, status = None, os.waitstatus_to_exitcode(result)
                else:
                    time.sleep(0.02)
            if self.holder is not None:
                os.kill(self.holder, signal.SIGKILL)
                os.waitpid(self.holder, 0)
                self.holder = None
        for closing in ("link", "udp", "host"):
            if hasattr(self, closing):
                getattr(self, closing).close()
        self.log.close()
        self.directory.cleanup()
        return status
