"""The network managers, each in a root file system of its own: an overlay over this machine's root or over a Debian that was
bootstrapped, with /run, D-Bus, and a /sys that cannot be written (so that the managers do without udev).
"""

import os
import pathlib
import re
import shutil
import subprocess
import time

# firewalld does not start without /etc/protocols, which netbase has.
PACKAGES = "network-manager dhcpcd-base dnsmasq-base dbus systemd iproute2 procps firewalld netbase"
SUITES = {"12": "bookworm", "13": "trixie"}
UPLINKS = ("wlan0", "wwan0")

ENTER = """set -e
mount -t tmpfs none {work}
mkdir -p {work}/upper {work}/scratch {work}/root
mount -t overlay none -o lowerdir={lower},upperdir={work}/upper,workdir={work}/scratch {work}/root
cd {work}/root
mkdir -p proc sys dev run tmp
mount -t proc none proc
mount -t sysfs -o ro none sys
mount --bind /proc/sys proc/sys
mount --rbind /dev dev
mount -t tmpfs none run
mkdir -p run/dbus run/systemd/netif run/lock
chown systemd-network run/systemd/netif 2>/dev/null || true
echo ready
exec sleep infinity
"""


def make_root(debian, out):
    """The folder with these packages of that Debian: made once, by debootstrap."""
    root = pathlib.Path(out) / f"debian-{debian}"
    if (root / "made").exists() and (root / "made").read_text() == PACKAGES:
        return root
    if not shutil.which("debootstrap"):
        raise SystemExit("managers: debootstrap is missing (apt-get install debootstrap)")
    shutil.rmtree(root, ignore_errors=True)
    print(f"managers: making a root of Debian {debian} in {root}", flush=True)
    subprocess.run(["debootstrap", "--variant=minbase", SUITES[debian], root], check=True, stdout=subprocess.DEVNULL)
    # Packages start nothing here.
    refusal = root / "usr/sbin/policy-rc.d"
    refusal.write_text("#!/bin/sh\nexit 101\n")
    refusal.chmod(0o755)
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES.split()]
    subprocess.run(["unshare", "--mount", "sh", "-c", 'mount -t proc none "$0/proc"; exec chroot "$0" "$@"', root, *install],
                   check=True, env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"}, stdout=subprocess.DEVNULL)
    (root / "made").write_text(PACKAGES)
    return root


class Manager:
    """Base of all managers: the root file system, with D-Bus. This one manages nothing: the kernel does it
    alone."""

    name = "kernel"
    # The namespace in which it runs.
    space = "bus"
    files = {}
    has_dhcp = False
    # Effects of the manager on the network: event -> reason why carnet does not cause this outage.
    own_doing = {}
    # The same where it only takes longer: event -> seconds more than an event may take, and the reason.
    own_delay = {}
    program = None

    def __init__(self, world, lower):
        self.world, self.lower = world, lower
        self.holder = None

    def enter(self):
        """Makes the root."""
        work = self.world.work / f"root-{self.name}"
        words = ["nsenter", f"--net=/run/netns/{self.world.space(self.space)}", "unshare", "--mount", "--propagation", "private", "sh",
                 "-c", ENTER.format(work=work, lower=self.lower)]
        work.mkdir()
        self.holder = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if self.holder.stdout.readline() != "ready\n":
            raise RuntimeError(f"no root for {self.name}")
        self.root = work / "root"
        for path, text in self.files.items():
            mode = "600" if path.endswith(".nmconnection") else "644"
            self.inside("sh", "-c", f"mkdir -p $(dirname {path}) && cat >{path} && chmod {mode} {path}", input=text)

    def words(self, *command):
        at = str(self.holder.pid)
        return ["nsenter", "--target", at, "--mount", "--net", "chroot", str(self.root), *command]

    def inside(self, *command, check=True, **more):
        return subprocess.run(self.words(*command), check=check, text=True, capture_output=True, **more)

    def start_bus_daemon(self):
        log = open(self.world.work / f"{self.name}-dbus.log", "a")
        # With the policy of the packages, but without a user of its own.
        self.world.processes[f"dbus-{self.name}"] = subprocess.Popen(
            self.words("dbus-daemon", "--system", "--nofork", "--nopidfile"), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until = time.time() + 10
        while not self.inside("test", "-S", "/run/dbus/system_bus_socket", check=False).returncode == 0:
            if time.time() > until:
                raise RuntimeError("D-Bus does not start")
            time.sleep(0.1)

    def start(self):
        if self.program is None:
            for device in UPLINKS:
                self.world.ip("bus", f"link set {device} up")
            return
        log = open(self.world.work / f"{self.name}.log", "a")
        self.world.processes["manager"] = subprocess.Popen(
            self.words(*self.program), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def stop(self):
        self.world.stop("manager")

    def begin(self):
        self.enter()
        self.prepare()
        self.start()

    def prepare(self):
        pass

    def end(self):
        self.stop()
        self.world.stop(f"dbus-{self.name}")
        if self.holder is not None:
            self.holder.kill()
            self.holder.wait()

    # Events that managers have words for: the commands, or none.
    renew = reload = reconfigure = None


class Networkd(Manager):
    """systemd-networkd, with the files of docs/integration.md."""

    name = "networkd"
    has_dhcp = True
    program = ["/lib/systemd/systemd-networkd"]
    files = {
        **{f"/etc/systemd/network/20-{device}.network":
           f"[Match]\nName={device}\n\n[Network]\nDHCP=yes\nIPv6AcceptRA=yes\n\n[DHCPv4]\nRouteMetric={metric}\n\n"
           f"[IPv6AcceptRA]\nRouteMetric={metric}\n" for device, metric in zip(UPLINKS, (100, 200))},
        "/etc/systemd/network/30-eth0.network":
            "[Match]\nName=eth0\n\n[Link]\nRequiredForOnline=no\n\n[Network]\nIPv6SendRA=no\nIPv6AcceptRA=no\n",
        "/etc/systemd/networkd.conf": "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n",
    }
    own_doing = {"manager stopped": "networkd of systemd 257 takes its addresses away"}

    def prepare(self):
        self.start_bus_daemon()

    def renew(self):
        self.inside("networkctl", "renew", *UPLINKS)

    def reload(self):
        self.inside("networkctl", "reload")

    def reconfigure(self):
        self.inside("networkctl", "reconfigure", "wlan0")


CONNECTION = """[connection]
id={device}
uuid=00000000-0000-4000-8000-00000000000{at}
type=ethernet
interface-name={device}
autoconnect=true

[ipv4]
method=auto
route-metric={metric}

[ipv6]
method=auto
route-metric={metric}
"""


class NetworkManager(Manager):
    """NetworkManager, with the file of docs/integration.md that leaves carnet's devices alone."""

    name = "NetworkManager"
    has_dhcp = True
    program = ["/usr/sbin/NetworkManager", "--no-daemon"]
    files = {
        "/etc/NetworkManager/NetworkManager.conf": "[main]\nplugins=keyfile\ndhcp=internal\ndns=none\n",
        "/etc/NetworkManager/conf.d/carnet.conf":
            "[keyfile]\nunmanaged-devices=interface-name:carnet0;interface-name:gn0*;interface-name:cn*;interface-name:eth0\n",
        **{f"/etc/NetworkManager/system-connections/{device}.nmconnection":
           CONNECTION.format(device=device, at=at, metric=100 * at) for at, device in enumerate(UPLINKS, 1)},
    }

    def prepare(self):
        self.start_bus_daemon()

    def renew(self):
        for device in UPLINKS:
            self.inside("nmcli", "device", "reapply", device)

    def reload(self):
        self.inside("nmcli", "general", "reload")

    def reconfigure(self):
        self.inside("nmcli", "connection", "up", "wlan0")


class Dhcpcd(Manager):
    """dhcpcd, for the uplinks alone."""

    name = "dhcpcd"
    has_dhcp = True
    program = ["dhcpcd", "--nobackground", "--config", "/etc/dhcpcd-carnet.conf"]
    # `persistent` and `slaac` as in Debian's own file.
    files = {"/etc/dhcpcd-carnet.conf": "nodev\npersistent\nslaac hwaddr\nnohook resolv.conf\nallowinterfaces wlan0 wwan0\n"
                                        "interface wlan0\nmetric 100\ninterface wwan0\nmetric 200\n"}
    own_delay = {event: (2.0, "dhcpcd takes the link-local address away with the carrier, so that two duplicate address "
                              "detections of 1 to 2 s follow each other")
                 for event in ("access router replaced, carrier lost for 0.3 s", "back to the first, carrier lost for 1 s")}

    def prepare(self):
        self.inside("mkdir", "-p", "/var/lib/dhcpcd", "/run/dhcpcd")

    def renew(self):
        self.inside("dhcpcd", "--config", "/etc/dhcpcd-carnet.conf", "--rebind", "wlan0", check=False)


class Firewalld(Manager):
    """firewalld at the home agent, with the commands of docs/integration.md as they are printed."""

    name = "firewalld"
    space = "home"
    program = ["firewalld", "--nofork", "--nopid"]

    def prepare(self):
        self.start_bus_daemon()

    def wait(self):
        """Until firewalld has started; what it said if it does not, or nothing."""
        until = time.time() + 60
        while self.inside("firewall-cmd", "--state", check=False).returncode:
            if time.time() > until or self.world.processes["manager"].poll() is not None:
                return "firewalld does not start: " + self.inside("tail", "-n", "3", "/var/log/firewalld", check=False).stdout
            time.sleep(0.5)
        return ""

    def follow_the_page(self, page):
        """Runs the page's commands; what the first one that failed said, or nothing."""
        block = re.search(r"```sh\n(firewall-cmd .*?)```", page, re.S)[1]
        done = self.inside("sh", "-ec", block, check=False)
        return "" if done.returncode == 0 else done.stderr or done.stdout


MANAGERS = {kind.name: kind for kind in (Manager, Networkd, NetworkManager, Dhcpcd)}
