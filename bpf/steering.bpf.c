/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Selects the queue of the TUN device for a packet (TUNSETSTEERINGEBPF). There are three queues: for packets
 * to forward, for control messages of known senders, and for control messages of other senders.
 *
 * The kernel runs the program for each packet routed into the device. A packet begins with its IP header,
 * since the device has no link layer. The program treats every IPv4 packet as a packet to forward. A packet
 * with a header after which other headers may follow (RFC 8200 4.3, 4.4) counts as a control message. ICMPv6
 * counts as one too, except echoes, with which hosts test reachability through tunnels. So does a handshake
 * message of an encrypted session. Thus a flood of handshakes does not displace packets to forward.
 *
 * User space may read one queue while another waits, but messages of one source must never overtake each
 * other. So a source changes its queue only after user space has read all its messages in the present queue.
 * User space has read them if the source's last message is older than the time in `READ`, up to which user
 * space has read the queue. The program gets the packets of one source one after the other.
 *
 * The loading program creates the three maps, so they are not described here.
 */
#include "helpers.h"

#define NEXT_HEADER 6
#define SOURCE 8
#define PAYLOAD 40

#define HOP_BY_HOP 0
#define ROUTING 43
#define FRAGMENT 44
#define UDP 17
#define ICMPV6 58
#define DESTINATION_OPTIONS 60
#define MOBILITY 135

#define ECHO_REQUEST 128
#define ECHO_REPLY 129

#define FORWARDED 0
#define KNOWN_SENDERS 1
#define STRANGERS 2

/* Handshake messages of encrypted sessions (WireGuard): their first four octets, and the lengths of their
 * datagrams. */
#define UDP_LENGTH (PAYLOAD + 4)
#define MESSAGE (PAYLOAD + 8)
#define INITIATION 1
#define RESPONSE 2
#define COOKIE_REPLY 3
#define INITIATION_DATAGRAM 156
#define RESPONSE_DATAGRAM 100
#define COOKIE_REPLY_DATAGRAM 72

struct address {
	__u8 octets[16];
};

struct place {
	/* Time at which the sender's last control message was queued (CLOCK_MONOTONIC). */
	__u64 last;
	__u32 queue;
	__u32 unused;
};

struct map;
/* Map from a struct address to the number of tunnels that end there (__u32). Only user space writes this
 * map. */
extern struct map KNOWN;
/* Map from a struct address to struct place. User space adds and removes entries. It removes the entry of a
 * sender that has no tunnel and no message in the queue KNOWN_SENDERS. */
extern struct map PLACES;
/* Map from the number of a queue to the time before which user space has read all its messages (__u64). */
extern struct map READ;

SEC("socket")
int steer(struct __sk_buff *skb)
{
	struct address source;
	struct place *place;
	__u32 wanted, at;
	__u64 *read;
	__u8 first, next, type, length[2], message[4];

	if (bpf_skb_load_bytes(skb, 0, &first, sizeof first) || first >> 4 != 6)
		return FORWARDED;
	if (bpf_skb_load_bytes(skb, NEXT_HEADER, &next, sizeof next))
		return FORWARDED;
	switch (next) {
	case ICMPV6:
		if (!bpf_skb_load_bytes(skb, PAYLOAD, &type, sizeof type) && (type == ECHO_REQUEST || type == ECHO_REPLY))
			return FORWARDED;
		break;
	case UDP:
		if (bpf_skb_load_bytes(skb, UDP_LENGTH, length, sizeof length) ||
		    bpf_skb_load_bytes(skb, MESSAGE, message, sizeof message))
			return FORWARDED;
		if (length[0] || message[1] || message[2] || message[3])
			return FORWARDED;
		if (!(message[0] == INITIATION && length[1] == INITIATION_DATAGRAM) &&
		    !(message[0] == RESPONSE && length[1] == RESPONSE_DATAGRAM) &&
		    !(message[0] == COOKIE_REPLY && length[1] == COOKIE_REPLY_DATAGRAM))
			return FORWARDED;
		break;
	case HOP_BY_HOP:
	case ROUTING:
	case FRAGMENT:
	case DESTINATION_OPTIONS:
	case MOBILITY:
		break;
	default:
		return FORWARDED;
	}
	if (bpf_skb_load_bytes(skb, SOURCE, &source, sizeof source))
		return FORWARDED;
	place = bpf_map_lookup_elem(&PLACES, &source);
	if (!place)
		return STRANGERS;
	wanted = bpf_map_lookup_elem(&KNOWN, &source) ? KNOWN_SENDERS : STRANGERS;
	at = place->queue;
	if (at != wanted) {
		read = bpf_map_lookup_elem(&READ, &at);
		if (read && place->last < *read)
			place->queue = wanted;
	}
	place->last = bpf_ktime_get_ns();
	return place->queue;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
