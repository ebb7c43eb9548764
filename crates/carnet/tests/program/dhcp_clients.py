"""Many DHCP clients on one interface: `dhcp_clients.py INTERFACE CLIENTS PER_SECOND SECONDS`.

Each client has a link-layer address of its own, and sends its message again every two seconds until it has an
address. The program prints `MAC ADDRESS` for each acknowledgement, also for a second one, and ends with
the seconds until the last client had an address.
"""

import select
import socket
import struct
import sys
import time

interface, clients, rate, limit = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
AGAIN = 2.0
MAGIC = b"\x63\x82\x53\x63"


def mac_of(number):
    return b"\x02\x10" + struct.pack("!I", number)


def frame(mac, number, kind, options):
    bootp = struct.pack("!BBBBIHH", 1, 1, 6, 0, number, 0, 0x8000 if number % 2 else 0) + bytes(16)
    bootp += mac + bytes(10 + 64 + 128) + MAGIC + bytes([53, 1, kind]) + options + b"\xff"
    udp = struct.pack("!HHHH", 68, 67, 8 + len(bootp), 0) + bootp
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0) + bytes(4) + b"\xff" * 4
    words = sum(struct.unpack("!10H", head))
    words = (words & 0xFFFF) + (words >> 16)
    head = head[:10] + struct.pack("!H", ~words & 0xFFFF) + head[12:]
    return b"\xff" * 6 + mac + b"\x08\x00" + head + udp


def parse(octets):
    """Returns number, type and address of an answer, and the server; None for other packets."""
    packet = octets[14:]
    if len(packet) < 20 or packet[9] != 17:
        return None
    udp = packet[(packet[0] & 15) * 4 :]
    if udp[:4] != struct.pack("!HH", 67, 68) or udp[8 + 236 : 8 + 240] != MAGIC:
        return None
    bootp, rest, options = udp[8:], udp[8 + 240 :], {}
    while rest and rest[0] != 255:
        options[rest[0]] = rest[2 : 2 + rest[1]]
        rest = rest[2 + rest[1] :]
    (number,) = struct.unpack("!I", bootp[4:8])
    return number, options[53][0], bootp[16:20], options[54]


link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
link.bind((interface, 0))
start = time.monotonic()
# For each client: the options of its request, and when to send again.
waiting = {number: [None, start + number / rate] for number in range(clients)}
last = 0.0
while waiting and time.monotonic() < start + limit:
    now = time.monotonic()
    for number, state in list(waiting.items()):
        if state[1] <= now:
            options, state[1] = state[0], now + AGAIN
            link.send(frame(mac_of(number), number, 3 if options else 1, options or b""))
    while select.select([link], [], [], 0.005)[0]:
        answer = parse(link.recv(2048))
        if not answer or answer[0] >= clients:
            continue
        number, kind, address, server = answer
        if kind == 5:
            print(mac_of(number).hex(":"), socket.inet_ntoa(address), flush=True)
        if number not in waiting:
            continue
        if kind == 2 and waiting[number][0] is None:
            options = b"\x32\x04" + address + b"\x36\x04" + server
            waiting[number] = [options, time.monotonic() + AGAIN]
            link.send(frame(mac_of(number), number, 3, options))
        elif kind == 5:
            last = time.monotonic() - start
            del waiting[number]
        elif kind == 6:
            waiting[number] = [None, time.monotonic()]
print("seconds", round(last, 3), flush=True)
