"""What both suites stand on: the program under test in a network namespace of its own, and what it takes to make one.

The process that makes a station sits in a nameless namespace (`enter`), each station in another; both vanish with
their last process. A pipe from the maker and PR_SET_PDEATHSIG see to it that no station outlives it. What is said on
the cables between the two is the suites' affair.
"""

import ctypes
import os
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
# How long a station may take to start and stop on a machine that has other things to do.
PATIENCE = 60.0

libc = ctypes.CDLL(None, use_errno=True)


def call(result):
    """Checks the result of a C library function: raises its error unless it is 0."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def program(given):
    """The program under test: what was given, or the newest that was built."""
    target = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
    built = [os.path.join(target, kind, "carnet") for kind in ("release", "debug")]
    found = [given] if given else sorted(filter(os.path.exists, built), key=os.path.getmtime, reverse=True)
    if not found or not os.path.exists(found[0]):
        sys.exit(f"no program to test ({given or 'build it first: make build'})")
    return os.path.abspath(found[0])


def can_run():
    """Whether this process may make network namespaces: it begins anew as root of a user namespace if that is what
    it takes. Says why not."""
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        print("SKIPPED: conformance: /dev/net/tun is not there, or not for this user")
        return False
    if os.geteuid() != 0:
        become_root = ["unshare", "--map-root-user", "--net"]
        if subprocess.run(become_root + ["true"], capture_output=True, check=False).returncode:
            print("SKIPPED: conformance: no right to make network namespaces")
            return False
        os.execvp("unshare", become_root + [sys.executable] + sys.argv)
    # By an exception, so that stations are ended and directories removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return True


def enter():
    """Goes into a new network namespace, which goes with this process and its children."""
    call(libc.unshare(CLONE_NEWNET))
    run("ip", "link", "set", "lo", "up")


def die_with_parent(by=signal.SIGKILL):
    libc.prctl(PR_SET_PDEATHSIG, by)


def run(*command, check=True):
    """Runs a command; what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise OSError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout


class Capture:
    """A pcap file of Ethernet frames. Safe to use from several threads."""

    def __init__(self, path):
        self.path, self.file, self.lock, self.frames = path, open(path, "wb"), threading.Lock(), 0
        self.file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1))

    def add(self, octets):
        with self.lock:
            self.frames += 1
            self.file.write(struct.pack("<IIII", 0, 0, len(octets), len(octets)) + octets)

    def close(self):
        self.file.close()


class Station:
    """The program with a config, in a namespace of its own. Subclasses define its links."""

    # Processes are made one at a time: no child gets the ends of another's pipes.
    making = threading.Lock()

    def __init__(self, program, config):
        """`config` is all but the section [station]."""
        self.program = program
        self.directory = tempfile.TemporaryDirectory(prefix="carnet-conformance-")
        self.api = os.path.join(self.directory.name, "station.sock")
        self.log = open(os.path.join(self.directory.name, "log"), "w+", encoding="utf-8")
        self.pid = None
        path = os.path.join(self.directory.name, "station.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"[station]\nname = 'station'\nsocket = '{self.api}'\n{config}")
        try:
            with Station.making:
                self._make(["run", "--config", path])
        except BaseException:
            self.close()
            raise

    def lay_cables(self):
        """Connects the namespace of `self.pid`, before the program starts in it."""

    def cut_cables(self):
        """Undoes that; also where it has failed half way."""

    def is_ready(self):
        """Whether the station does what it is there for; its socket accepts."""
        return True

    def _make(self, arguments):
        # The namespace has to be there before the cables lead into it.
        go, gate = os.pipe()
        ready, told = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(arguments, go, gate, told)
        os.close(go)
        os.close(told)
        try:
            if os.read(ready, 1) != b"!":
                raise OSError("no network namespace for the station")
            self.inside("ip", "link", "set", "lo", "up")
            self.lay_cables()
            os.write(gate, b"!")
        finally:
            os.close(ready)
            os.close(gate)
        self._wait()

    def _become(self, arguments, go, gate, told):
        """The child: waits for its cables, then becomes the program."""
        try:
            die_with_parent()
            call(libc.unshare(CLONE_NEWNET))
            os.close(gate)
            os.write(told, b"!")
            if os.read(go, 1) == b"!":
                os.dup2(self.log.fileno(), 1)
                os.dup2(self.log.fileno(), 2)
                os.execv(self.program, [self.program, *arguments])
        finally:
            os._exit(1)

    def _wait(self):
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if not self.alive():
                raise AssertionError(f"the station ended at its start:\n{self.tail()}")
            if os.path.exists(self.api) and self.is_ready():
                return
            time.sleep(0.05)
        raise AssertionError(f"the station did not start in {PATIENCE} s:\n{self.tail()}")

    def inside(self, *command, check=True):
        """Runs a command where the station is."""
        return run("nsenter", "-t", str(self.pid), "-n", "--", *command, check=check)

    def command(self, *arguments):
        """The program's output for the operator."""
        return run(self.program, *arguments, "--socket", self.api)

    def alive(self):
        if self.pid is not None and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.pid = None
        return self.pid is not None

    def tail(self):
        """The end of its log."""
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
        self.cut_cables()
        self.log.close()
        self.directory.cleanup()
        return status
