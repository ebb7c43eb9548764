/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Cached next hops of a home agent with many bindings (`ways`). For each mobile network, one cache line has
 * the care-of address and the next hop. Without it, a packet needs four lookups in tables that fit into no
 * cache.
 *
 * A way contains the last result of the lookups of the binding and of the kernel's route. It is valid for
 * every packet to the network, with any source, ports or traffic class. So the programs use ways only while
 * no rule or route of the kernel depends on these fields: carnet checks this and sets POLICY. A way becomes
 * invalid when ROUTES or the version of the binding's slot changes, and after WAY_TICKS. If a /64 contains a
 * longer route or prefix (CROWDED), a way is for a single address.
 *
 * Only bindings that send all packets through one tunnel in IPv6 have ways. Packets of other bindings use
 * flows.
 *
 * Each CPU has its own ways, so that no CPU reads a way while another CPU writes it.
 */
#pragma once

#include "flow.h"

/* Number of ways for each CPU, a power of two. carnet sets it before it loads the programs. */
const volatile __u32 WAYS_MAX = 1;
#define WAY_TICKS (60 * SECOND)
/* Time for which a next hop (exit) is valid. After a lookup carnet keeps the neighbour reachable for longer
 * (NEIGHBOUR_REPORT_INTERVAL). */
#define EXIT_TICKS (4 * SECOND)
/* Number of successive cache entries that the program searches for a way. */
#define WAY_TRIES 4
#define EXITS_MAX 64
/* Number of successive cache entries that the program searches for an exit. */
#define EXIT_TRIES 4
#define DESTINATIONS_MAX 1024

/* Bits of POLICY: the kernel routes by interface and destination only, first for arriving packets, then for
 * packets that come out of the TUN device. */
#define POLICY_ARRIVING 1
#define POLICY_LEAVING 2
/* Bit of POLICY: CROWDED contains all networks with longer routes or prefixes. */
#define POLICY_NETWORKS 4

/* Bit of a way's kind: the way is for a whole /64. */
#define WAY_OF_NETWORK 1
/* Bit of a way's kind: the way has a next hop for packets; otherwise it only has the binding. */
#define WAY_SENDS 2

struct way {
	struct address address; /* address inside the mobile network */
	struct address remote;
	__u32 routes; /* value of ROUTES before the lookup */
	__u32 version; /* number from VERSIONS before the lookup */
	__u32 slot;
	__u32 arrival; /* interface of arrival */
	__u32 asked; /* time of the lookup in ticks */
	__u16 mtu; /* length of the longest inner packet */
	__u8 exit;
	__u8 kind;
	__u64 zero;
} __attribute__((aligned(64)));

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	/* The kernel aligns such maps to a page, so that a way is one cache line. */
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct way);
} WAYS SEC(".maps");

/* Number that carnet changes after each change of routes, rules or addresses, and when a prefix moves from
 * one binding to another. It stays the same if only neighbours change, or a binding is added or removed. */
volatile __u32 ROUTES SEC(".data.routes") = 0;

/* Next hop that many ways share. It is valid until ROUTES changes. When GENERATION changes, and after
 * EXIT_TICKS, one packet looks it up again for all ways. */
struct exit {
	struct address local;
	struct address next_hop;
	struct link link;
	__u32 departure;
	__u32 routes;
	__u32 generation;
	__u32 asked;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EXITS_MAX);
	__type(key, __u32);
	__type(value, struct exit);
} EXITS SEC(".maps");

/* Cached next hops of packets that come out of a tunnel, by destination. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DESTINATIONS_MAX);
	__type(key, __u32);
	__type(value, struct flow);
} DESTINATIONS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} POLICY SEC(".maps");

/* Upper halves of addresses: each is a /64 that contains a longer route or prefix. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u32);
} CROWDED SEC(".maps");

inline_always __u32 policy(void)
{
	__u32 zero = 0;
	__u32 *bits = bpf_map_lookup_elem(&POLICY, &zero);

	return bits ? *bits : 0;
}

inline_always __u64 mixed(__u64 value)
{
	value *= 0x9e3779b97f4a7c15ULL;
	value ^= value >> 32;
	return value * 0xbf58476d1ce4e5b9ULL;
}

/* Returns one of this CPU's cache entries in which a way with this hash may be: the entry that the program
 * tries at attempt `try`. */
inline_always struct way *way_at(__u64 hash, __u32 try)
{
	__u32 index = bpf_get_smp_processor_id() * WAYS_MAX + (((hash >> 32) + try) & (WAYS_MAX - 1));

	return bpf_map_lookup_elem(&WAYS, &index);
}

inline_always __u64 hash_of(const struct address *address, int whole)
{
	return mixed(whole ? high(address) : high(address) ^ mixed(low(address)));
}

inline_always int is_way_to(const struct way *way, const struct address *address, int whole)
{
	if (high(&way->address) != high(address))
		return 0;
	return whole ? way->kind & WAY_OF_NETWORK :
		       !(way->kind & WAY_OF_NETWORK) && low(&way->address) == low(address);
}

inline_always int is_recent(const struct way *way, __u32 routes, __u32 now)
{
	return way->routes == routes && now - way->asked < WAY_TICKS;
}

inline_always int is_valid(const struct way *way, __u32 routes, __u32 now)
{
	return version_of(way->slot) == way->version && is_recent(way, routes, now);
}

/* Prefetches the way of an address. With many bindings the way is in no cache of the processor, and the
 * program can do other work until it arrives. */
inline_always void fetch_way(const struct address *address)
{
	const volatile struct way *way = way_at(hash_of(address, 1), 0);

	if (way)
		(void)way->kind;
}

/* Returns the way of an address, if it is cached and valid. */
inline_always struct way *find_way(const struct address *address, const struct plan *plan)
{
	for (int whole = 1; whole >= 0; whole--) {
		__u64 hash = hash_of(address, whole);

		for (__u32 try = 0; try < WAY_TRIES; try++) {
			struct way *way = way_at(hash, try);

			/* This cache entry was never used. */
			if (!way || !way->kind)
				break;
			if (is_way_to(way, address, whole)) {
				if (is_valid(way, plan->routes, plan->now))
					return way;
				break;
			}
		}
	}
	return 0;
}

/* Returns the cache entry for the way of an address: the entry that already has this way, otherwise a free or
 * invalid entry, otherwise the first entry. */
inline_always struct way *place_of_way(const struct address *address, int whole, __u32 routes, __u32 now)
{
	__u64 hash = hash_of(address, whole);
	struct way *place = 0;

	for (__u32 try = 0; try < WAY_TRIES; try++) {
		struct way *way = way_at(hash, try);

		if (!way)
			return 0;
		if (is_way_to(way, address, whole))
			return way;
		if (!place && (!way->kind || !is_recent(way, routes, now)))
			place = way;
		if (!way->kind)
			break;
	}
	return place ? place : way_at(hash, 0);
}

inline_always struct exit *exit_of(const struct way *way, __u32 routes)
{
	__u32 index = way->exit;
	struct exit *exit = bpf_map_lookup_elem(&EXITS, &index);

	return exit && exit->routes == routes ? exit : 0;
}

/* Stores the next hop of the flow's packets, which this station sends from the local end of a tunnel. Unless
 * `sends` is set, only reserves an entry for the local end, without a next hop. Returns the index of the
 * entry; EXITS_MAX if the table has no room. */
inline_always __u32 keep_exit(const struct flow *flow, __u32 routes, __u32 sends)
{
	const struct address *local = &flow->path.local;
	__u32 departure = sends ? flow->departure : 0;
	__u64 hash = low(local);

	if (sends)
		hash ^= mixed(low(&flow->next_hop) ^ departure);
	hash = mixed(hash) >> 32;
	for (__u32 try = 0; try < EXIT_TRIES; try++) {
		__u32 index = (hash + try) & (EXITS_MAX - 1);
		struct exit *exit = bpf_map_lookup_elem(&EXITS, &index);

		if (!exit)
			break;
		if (exit->routes == routes &&
		    (!same(&exit->local, local) || exit->departure != departure ||
		     (sends && !same(&exit->next_hop, &flow->next_hop))))
			continue;
		exit->local = *local;
		exit->departure = departure;
		exit->routes = routes;
		if (sends) {
			exit->next_hop = flow->next_hop;
			exit->link = flow->link;
			exit->generation = flow->generation;
			exit->asked = flow->asked;
		}
		return index;
	}
	return EXITS_MAX;
}

/* Stores the way of an address inside a mobile network, with the value of ROUTES before the flow's lookup. If
 * `sends` is set, the flow is for packets to the address; otherwise they come from the address. Returns
 * whether it has stored the way. */
verified_once int keep_way(const struct flow *flow, __u32 routes, __u32 sends)
{
	const struct address *address;
	__u32 bits = policy(), exit;
	struct way *way;
	__u64 network;
	int whole;

	if (!flow || !(bits & POLICY_ARRIVING))
		return 0;
	address = sends ? &flow->destination : &flow->source;
	network = *(const __u64 *)&address->word[0];
	whole = (bits & POLICY_NETWORKS) && !bpf_map_lookup_elem(&CROWDED, &network);
	way = place_of_way(address, whole, routes, flow->asked);
	if (!way)
		return 0;
	/* A packet that arrives over an older path of a binding must not replace the way over the current
	 * path. */
	if (!sends && is_way_to(way, address, whole) && is_valid(way, routes, flow->asked))
		return 0;
	exit = keep_exit(flow, routes, sends);
	if (exit >= EXITS_MAX)
		return 0;
	way->address = *address;
	way->remote = flow->path.remote;
	way->routes = routes;
	way->version = flow->version;
	way->slot = flow->slot;
	way->arrival = sends ? flow->arrival : 0;
	way->asked = flow->asked;
	way->mtu = flow->mtu > 0xffff ? 0xffff : flow->mtu;
	way->exit = exit;
	way->kind = (whole ? WAY_OF_NETWORK : 0) | (sends ? WAY_SENDS : 0);
	return 1;
}

/* Returns whether an address with a way may be special. If an address of a /64 has a way, this address is not
 * special. So no other address of the /64 is special, except in ::/8. */
inline_always int may_be_special(const struct address *address)
{
	return !(high(address) >> 56);
}

/* Prefetches the counters of a way, because with many bindings they are in no cache of the processor. */
inline_always void fetch_counters(const struct way *way)
{
	__u32 index = bpf_get_smp_processor_id() * TRAFFIC_MAX + counter(way->slot, 0);
	const volatile struct traffic *traffic = bpf_map_lookup_elem(&TRAFFIC, &index);

	if (traffic)
		(void)traffic->encapsulated_packets;
}

/* Composes the plan's flow from the way of the inner destination. Returns 0 if there is no such way. */
inline_always int take_way(struct plan *plan, __u32 arrival)
{
	const struct ipv6 *inner = &plan->inner;
	const struct way *way = find_way(&inner->destination, plan);
	const struct exit *exit;
	struct flow *flow;
	__u32 zero = 0;

	if (!way || !(way->kind & WAY_SENDS) || way->arrival != arrival)
		return 0;
	fetch_counters(way);
	exit = exit_of(way, plan->routes);
	flow = bpf_map_lookup_elem(&SCRATCH, &zero);
	if (!exit || !flow || exit->generation != plan->generation || plan->now - exit->asked >= EXIT_TICKS)
		return 0;
	if (may_be_special(&inner->destination) || is_special(&inner->source) || has_extension(inner->next_header) ||
	    inner->next_header == PROTOCOL_IPV6 || same(&inner->source, &exit->local))
		return 0;
	flow->path.local = exit->local;
	flow->path.remote = way->remote;
	/* Only tunnels in IPv6 have ways. An earlier lookup may have left another value. */
	flow->outside = IN_IPV6;
	flow->slot = way->slot;
	flow->counter = counter(way->slot, 0);
	flow->label = cpu_to_be32(flow_label(&inner->source, &inner->destination, inner->first));
	flow->departure = exit->departure;
	flow->mtu = way->mtu;
	flow->may_leave = 1;
	flow->stops = TCP_SYN;
	flow->next_hop = exit->next_hop;
	flow->link = exit->link;
	plan->flow = flow;
	return 1;
}

inline_always struct flow *destination_of(const struct address *destination)
{
	__u32 index = (mixed(low(destination) ^ high(destination)) >> 32) & (DESTINATIONS_MAX - 1);

	return bpf_map_lookup_elem(&DESTINATIONS, &index);
}

/* Sets the plan's flow for a packet that arrived in a tunnel. The way of the packet's source proves that the
 * binding may send the packet. The destination selects the next hop. */
inline_always int take_destination(struct plan *plan)
{
	const struct ipv6 *inner = &plan->inner;
	struct flow *flow = destination_of(&inner->destination);
	const struct way *way = find_way(&inner->source, plan);
	const struct exit *exit;

	if (!flow || !way || flow->generation != plan->generation ||
	    !same(&flow->destination, &inner->destination) ||
	    plan->now - flow->asked >= FLOW_TICKS)
		return 0;
	fetch_counters(way);
	exit = exit_of(way, plan->routes);
	if (!exit || !same(&exit->local, &plan->outer.ipv6.destination) ||
	    !same(&way->remote, &plan->outer.ipv6.source))
		return 0;
	if ((be32_to_cpu(inner->first) >> 28) != 6 || may_be_special(&inner->source) ||
	    has_extension(inner->next_header))
		return 0;
	flow->slot = way->slot;
	flow->counter = counter(way->slot, 0);
	plan->flow = flow;
	return 1;
}

/* Stores the next hop of the flow's packets, which arrived in a tunnel. */
inline_always void keep_destination(const struct flow *flow)
{
	struct flow *kept = destination_of(&flow->destination);

	if (kept && flow->may_leave && (policy() & POLICY_LEAVING))
		*kept = *flow;
}
