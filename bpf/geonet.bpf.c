/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * The fast path of IPv6 over GeoNetworking as tc programs. It handles GeoUnicast packets (EN 302 636-4-1
 * 10.3.8) that resemble packets which the router (crates/geonet) has just sent, delivered or forwarded.
 *
 *   kernel -> gn0, egress [out] -> complete -> its peer, ingress [wrap] -> radio
 *   radio, ingress [in] -> gn0 as received         own packets, headers removed
 *                       -> radio                   forwarded packets, RHL decremented
 *
 * The router permits each kind of work by a value in the maps, and removes the value when it is no longer
 * valid. Packets without such a value, and unusual packets, take the slow path unchanged. The fast path only
 * drops duplicates of packets that it has handled itself, because the slow path does not know these yet.
 *
 * [out] and [wrap] are connected by a pair of virtual Ethernet devices without offloads for TCP and UDP. So
 * the kernel segments super packets and computes checksums before it passes packets on. Each packet then gets
 * its own headers and a checksum that is right on the air. A program could not do that itself.
 *
 * Both paths draw sequence numbers from SEQUENCE, and know each other's duplicates: the fast path marks
 * packets that it leaves, and reports those that it has handled to the router. Times are those of
 * CLOCK_MONOTONIC.
 */
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/pkt_cls.h>

#include "helpers.h"

#define PASS TC_ACT_UNSPEC
#define GN_TYPE 0x8947
/* Length in octets of the headers of a GeoUnicast packet (GUC): basic, common and extended. */
#define HEADERS 60
#define IPV6_HEADER 40
#define PROTOCOL_HOP_BY_HOP 0
#define PROTOCOL_ICMPV6 58
#define PROTOCOL_ROUTING 43
#define PROTOCOL_FRAGMENT 44
#define FRAGMENT_HEADER 8
#define PROTOCOL_DESTINATION_OPTIONS 60
#define PROTOCOL_MOBILITY 135
#define MOST 1024
#define NUMBERS 16
/* Mark of a packet that [out] has left to the slow path. No later part of the kernel uses it. */
#define LEFT_MARK 0x636e0001

/* Bits of `flags` in struct state. */
#define DELIVERS 1 /* the station has one virtual interface, and no other program receives its packets */
#define SENDS 2

/* Bits of `flags` in struct onward. */
#define PLACE 1
#define KNOWN 2

enum count { SENT, DELIVERED, FORWARDED, DUPLICATES, FAILED, COUNTS_MAX };

/* Values that the program needs for all packets. */
struct state {
	__u64 until; /* time after which the programs stop, because the router has ended or is too busy */
	__u32 radio; /* index of the radio interface */
	__u32 virtual;
	__u32 helper;
	__u32 flags;
	__u32 mtu; /* length of the largest IPv6 packet */
	__u32 list; /* itsGnDPLLength */
	__u8 mac[6]; /* the station's link-layer address: MID */
	__u8 zero[2];
	__u8 identifier[8]; /* modified EUI-64 of the address */
	__u8 vector[24]; /* LPV for own packets */
};

/* Permission to send this station's own packets to a destination (OwnPacketPathValue in Rust). */
struct way {
	__u64 until;
	__u32 slot; /* index of the packet count in USED */
	__u8 next_hop[6];
	__u8 zero[2];
	__u8 headers[HEADERS];
};

/* Permission to forward packets to a destination (ForwardingPathValue in Rust). */
struct onward {
	__u64 until;
	__u32 slot;
	__u8 next_hop[6];
	__u8 flags;
	__u8 zero;
	__u8 place[8]; /* latitude and longitude of the destination that the packet must have */
	__u8 known[12]; /* newest TST, latitude and longitude that the router knows */
};

/* A station whose packets the fast path may handle. */
struct source {
	struct bpf_spin_lock lock;
	__u32 next; /* index in `numbers` that is overwritten next */
	__u64 since; /* packets from before this time are still on their way to the slow path */
	__u32 packets;
	__u32 octets;
	__u32 direct; /* number of packets that came directly from the station, without a forwarder */
	__u16 taken; /* bit mask of the `numbers` that the fast path has handled */
	__u16 used;
	__u16 numbers[NUMBERS]; /* duplicate packet list (DPL) */
	__u8 vector[24]; /* newest LPV of the station */
};

struct address {
	__u8 octets[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct state);
} STATE SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST);
	__type(key, __u64);
	__type(value, struct way);
} WAYS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST);
	__type(key, __u64);
	__type(value, struct onward);
} ONWARDS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MOST);
	__type(key, __u64);
	__type(value, struct source);
} SOURCES SEC(".maps");

/* Addresses of the virtual interface, which are unique to this station. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, struct address);
	__type(value, __u32);
} ADDRESSES SEC(".maps");

/* Counters in shared memory: the SN of the next own packet, and the packet count of each slot of ways and
 * onwards. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1 + 2 * MOST);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} SHARED SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTS_MAX);
	__type(key, __u32);
	__type(value, __u64);
} COUNTS SEC(".maps");

struct ethernet {
	__u8 destination[6];
	__u8 source[6];
	__be16 type;
} __attribute__((packed));

struct ipv6 {
	__be32 first;
	__be16 payload_length;
	__u8 next_header;
	__u8 hop_limit;
	struct address source;
	struct address destination;
};

/* GeoNetworking headers of a GUC (9.6, 9.7, 9.8.2), at their offset in a frame. */
struct headers {
	__u8 version; /* version, and NH of the basic header */
	__u8 reserved;
	__u8 lifetime;
	__u8 remaining_hop_limit;
	__u8 next_header;
	__u8 type;
	__u8 traffic_class;
	__u8 flags;
	__be16 payload_length;
	__u8 maximum_hop_limit;
	__u8 reserved_too;
	__be16 sequence;
	__be16 reserved_as_well;
	__u8 source[24]; /* LPV of the source */
	__u8 destination[20]; /* SPV of the destination */
};

#define LATITUDE 12
#define LONGITUDE 16

struct frame {
	__u8 zero[2]; /* so that all following fields are aligned */
	struct ethernet ethernet;
	struct headers gn;
	struct ipv6 ip;
	__u8 behind; /* first octet of the IPv6 payload */
};

_Static_assert(sizeof(struct headers) == HEADERS, "a header of another length");

inline_always void count(__u32 what)
{
	__u64 *number = bpf_map_lookup_elem(&COUNTS, &what);

	if (number)
		*number += 1;
}

inline_always void use(__u32 slot)
{
	__u64 *number;

	slot += 1;
	number = bpf_map_lookup_elem(&SHARED, &slot);
	if (number)
		*number += 1;
}

inline_always __u64 now(void)
{
	return bpf_ktime_get_coarse_ns();
}

inline_always const struct state *current(void)
{
	__u32 zero = 0;
	const struct state *state = bpf_map_lookup_elem(&STATE, &zero);

	return state && now() < state->until ? state : 0;
}

/* Returns a link-layer address or MID as a number. */
inline_always __u64 number_of(const __u8 *mac)
{
	return (__u64)mac[0] << 40 | (__u64)mac[1] << 32 | (__u64)mac[2] << 24 | (__u64)mac[3] << 16 |
	       (__u64)mac[4] << 8 | mac[5];
}

inline_always int is_one_station(const __u8 *mac)
{
	return !(mac[0] & 1) && number_of(mac);
}

inline_always __u32 read32(const __u8 *octets)
{
	return (__u32)octets[0] << 24 | (__u32)octets[1] << 16 | (__u32)octets[2] << 8 | octets[3];
}

inline_always int is_on_globe(const __u8 *position)
{
	__s32 latitude = read32(position), longitude = read32(position + 4);

	return latitude >= -900000000 && latitude <= 900000000 && longitude >= -1800000000 &&
	       longitude <= 1800000000;
}

/* Returns whether a TST is newer than another, modulo 2^32 (C.2). */
inline_always int is_newer(const __u8 *timestamp, const __u8 *than)
{
	return (__s32)(read32(timestamp) - read32(than)) > 0;
}

inline_always int is_multicast(const struct address *address)
{
	return address->octets[0] == 0xff;
}

/* Returns whether an address is the unspecified or the loopback address. */
inline_always int is_nobody(const struct address *address)
{
	const __u8 *octets = address->octets;
	__u8 any = 0;

#pragma unroll
	for (int i = 0; i < 15; i++)
		any |= octets[i];
	return !any && octets[15] <= 1;
}

inline_always int same_identifier(const struct address *address, const __u8 *identifier)
{
	__u8 different = 0;

#pragma unroll
	for (int i = 0; i < 8; i++)
		different |= address->octets[8 + i] ^ identifier[i];
	return !different;
}

/* Returns whether only the host needs the payload of an IPv6 packet, which begins with `behind`. The
 * adaptation sublayer handles Neighbor Discovery and multicast listener reports, and the mobile router
 * handles mobility messages. */
inline_always int is_for_hosts(__u8 protocol, __u8 behind)
{
	/* Neighbor Discovery messages may follow such an extension header. */
	if (protocol == PROTOCOL_HOP_BY_HOP || protocol == PROTOCOL_ROUTING || protocol == PROTOCOL_FRAGMENT ||
	    protocol == PROTOCOL_DESTINATION_OPTIONS || protocol == PROTOCOL_MOBILITY)
		return 0;
	/* ICMPv6 errors, Echo Request and Echo Reply. */
	return protocol != PROTOCOL_ICMPV6 || (behind && behind <= 4) || behind == 128 || behind == 129;
}

/* Returns whether only the host needs the payload of a fragment. Only the first fragment shows its protocol
 * (RFC 7112). The fast path may handle all other fragments, because no receiver gets the packet without the
 * first fragment. */
inline_always int is_fragment_for_hosts(struct __sk_buff *skb, __u32 at)
{
	struct {
		__u8 next_header;
		__u8 reserved;
		__be16 offset; /* fragment offset in units of 8 octets, and flags */
		__be32 identification;
		__u8 behind;
	} fragment;

	if (bpf_skb_load_bytes(skb, at, &fragment, FRAGMENT_HEADER + 1))
		return 0;
	return fragment.offset & cpu_to_be16(0xfff8) || is_for_hosts(fragment.next_header, fragment.behind);
}

/* Returns whether the fast path may handle an IPv6 packet, in both directions. The packet begins at the octet
 * `at` of the frame. */
inline_always int is_common(struct __sk_buff *skb, __u32 at, const struct ipv6 *ip, __u8 behind)
{
	if ((ip->first & cpu_to_be32(0xf0000000)) != cpu_to_be32(0x60000000) || !ip->payload_length)
		return 0;
	if (is_multicast(&ip->source) || is_nobody(&ip->source) || is_multicast(&ip->destination) ||
	    is_nobody(&ip->destination))
		return 0;
	return ip->next_header == PROTOCOL_FRAGMENT ? is_fragment_for_hosts(skb, at + IPV6_HEADER) :
						      is_for_hosts(ip->next_header, behind);
}

inline_always int own_source(const struct state *state, const __u8 *mac)
{
	return number_of(mac) == number_of(state->mac);
}

/* Handles a frame of the host that leaves by the virtual interface. */
SEC("classifier") int out(struct __sk_buff *skb)
{
	const struct state *state;
	const struct way *way;
	struct frame frame;
	__u64 destination;

	if (skb->protocol != cpu_to_be16(ETH_P_IPV6) || skb->vlan_present || skb->mark == LEFT_MARK)
		return PASS;
	if (bpf_skb_load_bytes(skb, 0, &frame.ethernet, ETH_HLEN) ||
	    bpf_skb_load_bytes(skb, ETH_HLEN, &frame.ip, IPV6_HEADER + 1))
		return PASS;
	state = current();
	if (!state || !(state->flags & SENDS))
		return PASS;
	if (!own_source(state, frame.ethernet.source) || !is_one_station(frame.ethernet.destination))
		return PASS;
	if (!is_common(skb, ETH_HLEN, &frame.ip, frame.behind) ||
	    skb->len != ETH_HLEN + IPV6_HEADER + be16_to_cpu(frame.ip.payload_length))
		return PASS;
	/* The kernel will segment a super packet to the interface's MTU. */
	if (!skb->gso_size && skb->len > ETH_HLEN + state->mtu)
		return PASS;
	destination = number_of(frame.ethernet.destination);
	way = bpf_map_lookup_elem(&WAYS, &destination);
	if (!way || now() >= way->until)
		return PASS;
	return bpf_redirect(state->helper, 0);
}

/* Returns the packet to its interface, for the slow path. */
inline_always int leave(struct __sk_buff *skb, const struct state *state)
{
	if (!state) {
		count(FAILED);
		return TC_ACT_SHOT;
	}
	skb->mark = LEFT_MARK;
	return bpf_redirect(state->virtual, 0);
}

/* Handles a packet that comes out of the pair of devices. It is a single packet with a complete checksum. */
SEC("classifier") int wrap(struct __sk_buff *skb)
{
	const struct state *state;
	const struct way *way;
	struct frame frame;
	__u64 destination, *sequence;
	__u32 zero = 0, length = skb->len - ETH_HLEN;

	state = bpf_map_lookup_elem(&STATE, &zero);
	/* Only packets that [out] has sent arrive here. */
	if (skb->protocol != cpu_to_be16(ETH_P_IPV6) || bpf_skb_load_bytes(skb, 0, &frame.ethernet, ETH_HLEN))
		return TC_ACT_SHOT;
	if (!state || now() >= state->until || skb->gso_size || length > state->mtu)
		return leave(skb, state);
	destination = number_of(frame.ethernet.destination);
	way = bpf_map_lookup_elem(&WAYS, &destination);
	sequence = bpf_map_lookup_elem(&SHARED, &zero);
	if (!way || now() >= way->until || !sequence)
		return leave(skb, state);
	__builtin_memcpy(&frame.gn, way->headers, HEADERS);
	__builtin_memcpy(frame.gn.source, state->vector, sizeof frame.gn.source);
	__builtin_memcpy(frame.ethernet.destination, way->next_hop, 6);
	__builtin_memcpy(frame.ethernet.source, state->mac, 6);
	frame.ethernet.type = cpu_to_be16(GN_TYPE);
	frame.gn.payload_length = cpu_to_be16((__u16)length);
	if (bpf_skb_adjust_room(skb, HEADERS, BPF_ADJ_ROOM_MAC, 0))
		return leave(skb, state);
	frame.gn.sequence = cpu_to_be16((__u16)__sync_fetch_and_add(sequence, 1));
	if (bpf_skb_store_bytes(skb, 0, &frame.ethernet, ETH_HLEN + HEADERS, 0)) {
		count(FAILED);
		return TC_ACT_SHOT;
	}
	use(way->slot);
	count(SENT);
	return bpf_redirect(state->radio, 0);
}

enum noted { NEW, LEFT_BEFORE, TAKEN_BEFORE };

/* Detects duplicate packets (A.2). With `take`, notes a new packet as handled by the fast path. */
inline_always enum noted note(struct source *source, const struct headers *gn, __u32 octets, int direct,
			      int take, __u32 length)
{
	__u16 sequence = be16_to_cpu(gn->sequence);
	enum noted noted = NEW;
	__u32 place;

	bpf_spin_lock(&source->lock);
#pragma unroll
	for (__u32 i = 0; i < NUMBERS; i++)
		if (i < source->used && source->numbers[i] == sequence)
			noted = source->taken >> i & 1 ? TAKEN_BEFORE : LEFT_BEFORE;
	if (noted == NEW) {
		place = source->next >= length ? 0 : source->next & (NUMBERS - 1);
		source->numbers[place] = sequence;
		source->taken = (source->taken & ~(1 << place)) | (take ? 1 << place : 0);
		source->next = place + 1;
		if (source->used < length)
			source->used++;
		if (take) {
			if (!source->packets || is_newer(gn->source + 8, source->vector + 8))
				__builtin_memcpy(source->vector, gn->source, sizeof source->vector);
			source->packets++;
			source->octets += octets;
			source->direct += direct;
		}
	}
	bpf_spin_unlock(&source->lock);
	return noted;
}

/* Returns whether the host may get the packet without further checks (EN 302 636-6-1). */
inline_always int is_for_host(struct __sk_buff *skb, struct frame *frame, const struct state *state)
{
	__u8 identifier[8];
	const __u8 *mid = frame->gn.source + 2;

	if (!(state->flags & DELIVERS) || frame->gn.next_header >> 4 != 3)
		return 0;
	if (bpf_skb_load_bytes(skb, ETH_HLEN + HEADERS, &frame->ip, IPV6_HEADER + 1) ||
	    !is_common(skb, ETH_HLEN + HEADERS, &frame->ip, frame->behind) ||
	    be16_to_cpu(frame->gn.payload_length) != IPV6_HEADER + be16_to_cpu(frame->ip.payload_length))
		return 0;
	/* The packet has an own address as its source, so the slow path decides. */
	if (same_identifier(&frame->ip.source, state->identifier) ||
	    bpf_map_lookup_elem(&ADDRESSES, &frame->ip.source))
		return 0;
	if (frame->ip.source.octets[0] != 0xfe || (frame->ip.source.octets[1] & 0xc0) != 0x80)
		return 1;
	/* A link-local source address must belong to the sending station. */
	identifier[0] = mid[0] ^ 2;
	identifier[1] = mid[1];
	identifier[2] = mid[2];
	identifier[3] = 0xff;
	identifier[4] = 0xfe;
	identifier[5] = mid[3];
	identifier[6] = mid[4];
	identifier[7] = mid[5];
	return same_identifier(&frame->ip.source, identifier);
}

/* Returns the next hop of a packet for another station, if it may leave without further checks. */
inline_always const struct onward *onward_of(const struct headers *gn)
{
	__u64 destination = number_of(gn->destination + 2);
	const struct onward *onward = bpf_map_lookup_elem(&ONWARDS, &destination);
	__u8 different = 0;

	/* Values of the next header above 3 occur only with perimeter recovery. */
	if (!onward || gn->remaining_hop_limit <= 1 || gn->next_header >> 4 > 3 || now() >= onward->until)
		return 0;
	if (onward->flags & PLACE) {
#pragma unroll
		for (int i = 0; i < 8; i++)
			different |= gn->destination[LATITUDE + i] ^ onward->place[i];
		if (different)
			return 0;
	}
	return onward;
}

/* Removes the GeoNetworking headers and lets the packet arrive at the virtual interface. */
inline_always int deliver(struct __sk_buff *skb, const struct state *state, struct frame *frame)
{
	__be16 type = cpu_to_be16(ETH_P_IPV6);

	/* The kernel can change the room only before an IP header, but its EtherType for this frame is
	 * GeoNetworking. The kernel updates the EtherType when it removes a VLAN tag inside the frame. So
	 * insert two tags, the inner one with the EtherType of IPv6, and remove them. */
	if (bpf_skb_vlan_push(skb, cpu_to_be16(ETH_P_8021Q), 0) ||
	    bpf_skb_vlan_push(skb, cpu_to_be16(ETH_P_8021Q), 0) ||
	    bpf_skb_store_bytes(skb, ETH_HLEN + 2, &type, 2, 0) || bpf_skb_vlan_pop(skb) || bpf_skb_vlan_pop(skb) ||
	    bpf_skb_adjust_room(skb, -HEADERS, BPF_ADJ_ROOM_MAC, 0))
		goto failed;
	__builtin_memcpy(frame->ethernet.destination, state->mac, 6);
	__builtin_memcpy(frame->ethernet.source, frame->gn.source + 2, 6);
	if (bpf_skb_store_bytes(skb, 0, &frame->ethernet, 12, 0))
		goto failed;
	count(DELIVERED);
	return bpf_redirect(state->virtual, BPF_F_INGRESS);
failed:
	count(FAILED);
	return TC_ACT_SHOT;
}

/* Forwards the packet (10.3.8.3). */
inline_always int forward(struct __sk_buff *skb, const struct state *state, const struct onward *onward,
			  struct frame *frame)
{
	__u8 remaining = frame->gn.remaining_hop_limit - 1;

	__builtin_memcpy(frame->ethernet.destination, onward->next_hop, 6);
	__builtin_memcpy(frame->ethernet.source, state->mac, 6);
	if (bpf_skb_store_bytes(skb, 0, &frame->ethernet, 12, 0) ||
	    bpf_skb_store_bytes(skb, ETH_HLEN + 3, &remaining, 1, BPF_F_RECOMPUTE_CSUM))
		goto failed;
	/* C.3: write the router's position of the destination if it is newer than that in the packet. */
	if (onward->flags & KNOWN && is_newer(onward->known, frame->gn.destination + 8) &&
	    bpf_skb_store_bytes(skb, ETH_HLEN + 48, onward->known, 12, BPF_F_RECOMPUTE_CSUM))
		goto failed;
	use(onward->slot);
	count(FORWARDED);
	return bpf_redirect(state->radio, 0);
failed:
	count(FAILED);
	return TC_ACT_SHOT;
}

/* Handles a frame that arrives from the radio. */
SEC("classifier") int in(struct __sk_buff *skb)
{
	const struct onward *onward = 0;
	const struct state *state;
	struct source *source;
	struct frame frame;
	struct headers *gn = &frame.gn;
	int mine, take, direct;
	enum noted noted;
	__u64 mid;

	if (skb->protocol != cpu_to_be16(GN_TYPE) || skb->vlan_present)
		return PASS;
	if (bpf_skb_load_bytes(skb, 0, &frame.ethernet, ETH_HLEN + HEADERS))
		return PASS;
	/* Handle only a GUC of this version, without a security envelope and without octets after its
	 * payload. */
	if (gn->version != 0x11 || gn->type != 0x20 ||
	    skb->len != ETH_HLEN + HEADERS + be16_to_cpu(gn->payload_length))
		return PASS;
	if (!gn->remaining_hop_limit || gn->remaining_hop_limit > gn->maximum_hop_limit)
		return PASS;
	state = current();
	if (!state)
		return PASS;
	/* Leave packets to the slow path that it drops before it notes their sequence numbers (10.3.3,
	 * 10.3.5, 10.2.1.5). */
	mid = number_of(gn->source + 2);
	if (!is_one_station(gn->source + 2) || own_source(state, gn->source + 2) ||
	    !is_one_station(frame.ethernet.source) || own_source(state, frame.ethernet.source) ||
	    !is_on_globe(gn->source + LATITUDE) || !is_on_globe(gn->destination + LATITUDE))
		return PASS;
	take = own_source(state, frame.ethernet.destination);
	if (!take && number_of(frame.ethernet.destination) != 0xffffffffffffULL)
		return PASS;
	source = bpf_map_lookup_elem(&SOURCES, &mid);
	if (!source)
		return PASS;
	mine = own_source(state, gn->destination + 2);
	if (mine)
		take = take && is_for_host(skb, &frame, state);
	else
		take = take && (onward = onward_of(gn));
	take = take && now() >= source->since;
	direct = number_of(frame.ethernet.source) == mid && gn->remaining_hop_limit == gn->maximum_hop_limit;
	noted = note(source, gn, skb->len - ETH_HLEN, direct, take, state->list);
	if (noted == TAKEN_BEFORE) {
		count(DUPLICATES);
		return TC_ACT_SHOT;
	}
	if (noted == LEFT_BEFORE || !take)
		return PASS;
	if (mine)
		return deliver(skb, state, &frame);
	return onward ? forward(skb, state, onward, &frame) : PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
