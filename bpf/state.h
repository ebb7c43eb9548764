/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Maps of the fast path: maps that only carnet writes (crates/linux/src/fast_path), and maps that the
 * programs write themselves.
 */
#pragma once

#include "helpers.h"

/* Constants that some versions of <linux/...> lack. */
#define FAMILY_INET 2
#define FAMILY_INET6 10
#define PROTOCOL_HOP_BY_HOP 0
#define PROTOCOL_IPV4 4
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
#define TCP_FIN 0x01
#define TCP_SYN 0x02
#define TCP_RST 0x04
#define TCP_ACK 0x10

#define IPV6_HEADER 40
#define TCP_HEADER 20
#define UDP_HEADER 8
#define IPV4_HEADER 20
/* Ports of the home agent (RFC 5555 4.1, 8). */
#define HOME_AGENT_PORT 4191
#define FRAGMENT_HEADER 8
/* Flag in a protocol number: the packet is fragmented. */
#define IN_FRAGMENTS 0x100
/* Flag in a protocol number: the inner packet is an IPv4 packet. It keeps the cached flows of IPv4 apart from
 * those of IPv6 packets with IPv4-mapped addresses, which no program forwards. */
#define INSIDE_IPV4 0x200
/* Flag in an interface index: the packet came through a tunnel. */
#define IN_TUNNEL 0x80000000
/* Tunnel Hop Limit (RFC 2473 6.3, RFC 3963 5.5). */
#define TUNNEL_HOP_LIMIT 64
/* Maximum number of paths of one binding: the current paths, and those from which it still accepts
 * packets. */
#define PATHS 4
/* Maximum number of rules that distribute the packets of one binding among its paths. */
#define RULES_MAX 8
/* Maximum number of different prefix lengths at one tunnel end (enum end). */
#define LENGTHS_MAX 16
/* Maximum number of cached flows on each CPU, a power of two. */
#define FLOWS_MAX 2048
#define ECN cpu_to_be32(3 << 20)

/* Role of this station at its end of a tunnel (TunnelEnd in Rust). */
enum end {
	MOBILE_ROUTER = 0,
	HOME_AGENT = 1,
	ENDS = 2,
};

/* Roles of an interface, by the packets that arrive at it. */
#define ENCAPSULATE_FROM 1 /* link of the mobile network: packets from there go into the tunnel */
/* Uplink: tunnelled packets of the home agent arrive there for a care-of address */
#define DECAPSULATE_CARE_OF 2
#define AGENT 4 /* home agent: packets go into a tunnel or come out of one */

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

/* The two ends of a tunnel. If the addresses are IPv4-mapped, the outer header is IPv4. If ports are set, a
 * UDP header follows. */
struct path {
	struct address local;
	struct address remote;
	__u32 ports; /* local and remote UDP port, each in network byte order; otherwise 0 */
	__u32 interface; /* the only interface for the path's packets, or 0 */
};

/* A binding, at either end of its tunnels. It accepts packets from the first `accepted` of its `paths`. It
 * sends to the first `transmit` paths: only to the first one, or as the RULES say. */
struct binding {
	struct path paths[PATHS];
	__u32 mtu[PATHS]; /* length of the largest inner packet on each path */
	__u32 accepted;
	__u32 transmit;
	__u32 slot;
	__u32 rules; /* number of the binding's rules in RULES, 0 for none */
};

/* Bits of `fields` in struct rule. They say which fields of a packet the rule compares. */
#define FIELD_SOURCE 1
#define FIELD_DESTINATION 2
#define FIELD_SPI 4
#define FIELD_LABEL 8
#define FIELD_SOURCE_PORT 16
#define FIELD_DESTINATION_PORT 32
#define FIELD_CLASS 64
#define FIELD_NEXT_HEADER 128

/* Action of a rule (FlowAction in Rust). */
enum action {
	FAILOVER = 0,
	BALANCE = 1,
	DUPLICATE = 2,
};

/* A rule: which packets it matches, and to which paths it sends them (DistributionRule in Rust). Ranges
 * include both ends, in the machine's byte order. */
struct rule {
	__u64 source[4]; /* high and low half of the first address, then of the last */
	__u64 destination[4];
	__u64 known_by[PATHS]; /* identifier of each path, which does not depend on its addresses */
	__u32 weights[PATHS];
	__u32 label[2];
	__u32 spi[2];
	__u16 source_port[2];
	__u16 destination_port[2];
	__u8 class[2]; /* differentiated services field, six bits */
	__u8 next_header[2];
	__u8 paths[PATHS];
	__u8 count; /* number of paths */
	__u8 action;
	__u16 fields;
	__u32 zero;
};

struct rules {
	struct rule rule[RULES_MAX];
	__u32 count;
	__u32 zero;
};

/* A prefix of a mobile network, or a home address with a length of 128. The numbers are in the machine's byte
 * order, and the host bits are zero. */
struct prefix {
	__u64 high;
	__u64 low;
	__u32 length;
	__u32 end;
};

/* The lengths of all prefixes at one tunnel end (enum end), the longest first. */
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

/* Encapsulation of a tunnel. */
enum outside {
	IN_IPV6 = 0,
	IN_IPV4 = 1, /* RFC 4213, RFC 5555 */
	IN_UDP = 2, /* UDP in IPv4: RFC 5555 */
};

/* Result for a packet that may belong to a tunnel. Rust has the names of the counters in the same order
 * (OUTCOME_NAMES). */
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
	PASS_FILTER,
	FAILED, /* dropped, because the kernel refused a change to the packet after other changes */
	OUTCOMES,
	NOT_OURS, /* the packet belongs to no tunnel; not counted */
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

/* What the kernel's packet filter demands for a flow (RuleScope in Rust). */
enum filter {
	UNFILTERED = 0, /* no rule uses the flow */
	TRACKED = 1, /* the kernel must track the connection, and its rules must have accepted a packet */
	UNTRACKABLE = 2, /* the kernel must see every packet */
};

/* Interfaces for which carnet has rules of packet filter or NAT, with what these rules demand (enum
 * filter). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} FILTERED SEC(".maps");

/* Sets of rules, by number. A binding contains the number of its rules, so that a binding and its rules
 * change together. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 256);
	__type(key, __u32);
	__type(value, struct rules);
} RULES SEC(".maps");

/* VERSIONS_MAX numbers, each shared by several slots. A number changes after each change of a binding in one
 * of its slots. That invalidates the cached lookups of all these slots. Slots share numbers so that all
 * numbers fit into the processor's cache. Separate numbers would cost one more access to memory for each
 * packet. */
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

/* Counters by slot, or by slot and path, TRAFFIC_MAX for each CPU; see counter(). The counters are contiguous
 * in memory. The kernel's own per-CPU map would have a pointer for each counter, and very many pointers do
 * not fit into a cache. */
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

/* Number that carnet changes after each change of routes, rules, addresses, neighbours or prefixes. Each data
 * section is a map with the section's name. Programs read its values without a lookup. */
volatile __u32 GENERATION SEC(".data.generation") = 0;

/* What carnet knows about the kernel's packet filter. */
struct ruleset {
	__u32 generation; /* changes with the rules; 0 while carnet does not know them */
	__u32 ipv4; /* demand of the rules for IPv4 and for IPv6, enum filter */
	__u32 ipv6;
	__u32 tcp_timeout; /* timeouts of connection tracking in milliseconds: established TCP connections */
	__u32 unacknowledged_timeout; /* TCP connections of which only one end sends */
	__u32 udp_timeout; /* UDP flows with packets in both directions */
};

volatile struct ruleset RULESET SEC(".data.ruleset") = {};

/* Whether the programs can call the kernel's connection tracking, and the offsets of fields in struct
 * nf_conn: `status`, and the state of TCP. carnet sets them before it loads the programs. */
const volatile __u32 HAS_CONNTRACK = 0;
const volatile __u32 STATUS_OFFSET = 0;
const volatile __u32 TCP_STATE_OFFSET = 0;

/* carnet sets these constants before it loads the programs: index of the TUN device; key of the hashes for
 * outer flow labels and flows; counters of TRAFFIC for each slot, PATHS or 1; and counters for each CPU. */
const volatile __u32 TUNNEL_DEVICE = 0;
const volatile __u64 FLOW_LABEL_KEY = 0;
const volatile __u32 COUNTERS = 1;
const volatile __u32 TRAFFIC_MAX = 1;
/* Number of version numbers, a power of two. carnet sets it before it loads the programs. */
const volatile __u32 VERSIONS_MAX = 1;
/* Number of ticks in a second; carnet sets it before it loads the programs. The programs count time in the
 * kernel's ticks (bpf_jiffies64), because reading them takes one instruction. The programs cache each answer
 * of the kernel for a second. */
const volatile __u32 SECOND = 100;
#define FLOW_TICKS SECOND
/* Whether the programs record the destinations of packets in the tunnel to the home agent in SOUGHT. */
const volatile __u32 SEEKS = 0;

/* Destinations of a mobile router's flows that began since carnet last read this map. carnet tries to open
 * direct routes to them. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256);
	__type(key, struct address);
	__type(value, __u32);
} SOUGHT SEC(".maps");

/* Ethernet header of a sent packet, at the end of the room for it. The header's last eight octets are aligned
 * as in a packet whose IPv6 header is aligned. */
struct link {
	__u8 zeros[2];
	__u8 header[14];
} __attribute__((aligned(8)));

/* Cached result for packets with equal addresses, protocol, ports, traffic class, flow label and interface.
 * The kernel's routing uses only these fields, so its result is valid for all such packets, as long as
 * GENERATION is unchanged and for at most a second. The cached binding is valid as long as the version of the
 * binding's slot is unchanged. */
struct flow {
	struct address source;
	struct address destination;
	struct path path; /* encapsulation: the path on which to send; decapsulation: the path of arrival */
	__u32 asked; /* time of the lookup in ticks */
	__u32 generation;
	__be32 first; /* first word of the IPv6 header, without ECN */
	__u32 ports;
	__u32 arrival; /* interface of arrival, perhaps with IN_TUNNEL */
	__u32 protocol; /* protocol, perhaps with IN_FRAGMENTS or INSIDE_IPV4 */
	__u32 slot;
	__u32 version; /* number from VERSIONS, read before the binding */
	__u32 counter; /* index of the counters in TRAFFIC */
	__be32 label; /* the outer flow label */
	__u32 departure; /* interface by which packets leave */
	__u32 mtu; /* length of the longest inner packet, by the MTUs of tunnel and route */
	/* Whether this program may send: an XDP program must know the neighbour, and sends only by interfaces
	 * in PORTS */
	__u8 may_leave;
	__u8 outside; /* encapsulation, enum outside */
	__u8 stops; /* bits of the plan's `flags` whose packets take the slow path */
	__u8 filter; /* enum filter */
	__u8 next_header; /* of the inner IP header, also of a fragment */
	__u8 is_agents; /* whether this station is the home agent */
	__u8 may_be_way; /* whether other packets may use the flow's result, as a way (ways.h) */
	__u8 zero;
	struct link link; /* Ethernet header to send, if the neighbour is known */
	struct address next_hop; /* next hop, perhaps IPv4-mapped; unspecified if only the kernel knows it */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, FLOWS_MAX);
	__type(key, __u32);
	__type(value, struct flow);
} FLOWS SEC(".maps");

/* Memory for the flow that a program composes for one packet: during its lookups, or from a way. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct flow);
} SCRATCH SEC(".maps");

/* Neighbours to which the programs send packets, and the time of the last lookup of each. The kernel does not
 * see these packets, so carnet reports to it that the neighbours are in use. */
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

