/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the tc and the XDP programs of the fast path have in common: the maps, and the decisions.
 *
 * The fast path is an accelerator of the slow path (crates/station/src/forwarding). It takes the common packets
 * of a tunnel and does with them just what the kernel and the slow path together would do; whatever is not common
 * it leaves alone, and the kernel leads it to the slow path as if there were no fast path. So nothing here drops a
 * packet or answers one, and everything here may fail without harm. Left to the slow path are in particular: hop
 * limits that run out, packets too large for the path (Packet Too Big, outer fragments), TCP SYN (the slow path
 * clamps the maximum segment size), extension headers, tunnels in tunnels, congestion marks that cannot be passed
 * on (RFC 6040 4.2), packets that are not the binding's, and what the kernel would not route into the tunnel.
 *
 * Routing is the kernel's. bpf_fib_lookup asks its tables and rules as the slow path's packets would meet them: an
 * inner packet must be routed to the tunnel device, an outer packet and a decapsulated one are routed as coming from
 * there. An operator's own rules for these hold on both paths; of outer packets that arrive the kernel is not asked.
 * Neither netfilter nor IPsec policies (xfrm) see packets of the fast path.
 *
 * A home agent with many bindings remembers more than flows: ways.h.
 *
 * The maps are written by carnet only, one value for a change: a packet sees a binding before a handover or after
 * it, nothing between.
 */
#pragma once

#include "helpers.h"

#ifndef MAY_LEAVE
#error "expected MAY_LEAVE(ifindex, result): whether a packet may be sent there, `result` being bpf_fib_lookup's"
#endif

/* Not in every <linux/...> that has the rest. */
#define FAMILY_INET6 10
#define PROTOCOL_HOP_BY_HOP 0
#define PROTOCOL_TCP 6
#define PROTOCOL_UDP 17
#define PROTOCOL_DCCP 33
#define PROTOCOL_IPV6 41
#define PROTOCOL_ROUTING 43
#define PROTOCOL_FRAGMENT 44
#define PROTOCOL_ESP 50
#define PROTOCOL_SCTP 132
#define PROTOCOL_MOBILITY 135
#define PROTOCOL_UDP_LITE 136
#define PROTOCOL_DESTINATION_OPTIONS 60
#define TCP_SYN 0x02

#define IPV6_HEADER 40
#define TCP_HEADER 20
#define UDP_HEADER 8
#define FRAGMENT_HEADER 8
/* Beside a protocol number: what it is about comes in fragments. */
#define IN_FRAGMENTS 0x100
/* Beside an interface: the packet came in a tunnel. */
#define IN_TUNNEL 0x80000000
/* Tunnel Hop Limit (RFC 2473 6.3, RFC 3963 5.5). */
#define TUNNEL_HOP_LIMIT 64
/* Paths of one binding: the current one and those from which packets are still accepted. */
#define PATHS 4
/* Different lengths of prefixes at one end. */
#define LENGTHS_MAX 16
/* Flows remembered on each CPU, a power of two. */
#define FLOWS_MAX 2048
/* How long the kernel's word is remembered. */
#define FLOW_NANOSECONDS 1000000000ULL
#define ECN cpu_to_be32(3 << 20)

/* Which end of a tunnel this station is (TunnelEnd). */
enum end {
	MOBILE_ROUTER = 0,
	HOME_AGENT = 1,
	ENDS = 2,
};

/* What is done with packets that come in on an interface. */
#define ENCAPSULATE_FROM 1 /* on the mobile network's links: packets from it go into the tunnel */
#define DECAPSULATE_CARE_OF 2 /* on uplinks: what the home agent sends to a care-of address */
#define AGENT 4 /* at the home agent: packets to a mobile network, and packets out of a tunnel */

struct address {
	__u32 word[4];
} __attribute__((aligned(8)));

struct ipv6 {
	__be32 first; /* version, traffic class, flow label */
	__be16 payload_length;
	__u8 next_header;
	__u8 hop_limit;
	struct address source;
	struct address destination;
};

struct path {
	struct address local;
	struct address remote;
};

/* One binding, seen from either end. `paths` from 0 to `accepted` are taken packets from, `paths[0]` is sent to if
 * `transmit` is set. */
struct binding {
	struct path paths[PATHS];
	__u32 accepted;
	__u32 transmit;
	__u32 mtu; /* the largest inner packet */
	__u32 slot;
	__u32 version; /* see VERSIONS */
	__u32 zero;
};

/* A prefix of a mobile network or, 128 long, a home address. In the machine's byte order, host bits zero. */
struct prefix {
	__u64 high;
	__u64 low;
	__u32 length;
	__u32 end;
};

/* The lengths of all prefixes of an end, the longest first. */
struct lengths {
	__u32 count;
	__u32 length[LENGTHS_MAX];
};

struct traffic {
	__u64 encapsulated_packets;
	__u64 encapsulated_octets;
	__u64 decapsulated_packets;
	__u64 decapsulated_octets;
};

/* What became of a packet that looked like one of ours. The names are those of `FastPathCount`. */
enum outcome {
	TAKEN = 0,
	PASS_HOP_LIMIT,
	PASS_SCOPE,
	PASS_EXTENSION,
	PASS_SYN,
	PASS_TOO_BIG,
	PASS_NO_PATH,
	PASS_OUTER_SOURCE,
	PASS_INNER_SOURCE,
	PASS_CONGESTION,
	PASS_MALFORMED,
	PASS_ROUTE,
	PASS_NEIGHBOUR,
	FAILED, /* dropped: it was changed half-way when the kernel refused */
	OUTCOMES,
	NOT_OURS, /* not counted */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, struct prefix);
	__type(value, __u32);
} PREFIXES SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct binding);
} BINDINGS SEC(".maps");

/* By slot: another number after each change of the binding, never that of another binding, 0 for none. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, __u32);
} VERSIONS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, ENDS);
	__type(key, __u32);
	__type(value, struct lengths);
} LENGTHS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct traffic);
} TRAFFIC SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OUTCOMES);
	__type(key, __u32);
	__type(value, __u64);
} COUNTS SEC(".maps");

/* Another one after each change of routes, rules, addresses, neighbours or prefixes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} GENERATION SEC(".maps");

/* Set before the programs are loaded: the index of the tunnel device, and the key of outer flow labels. */
const volatile __u32 TUNNEL_DEVICE = 0;
const volatile __u64 FLOW_LABEL_KEY = 0;

/* Where packets go that are alike: addresses, protocol, ports, traffic class and flow label are the same, and so is the
 * interface. All that the kernel's routing looks at, so that what it said of one holds for the others, for as long as
 * GENERATION stays and for a second at most; and what the binding said, for as long as its version stays. */
struct flow {
	struct address source;
	struct address destination;
	struct path path; /* encapsulation: to be sent on; decapsulation: the one that it came on */
	__u64 asked;
	__u32 generation;
	__be32 first; /* without ECN */
	__u32 ports;
	__u32 arrival; /* interface, perhaps with IN_TUNNEL */
	__u32 protocol; /* perhaps with IN_FRAGMENTS */
	__u32 slot;
	__u32 version;
	__be32 label; /* the outer flow label */
	__u32 departure; /* interface */
	__u32 mtu; /* of the longest inner packet, as tunnel and way have it */
	__u8 may_leave; /* by this program: XDP wants to know the neighbour, and goes to PORTS only */
	__u8 zero;
	__u8 smac[6];
	__u8 dmac[6];
	__u8 zeros[2];
	struct address next_hop;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FLOWS_MAX);
	__type(key, __u32);
	__type(value, struct flow);
} FLOWS SEC(".maps");

/* Whose link-layer addresses are in use, and when the kernel was asked last: it does not see these packets, so carnet
 * tells it that these neighbours are to be looked after. */
struct neighbour {
	struct address address;
	__u32 ifindex;
	__u32 zero;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct neighbour);
	__type(value, __u64);
} NEIGHBOURS SEC(".maps");

/* What is known of a packet that looks like one of ours. */
struct plan {
	struct ipv6 outer; /* encapsulation: as it will be */
	struct ipv6 inner; /* as it came in */
	struct flow *flow;
	/* As the kernel's rules see them: the protocol is that behind a fragment header, and then there are no ports. */
	__u32 protocol;
	__u32 ports;
	__u32 generation; /* before anything was asked */
	__u32 routes; /* likewise */
	__u32 syn; /* whether it opens a TCP connection */
	__be32 first; /* decapsulation: of the inner header as it leaves */
};

inline_always void count(enum outcome outcome)
{
	__u32 key = outcome;
	__u64 *counter = bpf_map_lookup_elem(&COUNTS, &key);

	if (counter)
		(*counter)++;
}

inline_always __u64 high(const struct address *address)
{
	return be64_to_cpu(*(const __u64 *)&address->word[0]);
}

inline_always __u64 low(const struct address *address)
{
	return be64_to_cpu(*(const __u64 *)&address->word[2]);
}

inline_always int same(const struct address *a, const struct address *b)
{
	return high(a) == high(b) && low(a) == low(b);
}

/* Unspecified, multicast, link-local or loopback. */
inline_always int is_special(const struct address *address)
{
	__u64 first = high(address);

	if ((first >> 56) == 0xff || (first >> 54) == 0x3fa)
		return 1;
	return first == 0 && low(address) <= 1;
}

/* The binding of the longest prefix that holds the address. Returns 0 where there is none. */
static __attribute__((noinline)) struct binding *binding_of(const struct address *address, __u32 end)
{
	struct lengths *lengths = bpf_map_lookup_elem(&LENGTHS, &end);
	struct prefix key;
	__u64 first, last;
	__u32 *number;

	if (!lengths)
		return 0;
	first = high(address);
	last = low(address);
	key.end = end;
	for (__u32 i = 0; i < LENGTHS_MAX; i++) {
		__u32 length;

		if (i >= lengths->count)
			return 0;
		length = lengths->length[i];
		if (length > 128)
			return 0;
		key.length = length;
		if (length >= 64) {
			key.high = first;
			key.low = length == 64 ? 0 : last & (~0ULL << (128 - length));
		} else {
			key.high = length == 0 ? 0 : first & (~0ULL << (64 - length));
			key.low = 0;
		}
		number = bpf_map_lookup_elem(&PREFIXES, &key);
		if (number)
			return bpf_map_lookup_elem(&BINDINGS, number);
	}
	return 0;
}

/* The outer flow label: the same keyed hash as the slow path's (RFC 6438 3), which checks it in quoted packets. */
inline_always __u32 flow_label(const struct ipv6 *inner)
{
	const __u64 key = FLOW_LABEL_KEY;
	__u64 words[5] = { low(&inner->source), high(&inner->source), low(&inner->destination),
			   high(&inner->destination), be32_to_cpu(inner->first) & 0xfffff };
	__u64 hash = key;
	__u32 label;

#pragma unroll
	for (int i = 0; i < 5; i++) {
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 29;
	}
	/* The high half of the label. */
	hash *= 0x9e3779b97f4a7c15ULL;
	hash ^= hash >> 29;
	hash = (hash + ((key << 32) | (key >> 32))) * 0xbf58476d1ce4e5b9ULL;
	label = hash >> 44;
	return label ? label : 1;
}

/* Whether the slow path has to look at what is behind the IPv6 header. */
inline_always int has_extension(__u8 next_header)
{
	return next_header == PROTOCOL_HOP_BY_HOP || next_header == PROTOCOL_ROUTING ||
	       next_header == PROTOCOL_DESTINATION_OPTIONS || next_header == PROTOCOL_MOBILITY;
}

/* Whether the first four octets are ports, or something that the kernel's rules take for them. */
inline_always int has_ports(__u8 next_header)
{
	return next_header == PROTOCOL_TCP || next_header == PROTOCOL_UDP || next_header == PROTOCOL_DCCP ||
	       next_header == PROTOCOL_ESP || next_header == PROTOCOL_SCTP || next_header == PROTOCOL_UDP_LITE;
}

/* Whether a Fragment header stands before the first fragment of a TCP segment, which may be a SYN. */
inline_always int is_first_of_tcp(const __u8 *fragment)
{
	return fragment[0] == PROTOCOL_TCP && !fragment[2] && !(fragment[3] & 0xf8);
}

inline_always __u32 length_of(const struct ipv6 *header)
{
	return IPV6_HEADER + be16_to_cpu(header->payload_length);
}

/* Asks the kernel for the way of a packet of this length that comes from an interface. */
inline_always long ask(void *ctx, struct bpf_fib_lookup *route, const struct ipv6 *header, __u32 protocol,
		       __u32 ports, __u32 length, __u32 ifindex)
{
	__builtin_memset(route, 0, sizeof *route);
	route->family = FAMILY_INET6;
	route->l4_protocol = protocol;
	route->sport = ((const __be16 *)&ports)[0];
	route->dport = ((const __be16 *)&ports)[1];
	route->tot_len = length;
	route->ifindex = ifindex;
	route->flowinfo = header->first & cpu_to_be32(0x0fffffff);
	__builtin_memcpy(route->ipv6_src, &header->source, 16);
	__builtin_memcpy(route->ipv6_dst, &header->destination, 16);
	return bpf_fib_lookup(ctx, route, sizeof *route, 0);
}

inline_always int is_forwarded(long result)
{
	return result == BPF_FIB_LKUP_RET_SUCCESS || result == BPF_FIB_LKUP_RET_NO_NEIGH;
}

/* The place where a flow is remembered, if it is. */
inline_always struct flow *place_of(const struct plan *plan)
{
	const struct ipv6 *inner = &plan->inner;
	__u64 hash = low(&inner->source) ^ (low(&inner->destination) << 1) ^ high(&inner->source) ^
		     (high(&inner->destination) >> 1) ^ (inner->first & ~ECN) ^ ((__u64)plan->ports << 32) ^
		     plan->protocol;
	__u32 index;

	hash *= 0x9e3779b97f4a7c15ULL;
	index = (hash >> 40) & (FLOWS_MAX - 1);
	return bpf_map_lookup_elem(&FLOWS, &index);
}

inline_always __u32 generation(void)
{
	__u32 zero = 0;
	__u32 *generation = bpf_map_lookup_elem(&GENERATION, &zero);

	return generation ? *generation : 0;
}

/* Whether the plan's packet belongs to the flow that is remembered in its place. */
inline_always int is_remembered(const struct plan *plan, __u32 arrival)
{
	const struct flow *flow = plan->flow;

	return same(&flow->source, &plan->inner.source) && same(&flow->destination, &plan->inner.destination) &&
	       flow->first == (plan->inner.first & ~ECN) && flow->ports == plan->ports &&
	       flow->protocol == plan->protocol && flow->arrival == arrival &&
	       flow->generation == plan->generation && bpf_ktime_get_coarse_ns() - flow->asked < FLOW_NANOSECONDS;
}

/* Whether the binding of a remembered flow is what it was. */
inline_always int is_current(const struct flow *flow)
{
	__u32 slot = flow->slot;
	__u32 *version = bpf_map_lookup_elem(&VERSIONS, &slot);

	return version && *version == flow->version;
}

/* Notes what the kernel and the binding said. */
inline_always void remember(struct plan *plan, const struct binding *binding, const struct bpf_fib_lookup *route,
			    long result, __u32 arrival)
{
	struct flow *flow = plan->flow;
	struct neighbour neighbour = {};
	__u64 now = bpf_ktime_get_coarse_ns();

	flow->source = plan->inner.source;
	flow->destination = plan->inner.destination;
	flow->first = plan->inner.first & ~ECN;
	flow->ports = plan->ports;
	flow->protocol = plan->protocol;
	flow->arrival = arrival;
	/* Without a neighbour the kernel does not tell the MTU, and will soon have more to say. */
	flow->generation = result == BPF_FIB_LKUP_RET_SUCCESS ? plan->generation : 0;
	flow->asked = now;
	flow->slot = binding->slot;
	flow->version = binding->version;
	flow->departure = route->ifindex;
	flow->may_leave = MAY_LEAVE(route->ifindex, result);
	__builtin_memcpy(&flow->next_hop, route->ipv6_dst, 16);
	if (result == BPF_FIB_LKUP_RET_SUCCESS) {
		__builtin_memcpy(flow->smac, route->smac, 6);
		__builtin_memcpy(flow->dmac, route->dmac, 6);
		neighbour.address = flow->next_hop;
		neighbour.ifindex = flow->departure;
		bpf_map_update_elem(&NEIGHBOURS, &neighbour, &now, BPF_ANY);
	}
}

#include "ways.h"

/* Looks for the binding and the way of a packet that came in from a mobile network or for one. */
static __attribute__((noinline)) enum outcome find_encapsulation(void *ctx, __u32 roles, struct plan *plan,
								 __u32 length, __u32 ifindex)
{
	const struct ipv6 *inner = &plan->inner;
	struct binding *binding = 0;
	struct ipv6 *outer = &plan->outer;
	struct bpf_fib_lookup route;
	__be32 label;
	long result;
	int is_agents;

	if (roles & AGENT)
		binding = binding_of(&inner->destination, HOME_AGENT);
	is_agents = binding != 0;
	if (!binding && (roles & ENCAPSULATE_FROM)) {
		binding = binding_of(&inner->source, MOBILE_ROUTER);
		/* From one of the mobile network's links to another. */
		if (binding && binding_of(&inner->destination, MOBILE_ROUTER))
			return NOT_OURS;
	}
	if (!binding)
		return NOT_OURS;
	if (is_special(&inner->destination) || is_special(&inner->source))
		return PASS_SCOPE;
	/* Tunnels in tunnels are counted, and a fragment of our own does not show how deep it is (RFC 2473 4.1). */
	if (has_extension(inner->next_header) || inner->next_header == PROTOCOL_IPV6)
		return PASS_EXTENSION;
	if (!binding->transmit)
		return PASS_NO_PATH;
	if (same(&inner->source, &binding->paths[0].local))
		return PASS_EXTENSION;

	/* Would the kernel route it into the tunnel? */
	result = ask(ctx, &route, inner, plan->protocol, plan->ports, 0, ifindex);
	if (!is_forwarded(result) || route.ifindex != TUNNEL_DEVICE)
		return PASS_ROUTE;
	label = cpu_to_be32(flow_label(inner));
	outer->first = (inner->first & cpu_to_be32(0xfff00000)) | label;
	outer->next_header = PROTOCOL_IPV6;
	outer->source = binding->paths[0].local;
	outer->destination = binding->paths[0].remote;
	result = ask(ctx, &route, outer, PROTOCOL_IPV6, 0, length + IPV6_HEADER, TUNNEL_DEVICE);
	if (result == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return PASS_TOO_BIG;
	if (!is_forwarded(result) || route.ifindex == TUNNEL_DEVICE)
		return PASS_ROUTE;
	remember(plan, binding, &route, result, ifindex);
	plan->flow->label = label;
	plan->flow->path = binding->paths[0];
	plan->flow->mtu = route.mtu_result - IPV6_HEADER;
	if (plan->flow->mtu > binding->mtu)
		plan->flow->mtu = binding->mtu;
	if (is_agents && plan->flow->generation && plan->flow->may_leave)
		keep_way(&inner->destination, plan, ifindex, 1);
	return TAKEN;
}

/* Decides about a packet that came in from a mobile network or for one. `plan->inner` and what look_inside() tells
 * are filled in; `length` is that of the longest packet that leaves, `ifindex` where it came in. */
inline_always enum outcome plan_encapsulation(void *ctx, __u32 roles, struct plan *plan, __u32 length,
					      __u32 ifindex)
{
	plan->generation = generation();
	plan->routes = routes();
	if (!(roles & AGENT) || !take_way(plan, ifindex)) {
		plan->flow = place_of(plan);
		if (!plan->flow)
			return NOT_OURS;
		if (!is_remembered(plan, ifindex) || !is_current(plan->flow)) {
			enum outcome outcome = find_encapsulation(ctx, roles, plan, length, ifindex);

			if (outcome != TAKEN)
				return outcome;
		}
	}
	if (!plan->flow->may_leave)
		return PASS_NEIGHBOUR;
	if (plan->inner.hop_limit <= 1)
		return PASS_HOP_LIMIT;
	if (plan->syn)
		return PASS_SYN;
	if (length > plan->flow->mtu || length_of(&plan->inner) > 0xffff)
		return PASS_TOO_BIG;
	/* RFC 6040 4.1, normal mode: the ECN field is copied; so is the DSCP (RFC 2983 uniform model). */
	plan->outer.first = (plan->inner.first & cpu_to_be32(0xfff00000)) | plan->flow->label;
	plan->outer.payload_length = cpu_to_be16(length_of(&plan->inner));
	plan->outer.next_header = PROTOCOL_IPV6;
	plan->outer.hop_limit = TUNNEL_HOP_LIMIT;
	plan->outer.source = plan->flow->path.local;
	plan->outer.destination = plan->flow->path.remote;
	return TAKEN;
}

/* Whether packets between these ends are accepted for the binding (RFC 6275 10.4.5). */
inline_always int is_accepted(const struct binding *binding, const struct ipv6 *outer)
{
#pragma unroll
	for (__u32 i = 0; i < PATHS; i++) {
		if (i < binding->accepted && same(&binding->paths[i].local, &outer->destination) &&
		    same(&binding->paths[i].remote, &outer->source))
			return 1;
	}
	return 0;
}

/* Whose packets come out of a tunnel, and whether at the home agent's end. 0 where the inner packet belongs to nobody. */
inline_always struct binding *receiver(__u32 roles, const struct ipv6 *inner, int *is_agents)
{
	struct binding *binding = 0;

	if (roles & AGENT)
		binding = binding_of(&inner->source, HOME_AGENT);
	*is_agents = binding != 0;
	if (!binding && (roles & DECAPSULATE_CARE_OF)) {
		binding = binding_of(&inner->destination, MOBILE_ROUTER);
		/* Nobody outside sends from an address inside. */
		if (binding && binding_of(&inner->source, MOBILE_ROUTER))
			return 0;
	}
	return binding;
}

/* Looks for the binding and the way of a packet that came in a tunnel. */
static __attribute__((noinline)) enum outcome find_decapsulation(void *ctx, __u32 roles, struct plan *plan,
								 __u32 length, __u32 ifindex)
{
	const struct ipv6 *inner = &plan->inner;
	int is_agents = 0;
	struct binding *binding = receiver(roles, inner, &is_agents);
	struct bpf_fib_lookup route;
	long result;

	if (!binding && (roles & DECAPSULATE_CARE_OF) && binding_of(&inner->destination, MOBILE_ROUTER))
		return PASS_INNER_SOURCE;
	if (!binding)
		return NOT_OURS;
	if (!is_accepted(binding, &plan->outer))
		return PASS_OUTER_SOURCE;
	if ((be32_to_cpu(inner->first) >> 28) != 6)
		return PASS_MALFORMED;
	if (is_special(&inner->source) || is_special(&inner->destination))
		return PASS_SCOPE;
	if (has_extension(inner->next_header))
		return PASS_EXTENSION;
	result = ask(ctx, &route, inner, plan->protocol, plan->ports, length, TUNNEL_DEVICE);
	if (result == BPF_FIB_LKUP_RET_FRAG_NEEDED)
		return PASS_TOO_BIG;
	if (!is_forwarded(result) || route.ifindex == TUNNEL_DEVICE)
		return PASS_ROUTE;
	remember(plan, binding, &route, result, ifindex | IN_TUNNEL);
	plan->flow->path.local = plan->outer.destination;
	plan->flow->path.remote = plan->outer.source;
	plan->flow->mtu = route.mtu_result;
	if (is_agents && plan->flow->generation) {
		keep_way(&inner->source, plan, 0, 0);
		keep_destination(plan);
	}
	return TAKEN;
}

/* Decides about a packet with an IPv6 header in an IPv6 header. `plan->outer`, `inner` and what look_inside() tells are
 * filled in; `length` is that of the longest inner packet, `ifindex` where it came in. */
inline_always enum outcome plan_decapsulation(void *ctx, __u32 roles, struct plan *plan, __u32 length,
					      __u32 ifindex)
{
	const struct ipv6 *outer = &plan->outer;
	const struct ipv6 *inner = &plan->inner;
	__u32 inner_ecn, outer_ecn;

	plan->generation = generation();
	plan->routes = routes();
	if (!(roles & AGENT) || !take_destination(plan)) {
		plan->flow = place_of(plan);
		if (!plan->flow)
			return NOT_OURS;
		if (!is_remembered(plan, ifindex | IN_TUNNEL) || !is_current(plan->flow) ||
		    !same(&plan->flow->path.local, &outer->destination) ||
		    !same(&plan->flow->path.remote, &outer->source)) {
			enum outcome outcome = find_decapsulation(ctx, roles, plan, length, ifindex);

			if (outcome != TAKEN)
				return outcome;
		}
	}
	if (!plan->flow->may_leave)
		return PASS_NEIGHBOUR;
	/* What follows the inner packet inside the outer one is the slow path's to cut off. */
	if (length_of(inner) != be16_to_cpu(outer->payload_length))
		return PASS_MALFORMED;
	if (inner->hop_limit <= 1)
		return PASS_HOP_LIMIT;
	if (plan->syn)
		return PASS_SYN;
	if (length > plan->flow->mtu)
		return PASS_TOO_BIG;

	/* RFC 6040 figure 4. ECN is bits 20 and 21 of the first word: 1 is ECT(1), 2 ECT(0), 3 CE. */
	inner_ecn = (be32_to_cpu(inner->first) >> 20) & 3;
	outer_ecn = (be32_to_cpu(outer->first) >> 20) & 3;
	if (inner_ecn == 0 && outer_ecn == 3)
		return PASS_CONGESTION;
	plan->first = inner->first;
	if (inner_ecn != 0 && (outer_ecn == 3 || (outer_ecn == 1 && inner_ecn == 2)))
		plan->first = (inner->first & ~ECN) | cpu_to_be32(outer_ecn << 20);
	return TAKEN;
}

inline_always void count_encapsulated(const struct plan *plan, __u32 packets, __u32 octets)
{
	__u32 slot = plan->flow->slot;
	struct traffic *traffic = bpf_map_lookup_elem(&TRAFFIC, &slot);

	if (traffic) {
		traffic->encapsulated_packets += packets;
		traffic->encapsulated_octets += octets;
	}
}

inline_always void count_decapsulated(const struct plan *plan, __u32 packets, __u32 octets)
{
	__u32 slot = plan->flow->slot;
	struct traffic *traffic = bpf_map_lookup_elem(&TRAFFIC, &slot);

	if (traffic) {
		traffic->decapsulated_packets += packets;
		traffic->decapsulated_octets += octets;
	}
}
