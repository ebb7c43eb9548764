/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Addresses and IPv6 headers: the checks of the tunnel programs that need no map.
 */
#pragma once

#include "state.h"

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

/* Returns whether a header of this protocol begins with four octets that are ports, or that the kernel's
 * rules use like ports. */
inline_always int has_ports(__u8 next_header)
{
	return next_header == PROTOCOL_TCP || next_header == PROTOCOL_UDP || next_header == PROTOCOL_DCCP ||
	       next_header == PROTOCOL_ESP || next_header == PROTOCOL_SCTP || next_header == PROTOCOL_UDP_LITE;
}

/* Returns whether an address is multicast, link-local, or reserved: ::/8 without the prefixes of NAT64 (RFC
 * 6052 2.1, RFC 8215). */
inline_always int is_special(const struct address *address)
{
	__u64 first = high(address);

	if ((first >> 56) == 0xff || (first >> 54) == 0x3fa)
		return 1;
	if (first >> 56)
		return 0;
	return (first != 0x0064ff9b00000000ULL || low(address) >> 32) && first >> 16 != 0x0064ff9b0001ULL;
}

/* Returns the outer flow label: the slow path's keyed hash (RFC 6438 3). The slow path checks this label in
 * packets that ICMPv6 errors quote. */
inline_always __u32 flow_label(const struct address *source, const struct address *destination, __be32 first)
{
	const __u64 key = FLOW_LABEL_KEY;
	__u64 words[5] = { low(source), high(source), low(destination), high(destination),
			   be32_to_cpu(first) & 0xfffff };
	__u64 hash = key;
	__u32 label;

#pragma unroll
	for (int i = 0; i < 5; i++) {
		hash = (hash ^ words[i]) * 0x9e3779b97f4a7c15ULL;
		hash ^= hash >> 29;
	}
	/* Mix once more for the upper half of the label. */
	hash *= 0x9e3779b97f4a7c15ULL;
	hash ^= hash >> 29;
	hash = (hash + ((key << 32) | (key >> 32))) * 0xbf58476d1ce4e5b9ULL;
	label = hash >> 44;
	return label ? label : 1;
}

/* Returns whether the slow path must handle a packet because of the header after its IPv6 header. */
inline_always int has_extension(__u8 next_header)
{
	return next_header == PROTOCOL_HOP_BY_HOP || next_header == PROTOCOL_ROUTING ||
	       next_header == PROTOCOL_DESTINATION_OPTIONS || next_header == PROTOCOL_MOBILITY;
}

/* Returns whether a Fragment header belongs to the first fragment of a TCP segment, which may be a SYN. */
inline_always int is_first_of_tcp(const __u8 *fragment)
{
	return fragment[0] == PROTOCOL_TCP && !fragment[2] && !(fragment[3] & 0xf8);
}

inline_always __u32 length_of(const struct ipv6 *header)
{
	return IPV6_HEADER + be16_to_cpu(header->payload_length);
}
