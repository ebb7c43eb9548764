"""Network namespaces with stations, whose dashboards a browser opens."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
# tools/setup.sh puts it there.
AXE = ROOT / "out/tools/axe/node_modules/axe-core/axe.min.js"


# Link-layer address of the host on board.
HOST_MAC = "02:00:00:00:00:77"


class Bed:
    """The namespaces and the stations; all of it goes with `end`."""

    def __init__(self, program):
        self.work = pathlib.Path(tempfile.mkdtemp(prefix="carnet-web-"))
        self.program = program
        self.mark = f"cw{os.getpid()}"
        # The home agent, the bus, and a host on board of it.
        self.home, self.bus, self.host = f"{self.mark}h", f"{self.mark}b", f"{self.mark}o"
        self.processes = []

    def ip(self, *arguments):
        subprocess.run(["ip", *arguments], check=True)

    def within(self, space):
        return ["nsenter", f"--net=/run/netns/{space}"]

    def build(self):
        for space in (self.home, self.bus, self.host):
            self.ip("netns", "add", space)
            self.ip("-n", space, "link", "set", "lo", "up")
        for at, name in enumerate(["wlan0", "wwan0"], 1):
            self.ip("-n", self.bus, "link", "add", name, "type", "veth", "peer", "name", f"a{at}", "netns", self.home)
            for space, device, end in ((self.home, f"a{at}", 1), (self.bus, name, 2)):
                self.ip("-n", space, "addr", "add", f"2001:db8:f{at}::{end}/64", "dev", device, "nodad")
                self.ip("-n", space, "link", "set", device, "up")
            self.ip("-n", self.bus, "route", "add", "default", "via", f"2001:db8:f{at}::1", "dev", name, "metric", str(at))
        self.ip("-n", self.bus, "link", "add", "i0", "type", "veth", "peer", "name", "i1", "address", HOST_MAC, "netns", self.host)
        for space, device in ((self.bus, "i0"), (self.host, "i1")):
            self.ip("-n", space, "link", "set", device, "up")
        subprocess.run([*self.within(self.home), "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1"], check=True)

    def start(self, space, name, config, **values):
        path = self.work / f"{name}.toml"
        path.write_text(config.format(work=self.work, web=ROOT / "web", **values))
        self.run(space, self.program, "run", "--config", path, name=name)

    def run(self, space, *command, name="other"):
        """Runs it until the end."""
        log = open(self.work / f"{name}.log", "a")
        self.processes.append(subprocess.Popen([*self.within(space), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def wait_for(self, *names):
        """Until these stations are ready."""
        until = time.monotonic() + 30
        while not all((self.work / f"{name}.sock").exists() for name in names):
            if time.monotonic() > until or any(process.poll() is not None for process in self.processes):
                raise RuntimeError("the stations do not start")
            time.sleep(0.1)

    def get_address(self):
        """Makes the host on board ask for an address by DHCP."""
        words = ["busybox", "udhcpc", "-i", "i1", "-f", "-q", "-n", "-t", "10", "-T", "2", "-s", "/bin/true", "-x", "hostname:terminal"]
        subprocess.run([*self.within(self.host), *words], check=True, capture_output=True)

    def tell(self):
        """Output of the processes."""
        for log in sorted(self.work.glob("*.log")):
            print(f"--- {log.name}\n{log.read_text()[-3000:]}", file=sys.stderr)

    def ask(self, name, *command):
        said = subprocess.run([self.program, *command, "--socket", self.work / f"{name}.sock"], capture_output=True, text=True)
        return said.stdout

    def end(self):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
        for space in (self.home, self.bus, self.host):
            subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL)
        shutil.rmtree(self.work)
