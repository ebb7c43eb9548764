"""DHCP clients with the habits of Android and Windows: `dhcp_habits.py INTERFACE`.

Prints one line of JSON for each answer: who got it, its type and address, the destinations of its frame and
of its packet, and its options in hexadecimal digits by code.
"""

import json
import sys
import time

from scapy.all import BOOTP, IP, UDP, Ether, conf, get_if_hwaddr

interface = sys.argv[1]
link = conf.L2socket(iface=interface)
MAGIC = b"\x63\x82\x53\x63"
NOBODY, ALL = "0.0.0.0", "255.255.255.255"


def option(code, value):
    return bytes([code, len(value)]) + value


def options(octets):
    """Returns the options of a message by code; parts of a long option are joined."""
    found, rest = {}, octets[len(MAGIC) :]
    while rest and rest[0] != 255:
        if rest[0] == 0:
            rest = rest[1:]
            continue
        found[rest[0]] = found.get(rest[0], b"") + rest[2 : 2 + rest[1]]
        rest = rest[2 + rest[1] :]
    return found


def exchange(who, mac, number, kind, more, flags=0, ciaddr=NOBODY):
    """Sends a message until an answer arrives, prints the answer, and returns its address and options."""
    message = BOOTP(op=1, chaddr=bytes.fromhex(mac.replace(":", "")), xid=number, flags=flags, ciaddr=ciaddr)
    message.options = MAGIC + option(53, bytes([kind])) + b"".join(more) + b"\xff"
    udp = UDP(sport=68, dport=67)
    frame = Ether(src=mac, dst="ff:ff:ff:ff:ff:ff") / IP(src=ciaddr, dst=ALL) / udp / message
    for _ in range(15):
        link.send(frame)
        end = time.monotonic() + 2
        while time.monotonic() < end:
            if not link.select([link], 0.1):
                continue
            answer = link.recv()
            if answer is None or BOOTP not in answer or answer[BOOTP].op != 2 or answer[BOOTP].xid != number:
                continue
            found = options(bytes(answer[BOOTP])[236:])
            address = answer[BOOTP].yiaddr
            by_code = {str(code): value.hex() for code, value in found.items()}
            line = {"who": who, "kind": found[53][0], "address": address, "to_mac": answer[Ether].dst}
            print(json.dumps(line | {"to": answer[IP].dst, "options": by_code}), flush=True)
            return address, found
    sys.exit(f"no answer to {who}, message {kind}")


def four(address):
    return bytes(int(octet) for octet in address.split("."))


# Android: no client identifier, no broadcast, rapid commit, IPv6-only preferred, and a large message.
mac = "02:aa:00:00:00:01"
common = [option(57, b"\x05\xdc"), option(60, b"android-dhcp-14"), option(12, b"Pixel 7")]
common.append(option(55, bytes([1, 3, 6, 15, 26, 28, 51, 58, 59, 43, 114, 108])))
address, offer = exchange("android", mac, 1, 1, [option(80, b"")] + common)
exchange("android", mac, 2, 3, [option(50, four(address)), option(54, offer[54])] + common)

# Windows: broadcast flag, client identifier, host name, FQDN, and DHCPINFORM with the address in use.
mac = "02:bb:00:00:00:01"
identity = [option(61, b"\x01" + bytes.fromhex(mac.replace(":", ""))), option(12, b"DESKTOP-1A2B")]
wanted = option(55, bytes([1, 3, 6, 15, 31, 33, 43, 44, 46, 47, 119, 121, 249, 252]))
vendor = option(60, b"MSFT 5.0")
address, offer = exchange("windows", mac, 3, 1, identity + [vendor, wanted], flags=0x8000)
chosen = [option(50, four(address)), option(54, offer[54]), option(81, b"\x00\x00\x00DESKTOP-1A2B")]
exchange("windows", mac, 4, 3, identity + chosen + [vendor, wanted], flags=0x8000)
exchange("windows", mac, 5, 8, identity + [vendor, wanted], ciaddr=address)
