/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Flows that rules of the kernel's packet filter use.
 *
 * A program handles a packet of such a flow only on two conditions. First, the kernel's connection tracking
 * has a confirmed entry for it, with packets in both directions and without NAT. Second, the rules have
 * accepted an earlier packet of the same direction since they changed last. So the kernel alone evaluates the
 * rules. A program at the egress of the interfaces (note) sees the packets that the rules have accepted, and
 * stores the flow in PASSED. The rules see only interfaces, addresses, protocol, ports and connection state,
 * so they accept the flow's later packets, too. With other rules carnet demands that the kernel sees every
 * packet (UNTRACKABLE).
 *
 * The kernel does not see the packets that a program handles. So the program renews the timeout of the entry
 * at each lookup, at least once in a second. It leaves packets that change the state of the connection to the
 * kernel: TCP packets with SYN, FIN or RST, and packets without ACK.
 */
#pragma once

#include "flow.h"

/* Bits of `status` in struct nf_conn, as in linux/netfilter/nf_conntrack_common.h. */
#define STATUS_ASSURED (1 << 2) /* packets in both directions */
#define STATUS_CONFIRMED (1 << 3)
/* The kernel changes packets of the connection, or must see each of them: source NAT, destination NAT,
 * changed sequence numbers, deleted, template, clash of NAT, helper, offload to a flow table or a card. */
#define STATUS_KERNEL (1 << 4 | 1 << 5 | 1 << 6 | 1 << 9 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 14 | 1 << 15)
/* State of an established TCP connection, as in linux/netfilter/nf_conntrack_tcp.h. */
#define TCP_ESTABLISHED 3
/* Maximum time since the last packet of the other direction with which a TCP connection counts as alive. A
 * program notes the time of a packet at most once in a second. */
#define BOTH_ENDS_TICKS (5 * SECOND)

/* A flow as the rules see it. */
struct passage {
	struct address source; /* IPv4 addresses are IPv4-mapped */
	struct address destination;
	__u32 ports;
	__u32 protocol; /* protocol, with INSIDE_IPV4 for IPv4 */
	__u32 arrival; /* interface of arrival; the TUN device for a packet out of a tunnel */
	__u32 departure; /* interface by which the packet leaves; the TUN device for a packet into a tunnel */
};

struct passed {
	__u32 generation; /* generation of the rules that accepted the packet */
	__u32 direction; /* direction of the packet in the connection */
	__u32 seen; /* time of a recent packet in ticks */
	__u32 zero;
};

/* Flows that the rules have accepted. If the map is full, the kernel removes an entry that was not used of
 * late, and a packet of its flow takes the slow path. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct passage);
	__type(value, struct passed);
} PASSED SEC(".maps");

/* Stores in the flow what the packet filter demands for packets of this interface (enum filter), and returns
 * it. */
inline_always __u32 find_filter(struct flow *flow, __u32 ifindex)
{
	__u32 of_rules = flow->protocol & INSIDE_IPV4 ? RULESET.ipv4 : RULESET.ipv6;
	const __u32 *of_interface = bpf_map_lookup_elem(&FILTERED, &ifindex);
	__u32 filter = of_interface && *of_interface > of_rules ? *of_interface : of_rules;

	flow->filter = filter == TRACKED && !HAS_CONNTRACK ? UNTRACKABLE : filter;
	return flow->filter;
}

/* Returns 1 plus the direction of a packet in its connection; 0 if the kernel must see the packet. With
 * `keeps`, sets the timeout of the connection. `is_skb` says that `ctx` is a socket buffer. */
inline_always __u32 find_connection(void *ctx, const struct passage *passage, __u32 timeout, const int keeps,
				    const int is_skb)
{
	struct conntrack_options options = { .namespace = -1, .protocol = passage->protocol };
	__u8 next_header = passage->protocol;
	struct bpf_sock_tuple tuple;
	/* The size selects the address family. */
	__u32 size = sizeof tuple.ipv6, found = 0, status;
	struct nf_conn *connection;

	if (passage->protocol & INSIDE_IPV4) {
		tuple.ipv4.saddr = passage->source.word[3];
		tuple.ipv4.daddr = passage->destination.word[3];
		*(word *)&tuple.ipv4.sport = passage->ports;
		size = sizeof tuple.ipv4;
	} else {
		copy_words(&tuple.ipv6.saddr, &passage->source, 16);
		copy_words(&tuple.ipv6.daddr, &passage->destination, 16);
		*(word *)&tuple.ipv6.sport = passage->ports;
	}
	connection = is_skb ? bpf_skb_ct_lookup(ctx, &tuple, size, &options, sizeof options) :
			      bpf_xdp_ct_lookup(ctx, &tuple, size, &options, sizeof options);
	if (!connection)
		return 0;
	status = *(const volatile __u32 *)((const char *)connection + STATUS_OFFSET);
	status &= STATUS_ASSURED | STATUS_CONFIRMED | STATUS_KERNEL;
	if (status == (STATUS_ASSURED | STATUS_CONFIRMED) &&
	    (next_header == PROTOCOL_UDP ||
	     *((const volatile __u8 *)connection + TCP_STATE_OFFSET) == TCP_ESTABLISHED)) {
		found = 1 + options.direction;
		if (keeps)
			bpf_ct_change_timeout(connection, timeout);
	}
	bpf_ct_release(connection);
	return found;
}

/* Returns the timeout of a connection in milliseconds after a packet, as the kernel would set it. If only one
 * end of a TCP connection sends, that is the shorter timeout. */
inline_always __u32 timeout_of(const struct passage *passage, __u32 now)
{
	struct passage back;
	const struct passed *passed;

	if ((passage->protocol & 0xff) == PROTOCOL_UDP)
		return RULESET.udp_timeout;
	back.source = passage->destination;
	back.destination = passage->source;
	back.ports = passage->ports << 16 | passage->ports >> 16;
	back.protocol = passage->protocol;
	back.arrival = passage->departure;
	back.departure = passage->arrival;
	passed = bpf_map_lookup_elem(&PASSED, &back);
	if (passed && now - passed->seen < BOTH_ENDS_TICKS)
		return RULESET.tcp_timeout;
	return RULESET.unacknowledged_timeout;
}

inline_always int is_trackable(__u32 protocol)
{
	__u32 next_header = protocol & ~INSIDE_IPV4;

	return next_header < 32 && (1 << next_header & (1 << PROTOCOL_TCP | 1 << PROTOCOL_UDP));
}

/* Returns whether the program may forward the flow's packet with these TCP flags (struct plan): no rule uses
 * the packet, or the rules have accepted an earlier packet of the flow. */
verified_once int is_accepted(CONTEXT *ctx, const struct flow *flow, __u32 arrival, __u32 departure,
			      __u32 flags)
{
	__u32 generation = RULESET.generation, now = bpf_jiffies64(), found;
	struct passed *passed;
	struct passage passage;

	if (!flow)
		return 0;
	if (flow->filter == UNFILTERED)
		return 1;
	passage.protocol = flow->protocol;
	if (!HAS_CONNTRACK || !generation || !is_trackable(passage.protocol) || (flags & flow->stops))
		return 0;
	passage.source = flow->source;
	passage.destination = flow->destination;
	passage.ports = flow->ports;
	passage.arrival = arrival;
	passage.departure = departure;
	passed = bpf_map_lookup_elem(&PASSED, &passage);
	if (!passed || passed->generation != generation)
		return 0;
	found = find_connection(ctx, &passage, timeout_of(&passage, now), 1, IS_SKB);
	if (!found || passed->direction != found - 1)
		return 0;
	passed->seen = now;
	return 1;
}

/* Stores the flow of a packet that leaves by an interface and that the packet filter has accepted. */
static __attribute__((noinline)) int note_passage(struct __sk_buff *skb)
{
	struct passed passed = { .generation = RULESET.generation, .seen = bpf_jiffies64() };
	struct passage passage = { .arrival = skb->ingress_ifindex, .departure = skb->ifindex };
	struct ipv6 header;
	__u32 offset = IPV6_HEADER, found;
	__u8 flags;

	if (!HAS_CONNTRACK || !passed.generation || !passage.arrival || passage.arrival == passage.departure ||
	    (passage.arrival != TUNNEL_DEVICE && passage.departure != TUNNEL_DEVICE))
		return 0;
	if (skb->protocol == cpu_to_be16(ETH_P_IP)) {
		struct ipv4 *ipv4 = (void *)&header;

		if (bpf_skb_load_bytes_relative(skb, 0, &header, IPV4_HEADER, BPF_HDR_START_NET) ||
		    ipv4->version != 0x45 || (ipv4->fragment & cpu_to_be16(IS_FRAGMENT)))
			return 0;
		map(&passage.source, ipv4->source);
		map(&passage.destination, ipv4->destination);
		passage.protocol = ipv4->protocol | INSIDE_IPV4;
		offset = IPV4_HEADER;
	} else if (skb->protocol == cpu_to_be16(ETH_P_IPV6)) {
		if (bpf_skb_load_bytes_relative(skb, 0, &header, IPV6_HEADER, BPF_HDR_START_NET))
			return 0;
		passage.source = header.source;
		passage.destination = header.destination;
		passage.protocol = header.next_header;
	}
	if (!is_trackable(passage.protocol) ||
	    bpf_skb_load_bytes_relative(skb, offset, &passage.ports, 4, BPF_HDR_START_NET))
		return 0;
	if ((passage.protocol & 0xff) == PROTOCOL_TCP &&
	    (bpf_skb_load_bytes_relative(skb, offset + 13, &flags, 1, BPF_HDR_START_NET) || flags_of(flags)))
		return 0;
	found = find_connection(skb, &passage, 0, 0, 1);
	if (!found)
		return 0;
	passed.direction = found - 1;
	bpf_map_update_elem(&PASSED, &passage, &passed, BPF_ANY);
	return 0;
}

/* Notes which flows the packet filter has accepted, see note_passage(). Lets every packet continue. */
SEC("classifier") int note(struct __sk_buff *skb)
{
	note_passage(skb);
	return -1;
}
