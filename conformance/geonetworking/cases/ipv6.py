"""IPv6 over GeoNetworking (TS 102 859-2, EN 302 636-6-1): packets of the host into a virtual interface (MG), packets
from the air out of one (MR), interfaces that come and go (VM). SGVL1 is the link of AREA1."""

from tester import gn, ipv6
from tester.bed import STATION_MAC
from tester.case import case

SUBNET = "3ffe:0:0:1::"
OTHERS = "2001:db8:9::9"
NOBODY = "2001:db8:5::5"


def declared(name, title, seconds=1.0):
    return case(name, title, "EN 302 636-6-1 9, 10", profile="ipv6", seconds=seconds)


def sends(t, interface, mac, destination, kind, tag):
    """A packet that is put into an interface goes out, unchanged; the packet that it goes in."""
    data = ipv6.packet(ipv6.link_local(STATION_MAC), destination, tag)
    t.put(interface, mac, data)
    frame = t.expect(t.own(kind, data), "the packet")
    t.same(frame.packet.next_header, gn.NH_IPV6, "NH of the Common Header")
    return frame.packet


@declared("MG_GVL_BV_01", "link-local multicast into SGVL1 is GBC to its area")
def _(t):
    t.beacons(t.b)
    sent = sends(t, "sgvl1", ipv6.group_mac(ipv6.ALL_NODES), ipv6.ALL_NODES, gn.GBC, b"mg-gvl-01")
    t.same(sent.area, t.area1, "the area")


@declared("MG_GVL_BV_02", "multicast based on the prefix of SGVL1 is GBC to its area")
def _(t):
    t.beacons(t.b)
    group = "ff3e:40:3ffe:0:0:1:0:99"
    for interface in ("sgvl1", "tvl0"):
        sent = sends(t, interface, ipv6.group_mac(group), group, gn.GBC, interface.encode())
        t.same(sent.area, t.area1, f"the area, from {interface}")


@declared("MG_GVL_BV_03", "geographic anycast into SGVL1 is GAC to its area")
def _(t):
    t.beacons(t.b)
    for number, anycast in enumerate(ipv6.ANYCAST):
        sent = sends(t, "sgvl1", gn.BROADCAST, f"3ffe:0:0:1:{anycast}", gn.GAC, b"anycast%d" % number)
        t.same(sent.area, t.area1, "the area")


def by_identifier(t, interface):
    t.beacons(t.b)
    to = ipv6.link_local(t.b.mac)
    sent = sends(t, interface, gn.BROADCAST, to, gn.GUC, b"by-identifier-" + interface.encode())
    t.same(sent.de.mid, t.b.mac, "MID of the destination")
    # The host itself asks who has the address: nothing of that goes out.
    t.inside("ip", "-6", "neigh", "flush", "dev", interface)
    t.frames.clear()
    t.inside("ping", "-6", "-c", "1", "-W", "1", f"{to}%{interface}", check=False)
    frame = t.expect(gn.GUC, "the ping")
    t.same(frame.packet.de.mid, t.b.mac, "MID of the ping's destination")
    t.none(lambda frame: frame.packet.type in (gn.TSB, gn.GBC), "a question about the address", during=0.2)


def by_mac(t, interface):
    t.beacons(t.b)
    sent = sends(t, interface, t.b.mac, "3ffe:0:0:1::b", gn.GUC, b"by-mac-" + interface.encode())
    t.same(sent.de.mid, t.b.mac, "MID of the destination")


@declared("MG_GVL_BV_04", "unicast into SGVL1 is GUC to the station of the interface identifier")
def _(t):
    by_identifier(t, "sgvl1")


@declared("MG_GVL_BV_05", "unicast into SGVL1 is GUC to the station of the destination MAC address")
def _(t):
    by_mac(t, "sgvl1")


@declared("MG_TVL_BV_01", "unicast into the TVL is GUC to the station of the interface identifier")
def _(t):
    by_identifier(t, "tvl0")


@declared("MG_TVL_BV_02", "unicast into the TVL is GUC to the station of the destination MAC address")
def _(t):
    by_mac(t, "tvl0")


@declared("MG_TVL_BV_03", "link-local multicast into the TVL is TSB")
def _(t):
    t.beacons(t.b)
    sends(t, "tvl0", ipv6.group_mac(ipv6.ALL_NODES), ipv6.ALL_NODES, gn.TSB, b"mg-tvl-03")


ALL_NODES_MAC = ipv6.group_mac(ipv6.ALL_NODES)
# 400 m around D: the area of no link.
ELSEWHERE = 400


def comes_out(t, node, packet, data, interface, to):
    """A packet of a node comes out of one interface of the host, with these MAC addresses, and of no other."""
    t.send(node, packet)
    frame = t.out_of(data, "the packet")
    t.same((frame.interface, frame.to, frame.source), (interface, to, node.mac), "interface, MAC addresses")
    t.wait(0.1)
    t.same(len([f for f in t.out if f.packet == data]), 1, "how often it came out")


def multicast(node, tag):
    return ipv6.packet(ipv6.link_local(node.mac), ipv6.ALL_NODES, tag)


@declared("MR_GVL_BV_01", "GBC to AREA1 comes out of SGVL1")
def _(t):
    data = multicast(t.b, b"mr-gvl-01")
    comes_out(t, t.b, t.b.gbc(t.area1, data, next_header=gn.NH_IPV6), data, "sgvl1", ALL_NODES_MAC)


def elsewhere(t):
    return gn.Area(t.d.lat, t.d.lon, ELSEWHERE)


@declared("MR_GVL_BV_02", "GBC to an area of no SGVL comes out of the DGVL")
def _(t):
    data = multicast(t.b, b"mr-gvl-02")
    comes_out(t, t.b, t.b.gbc(elsewhere(t), data, next_header=gn.NH_IPV6), data, "dgvl", ALL_NODES_MAC)


@declared("MR_GVL_BV_03", "GAC to AREA1 comes out of SGVL1")
def _(t):
    data = ipv6.packet(ipv6.link_local(t.b.mac), f"3ffe:0:0:1:{ipv6.ANYCAST[0]}", b"mr-gvl-03")
    comes_out(t, t.b, t.b.gac(t.area1, data, next_header=gn.NH_IPV6), data, "sgvl1", STATION_MAC)


@declared("MR_GVL_BV_04", "GAC to an area of no SGVL comes out of the DGVL")
def _(t):
    data = ipv6.packet(ipv6.link_local(t.b.mac), f"3ffe:0:0:1:{ipv6.ANYCAST[0]}", b"mr-gvl-04")
    comes_out(t, t.b, t.b.gac(elsewhere(t), data, next_header=gn.NH_IPV6), data, "dgvl", STATION_MAC)


def learns(t, prefix="3ffe:0:0:2::", seconds=30, radius=ELSEWHERE):
    """A Router Advertisement from an area of no SGVL; the interface that it comes out of."""
    data = ipv6.router_advertisement(t.b.mac, prefix, seconds)
    t.send(t.b, t.b.gbc(gn.Area(t.d.lat, t.d.lon, radius), data, next_header=gn.NH_IPV6))
    frame = t.out_of(data, "the Router Advertisement")
    t.same((frame.to, frame.source), (ALL_NODES_MAC, t.b.mac), "MAC addresses")
    return frame.interface


@declared("MR_GVL_BV_05", "a Router Advertisement from an area of no SGVL comes out of a new one")
def _(t):
    name = learns(t)
    t.true(name not in ("tvl0", "sgvl1", "dgvl"), f"it came out of {name}")
    # Later packets leave this interface, too.
    data = multicast(t.b, b"mr-gvl-05")
    comes_out(t, t.b, t.b.gbc(elsewhere(t), data, next_header=gn.NH_IPV6), data, name, ALL_NODES_MAC)


def unicast(t, node, to, interface, tag, source=OTHERS):
    data = ipv6.packet(source, to, tag)
    comes_out(t, node, node.guc(t.spv(), data, next_header=gn.NH_IPV6), data, interface, STATION_MAC)


@declared("MR_GVL_BV_06", "GUC to an address of an interface comes out of it")
def _(t):
    t.inside("ip", "-6", "addr", "add", "2001:db8::1/128", "dev", "dgvl", "nodad")
    try:
        t.wait(0.2)
        unicast(t, t.b, "2001:db8::1", "dgvl", b"mr-gvl-06")
    finally:
        t.inside("ip", "-6", "addr", "del", "2001:db8::1/128", "dev", "dgvl")


@declared("MR_GVL_BV_07", "GUC to no interface comes out of the SGVL in whose area the source is")
def _(t):
    unicast(t, t.b, NOBODY, "sgvl1", b"mr-gvl-07")


@declared("MR_GVL_BV_08", "GUC to no interface, from no SGVL's area, comes out of the DGVL")
def _(t):
    unicast(t, t.a, NOBODY, "dgvl", b"mr-gvl-08")


@declared("MR_GVL_BV_09", "GUC from the areas of several SGVLs comes out of the longest-lived where its source is on link")
def _(t):
    longest = learns(t, "3ffe:0:0:3::", 60, 300)
    learns(t, "3ffe:0:0:3::", 30, 350)
    unicast(t, t.b, NOBODY, longest, b"mr-gvl-09", source="3ffe:0:0:3::9")


@declared("MR_GVL_BV_10", "GUC from the areas of several SGVLs comes out of the DGVL where its source is not on link")
def _(t):
    learns(t, "3ffe:0:0:3::", 60, 300)
    learns(t, "3ffe:0:0:3::", 30, 350)
    unicast(t, t.b, NOBODY, "dgvl", b"mr-gvl-10")


@declared("MR_TVL_BV_01", "TSB comes out of the TVL")
def _(t):
    data = multicast(t.b, b"mr-tvl-01")
    comes_out(t, t.b, t.b.tsb(data, next_header=gn.NH_IPV6), data, "tvl0", ALL_NODES_MAC)


def links(t):
    shown = t.inside("ip", "-o", "link", "show")
    return {line.split(": ")[1].split("@")[0]: line for line in shown.splitlines()}


@declared("VM_NVI_BV_01", "the interface of a new SGVL has the station's MAC address")
def _(t):
    before = set(links(t))
    name = learns(t)
    after = links(t)
    t.same(set(after) - before, {name}, "new interfaces")
    t.true(STATION_MAC.hex(":") in after[name], f"{after[name]} has no {STATION_MAC.hex(':')}")


@declared("VM_EVI_BV_01", "a learnt SGVL and its interface go with its last prefix", seconds=4.0)
def _(t):
    name = learns(t, seconds=2)
    t.wait(1.0)
    t.true(name in links(t), f"{name} is gone after 1 s of 2")
    t.wait(1.5)
    t.true(name not in links(t), f"{name} is there after 2.5 s of 2")


@declared("OWN_IPV6_MAPPED_GROUP", "a group that is mapped to an area goes there from any interface, and comes out of the TVL")
def _(t):
    t.beacons(t.b)
    group = "ff3e::4711"
    for interface in ("tvl0", "sgvl1", "dgvl"):
        sent = sends(t, interface, ipv6.group_mac(group), group, gn.GBC, b"mapped-" + interface.encode())
        t.same(sent.area, t.area2, f"the area, from {interface}")
    data = ipv6.packet(OTHERS, group, b"mapped")
    packet = t.b.gbc(t.area1, data, next_header=gn.NH_IPV6)
    comes_out(t, t.b, packet, data, "tvl0", ipv6.group_mac(group))


@declared("OWN_IPV6_SOURCES", "what claims to be another station, or this one, does not come out")
def _(t):
    lies = [ipv6.link_local(t.c.mac), ipv6.link_local(STATION_MAC), "::1", "ff02::2"]
    for number, source in enumerate(lies):
        data = ipv6.packet(source, ipv6.ALL_NODES, b"lie%d" % number)
        t.send(t.b, t.b.tsb(data, next_header=gn.NH_IPV6))
    data = ipv6.router_advertisement(t.c.mac, SUBNET, 30)
    t.send(t.b, t.b.tsb(data, next_header=gn.NH_IPV6))
    t.wait(0.3)
    t.same([f for f in t.out if f.source == t.b.mac], [], "frames of B")
