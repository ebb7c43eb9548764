/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/* Selects the queue of the TUN device for a packet (TUNSETSTEERINGEBPF). There are three queues: for packets
 * to forward, for control messages of known senders, and for control messages of other senders.
 *
 * The kernel runs the program for each packet routed into the device. A packet begins with its IPv6 header,
 * since the device has no link layer. A header that could hide others behind it (RFC 8200 4.3, 4.4) counts as
 * a control message. So does ICMPv6 except echoes, because hosts test reachability through tunnels by echoes.
 *
 * One queue may be read while another waits, but messages of one source must never overtake each other. So a
 * source changes its queue only after all its messages in the present one have been read. Its last message
 * must be older than the time in `READ`, up to which user space has read the queue. The packets of one source
 * arrive here one after the other.
 *
 * The loading program creates the three maps, so they are not described here. */
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
	/* Time at which its last control message was queued (CLOCK_MONOTONIC). */
	__u64 last;
	__u32 queue;
	__u32 unused;
};

struct map;
/* struct address to the number of tunnels that end there (__u32); only user space writes here. */
extern struct map KNOWN;
/* struct address to struct place. User space adds and removes entries; it removes those without tunnel and
 * without an entry in `KNOWN_SENDERS`. */
extern struct map PLACES;
/* Number of a queue to the time before which all its messages have been read (__u64). */
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
