/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * What the programs of the fast path know: the shapes of their maps, which carnet alone writes
 * (crates/linux/src/fast_path), and of what they note themselves.
 */
#pragma once

#include "helpers.h"

/* Not in every <linux/...> that has the rest. */
#define FAMILY_INET 2
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
#define IPV4_HEADER 20
/* Of the home agent (RFC 5555 4.1, 8). */
#define HOME_AGENT_PORT 4191
#define FRAGMENT_HEADER 8
/* Beside a protocol number: what it is about comes in fragments. */
#define IN_FRAGMENTS 0x100
/* Beside an interface: the packet came in a tunnel. */
#define IN_TUNNEL 0x80000000
/* Tunnel Hop Limit (RFC 2473 6.3, RFC 3963 5.5). */
#define TUNNEL_HOP_LIMIT 64
/* Paths of one binding: the current one and those from which packets are still accepted. */
#define PATHS 4
/* Rules by which the packets of one binding are distributed among its paths. */
#define RULES_MAX 8
/* Different lengths of prefixes at one end. */
#define LENGTHS_MAX 16
/* Flows remembered on each CPU, a power of two. */
#define FLOWS_MAX 2048
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

/* The two ends of a tunnel. IPv4 addresses are IPv4-mapped ones: outside is IPv4 then, and with ports UDP. */
struct path {
	struct address local;
	struct address remote;
	__u32 ports; /* of UDP, the local and the remote one, each in network byte order; else 0 */
	__u32 interface; /* by which alone packets come and go, or 0 */
};

/* One binding, seen from either end. `paths` from 0 to `accepted` are taken packets from. Those from 0 to `transmit` are
 * sent to: the first, or which of them the RULES say. */
struct binding {
	struct path paths[PATHS];
	__u32 mtu[PATHS]; /* the largest inner packet */
	__u32 accepted;
	__u32 transmit;
	__u32 slot;
	__u32 rules; /* see RULES, 0 for none */
};

/* Bits of `fields`: what a rule looks at. */
#define FIELD_SOURCE 1
#define FIELD_DESTINATION 2
#define FIELD_SPI 4
#define FIELD_LABEL 8
#define FIELD_SOURCE_PORT 16
#define FIELD_DESTINATION_PORT 32
#define FIELD_CLASS 64
#define FIELD_NEXT_HEADER 128

/* FlowAction. */
enum action {
	FAILOVER = 0,
	BALANCE = 1,
	DUPLICATE = 2,
};

/* Which packets take which paths (DistributionRule). From and to, both included; in the machine's byte order. */
struct rule {
	__u64 source[4]; /* high and low half of the first address, then of the last */
	__u64 destination[4];
	__u64 known_by[PATHS]; /* what a path is known by, whatever its addresses */
	__u32 weights[PATHS];
	__u32 label[2];
	__u32 spi[2];
	__u16 source_port[2];
	__u16 destination_port[2];
	__u8 class[2]; /* differentiated services, six bits */
	__u8 next_header[2];
	__u8 paths[PATHS];
	__u8 count; /* of paths */
	__u8 action;
	__u16 fields;
	__u32 zero;
};

struct rules {
	struct rule rule[RULES_MAX];
	__u32 count;
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

/* What a tunnel puts inner packets into. */
enum outside {
	IN_IPV6 = 0,
	IN_IPV4 = 1, /* RFC 4213, RFC 5555 */
	IN_UDP = 2, /* in IPv4: RFC 5555 */
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
	PASS_POLICY,
	PASS_BURST,
	PASS_CHECKSUM,
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

/* By a number that each set of them has for itself, so that a binding and its rules change at once. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct rules);
} RULES SEC(".maps");

/* By slot, VERSIONS_MAX of them: another number after each change of a binding in one of the slots that share it, and what
 * is remembered of these ends. With many bindings some share one so that all numbers stay in the processor's cache: a number
 * for each would be one more access to memory for a packet. */
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

/* By slot, or by slot and path, TRAFFIC_MAX for each CPU; see counter(). One after the other: in a map of the kernel's own kind
 * for that, each counter has a pointer besides, which with many of them is in no cache. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct traffic);
} TRAFFIC SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OUTCOMES);
	__type(key, __u32);
	__type(value, __u64);
} COUNTS SEC(".maps");

/* Another one after each change of routes, rules, addresses, neighbours or prefixes. Of each section with data there is a map
 * by that name; what is in it needs no lookup. */
volatile __u32 GENERATION SEC(".data.generation") = 0;

/* Set before the programs are loaded: the index of the tunnel device, the key of outer flow labels (and of what distributes
 * conversations), how many counters of TRAFFIC a slot has, PATHS or 1, and how many there are for each CPU. */
const volatile __u32 TUNNEL_DEVICE = 0;
const volatile __u64 FLOW_LABEL_KEY = 0;
const volatile __u32 COUNTERS = 1;
const volatile __u32 TRAFFIC_MAX = 1;
/* A power of two; likewise. */
const volatile __u32 VERSIONS_MAX = 1;
/* Time is counted in ticks of the kernel (bpf_jiffies64): to read them is one instruction, where a clock is a call. How many
 * are a second is set before the programs are loaded. How long the kernel's word is remembered: a second. */
const volatile __u32 SECOND = 100;
#define FLOW_TICKS SECOND
/* Whether carnet wants to know where packets go that take the tunnel to the home agent (SOUGHT). */
const volatile __u32 SEEKS = 0;

/* Where new flows of a mobile router went since carnet has looked: it asks there for direct routes. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256);
	__type(key, struct address);
	__type(value, __u32);
} SOUGHT SEC(".maps");

/* The Ethernet header of what leaves, at the end of its room, so that its last eight octets are aligned as they are in a
 * packet whose IPv6 header is. */
struct link {
	__u8 zeros[2];
	__u8 header[14];
} __attribute__((aligned(8)));

/* Where packets go that are alike: addresses, protocol, ports, traffic class and flow label are the same, and so is the
 * interface. All that the kernel's routing looks at, so that what it said of one holds for the others, for as long as
 * GENERATION stays and for a second at most; and what the binding said, for as long as its version stays. */
struct flow {
	struct address source;
	struct address destination;
	struct path path; /* encapsulation: to be sent on; decapsulation: the one that it came on */
	__u32 asked; /* in ticks */
	__u32 generation;
	__be32 first; /* without ECN */
	__u32 ports;
	__u32 arrival; /* interface, perhaps with IN_TUNNEL */
	__u32 protocol; /* perhaps with IN_FRAGMENTS */
	__u32 slot;
	__u32 version; /* of VERSIONS, from before the binding was looked up */
	__u32 counter; /* in TRAFFIC */
	__be32 label; /* the outer flow label */
	__u32 departure; /* interface */
	__u32 mtu; /* of the longest inner packet, as tunnel and way have it */
	__u8 may_leave; /* by this program: XDP wants to know the neighbour, and goes to PORTS only */
	__u8 outside; /* enum outside */
	struct link link; /* where the neighbour is known */
	struct address next_hop; /* perhaps IPv4-mapped; unspecified where only the kernel knows */
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

