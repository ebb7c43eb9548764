/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* The queue of the TUN device that a packet goes into (TUNSETSTEERINGEBPF): what is forwarded has one, what asks the
 * station to do something another, and what does so and comes from where it knows nobody a third.
 *
 * The kernel asks for each packet routed into the device. It begins with its IPv6 header, since the device has none of a
 * link layer. A header that could hide the others behind it (RFC 8200 4.3, 4.4) is taken for a control message, and of
 * ICMPv6 all but echoes: whoever looks whether a host is there does it through tunnels.
 *
 * One queue may be read while another waits. So that messages of one source never overtake each other, a source changes
 * its queue only when all that it has in the present one has been read: its last went there before the time in `READ`, up
 * to which user space knows the queue to be read. The packets of one source come here one after the other.
 *
 * The three maps are made by whoever loads the program, which is why they are not described here. */
#include "helpers.h"

#define NEXT_HEADER 6
#define SOURCE 8
#define PAYLOAD 40

#define HOP_BY_HOP 0
#define ROUTING 43
#define FRAGMENT 44
#define ICMPV6 58
#define DESTINATION_OPTIONS 60
#define MOBILITY 135

#define ECHO_REQUEST 128
#define ECHO_REPLY 129

#define FORWARDED 0
#define KNOWN_SENDERS 1
#define STRANGERS 2

struct address {
	__u8 octets[16];
};

struct place {
	/* When its last control message was put into the queue (CLOCK_MONOTONIC). */
	__u64 last;
	__u32 queue;
	__u32 unused;
};

struct map;
/* struct address: how many tunnels end there (__u32); only user space writes here. */
extern struct map KNOWN;
/* struct address: struct place. User space adds, and takes away what has no tunnel and nothing in `KNOWN_SENDERS`. */
extern struct map PLACES;
/* Number of a queue: what was put there before this time has been read (__u64). */
extern struct map READ;

SEC("socket")
int steer(struct __sk_buff *skb)
{
	struct address source;
	struct place *place;
	__u32 wanted, at;
	__u64 *read;
	__u8 next, type;

	if (bpf_skb_load_bytes(skb, NEXT_HEADER, &next, sizeof next))
		return FORWARDED;
	switch (next) {
	case ICMPV6:
		if (!bpf_skb_load_bytes(skb, PAYLOAD, &type, sizeof type) && (type == ECHO_REQUEST || type == ECHO_REPLY))
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
