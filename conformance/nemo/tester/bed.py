"""Test beds: the program in a network namespace of its own, cables, and the tester at their other ends.

Every address at the tester's end is the tester's own doing: IPv6 is off on its interfaces, so that its kernel answers
nothing.
"""

import ctypes
import os
import signal
import subprocess
import tempfile
import threading
import time

from . import packets
from .wire import Wire

CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
# How long a station may take to start and stop on a machine that has other things to do.
PATIENCE = 20.0
HOME_AGENT = "2001:db8:1::1"
HOME_PREFIX = "2001:db8:1::/64"
FOREIGN = "2001:db8:f0::"
# The data path that the station takes; as in the tests of the program.
PATH = os.environ.get("CARNET_TEST_PATH", "tun")

libc = ctypes.CDLL(None, use_errno=True)


def _call(result):
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def enter():
    """Goes into a new network namespace, which goes with this process and its children."""
    _call(libc.unshare(CLONE_NEWNET))
    run("ip", "link", "set", "lo", "up")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Station:
    """The program with a config, in a namespace with cables to the tester: `interfaces` as name: address or None."""

    cables = 0
    # Processes are made one at a time: no child gets the ends of another's pipes.
    making = threading.Lock()

    def __init__(self, program, config, interfaces, forwarding=True, capture=None):
        with Station.making:
            self._make(program, config, interfaces, forwarding, capture)

    def _make(self, program, config, interfaces, forwarding, capture):
        self.program = program
        self.directory = tempfile.TemporaryDirectory(prefix="carnet-conformance-")
        self.api = os.path.join(self.directory.name, "station.sock")
        path = os.path.join(self.directory.name, "station.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"[station]\nname = 'station'\nsocket = '{self.api}'\n[dataplane]\npath = '{PATH}'\n{config}")
        self.log = open(os.path.join(self.directory.name, "log"), "w+", encoding="utf-8")
        go, gate = os.pipe()
        ready, told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
                _call(libc.unshare(CLONE_NEWNET))
                os.close(gate)
                os.write(told, b"!")
                if os.read(go, 1) == b"!":
                    os.dup2(self.log.fileno(), 1)
                    os.dup2(self.log.fileno(), 2)
                    os.execv(program, [program, "run", "--config", path])
            finally:
                os._exit(1)
        os.close(go)
        os.close(told)
        if os.read(ready, 1) != b"!":
            raise OSError("no network namespace for the station")
        os.close(ready)
        self.wires = {}
        try:
            self.inside("ip", "link", "set", "lo", "up")
            for name, addresses in interfaces.items():
                self._lay_cable(name, addresses, capture)
            if forwarding:
                self.inside("sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
            os.write(gate, b"!")
            os.close(gate)
            self._wait()
        except BaseException:
            self.close()
            raise

    def _lay_cable(self, name, addresses, capture):
        Station.cables += 1
        here = f"wire{Station.cables}"
        mac = bytes.fromhex("02000000bb") + bytes([Station.cables])
        run("ip", "link", "add", here, "type", "veth", "peer", "name", name, "netns", str(self.pid))
        run("sysctl", "-qw", f"net.ipv6.conf.{here}.disable_ipv6=1")
        run("ip", "link", "set", here, "address", mac.hex(":"), "up")
        for address in addresses:
            self.inside("ip", "addr", "add", address, "dev", name, *(["nodad"] if ":" in address else []))
        self.inside("ip", "link", "set", name, "up")
        self.wires[name] = Wire(name, here, mac, capture)

    def _wait(self):
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if not self.alive():
                raise AssertionError(f"the station ended at its start:\n{self.tail()}")
            if os.path.exists(self.api):
                return
            time.sleep(0.05)
        raise AssertionError(f"the station did not start in {PATIENCE} s:\n{self.tail()}")

    def inside(self, *command):
        return run("nsenter", "-t", str(self.pid), "-n", "--", *command)

    def command(self, *arguments):
        """What the program says to an operator."""
        return run(self.program, *arguments, "--socket", self.api)

    def alive(self):
        if self.pid is not None and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.pid = None
        return self.pid is not None

    def tail(self):
        self.log.flush()
        with open(self.log.name, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-15:])

    def close(self):
        """Ends the station; says how it ended: 0 for a good end."""
        status = None
        if self.pid is not None:
            os.kill(self.pid, signal.SIGTERM)
            until = time.monotonic() + PATIENCE
            while self.pid is not None and time.monotonic() < until:
                pid, result = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self.pid, status = None, os.waitstatus_to_exitcode(result)
                else:
                    time.sleep(0.02)
            if self.pid is not None:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
                self.pid = None
        for wire in self.wires.values():
            wire.close()
        self.log.close()
        self.directory.cleanup()
        return status


class Node:
    """What a mobile router is configured with at the home agent, and the last sequence number that it used."""

    def __init__(self, home_address, prefixes, spi=None, key=None, routers=True):
        self.home_address, self.prefixes, self.spi, self.key = packets.ip(home_address), prefixes, spi, key
        self.routers, self.sequence = routers, 0


def home_agent(program, nodes, on_link, capture=None):
    """The program as a home agent of these nodes, with a real home link or a virtual one."""
    config = f"[home_agent]\naddress = '{HOME_AGENT}'\nhome_prefix = '{HOME_PREFIX}'\n"
    config += "ipv4_address = '192.0.2.1'\n"
    if on_link:
        config += "home_link = 'h0'\n"
    for node in nodes:
        auth = "'none'" if node.key is None else f"{{ spi = {node.spi}, key = '{node.key.hex()}' }}"
        prefixes = ", ".join(f"'{prefix}'" for prefix in node.prefixes)
        config += f"[[home_agent.mobile_router]]\nhome_address = '{packets.text(node.home_address)}'\n"
        config += f"prefixes = [{prefixes}]\nauth = {auth}\n"
    interfaces = {"f0": [f"{FOREIGN}1/64", "192.0.2.1/24"]}
    if on_link:
        interfaces["h0"] = ["2001:db8:1::fe/64"]
    return Station(program, config, interfaces, capture=capture)
