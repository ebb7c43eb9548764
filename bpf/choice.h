/* SPDX-License-Identifier: MIT OR GPL-2.0-only */
/*
 * Chooses a path of a binding for a packet by the rules of RFC 6089 with the actions `failover` and
 * `balance`. The result equals the slow path's (crates/nemo/src/forwarding/distribution.rs). The fast path
 * leaves packets that take several tunnels at once to the slow path, which writes a number into each copy. It
 * also leaves fragments to the slow path, because only the first fragment shows ports, and packets with an
 * Authentication Header.
 */
#pragma once

#include "packet.h"

#define PROTOCOL_AUTHENTICATION 51

inline_always __u64 mix(__u64 value)
{
	value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
	value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
	return value ^ (value >> 31);
}

/* Returns -log2(hash / 2^64) as a fixed-point number with 24 fractional bits. If the hash is uniform, the
 * result is exponentially distributed. */
verified_once __u64 rarity(__u64 hash)
{
	__u64 fraction = 0, mantissa, ones, zeros;

	hash |= 1;
	/* Set all bits below the first 1 and count them. This code has no branch, because the verifier would
	 * follow every branch. */
	ones = hash;
#pragma unroll
	for (int bits = 1; bits < 64; bits *= 2)
		ones |= ones >> bits;
	ones -= (ones >> 1) & 0x5555555555555555ULL;
	ones = (ones & 0x3333333333333333ULL) + ((ones >> 2) & 0x3333333333333333ULL);
	ones = (ones + (ones >> 4)) & 0x0f0f0f0f0f0f0f0fULL;
	zeros = 64 - (ones * 0x0101010101010101ULL >> 56);
	mantissa = hash << zeros >> 32;
#pragma nounroll
	for (int i = 0; i < 24; i++) {
		mantissa = (mantissa * mantissa) >> 31;
		fraction = fraction << 1 | mantissa >> 32;
		mantissa >>= mantissa >> 32;
	}
	return ((zeros + 1) << 24) - fraction;
}

/* Fields of a packet that a rule compares, in the direction towards the mobile network. */
struct seen {
	struct address source;
	struct address destination;
	__u32 label;
	__u32 spi;
	__u16 source_port;
	__u16 destination_port;
	__u8 class;
	__u8 next_header;
	__u16 fields; /* bit mask of the fields that the packet has */
};

inline_always int is_between(const struct address *address, const __u64 *range)
{
	__u64 first = high(address), last = low(address);

	return (first > range[0] || (first == range[0] && last >= range[1])) &&
	       (first < range[2] || (first == range[2] && last <= range[3]));
}

verified_once int matches(const struct rule *rule, const struct seen *seen)
{
	__u16 fields;

	if (!rule || !seen)
		return 0;
	fields = rule->fields;
	if (fields & ~seen->fields)
		return 0;
	if ((fields & FIELD_SOURCE) && !is_between(&seen->source, rule->source))
		return 0;
	if ((fields & FIELD_DESTINATION) && !is_between(&seen->destination, rule->destination))
		return 0;
	if ((fields & FIELD_SPI) && (seen->spi < rule->spi[0] || seen->spi > rule->spi[1]))
		return 0;
	if ((fields & FIELD_LABEL) && (seen->label < rule->label[0] || seen->label > rule->label[1]))
		return 0;
	if ((fields & FIELD_SOURCE_PORT) &&
	    (seen->source_port < rule->source_port[0] || seen->source_port > rule->source_port[1]))
		return 0;
	if ((fields & FIELD_DESTINATION_PORT) && (seen->destination_port < rule->destination_port[0] ||
						  seen->destination_port > rule->destination_port[1]))
		return 0;
	if ((fields & FIELD_CLASS) && (seen->class < rule->class[0] || seen->class > rule->class[1]))
		return 0;
	return !(fields & FIELD_NEXT_HEADER) ||
	       (seen->next_header >= rule->next_header[0] && seen->next_header <= rule->next_header[1]);
}

/* Returns the keyed hash of a flow: of its addresses, protocol and ports. */
inline_always __u64 conversation(const struct seen *seen)
{
	__u64 rest = (__u64)seen->next_header << 32;
	__u64 hash = FLOW_LABEL_KEY;

	if (seen->fields & FIELD_SOURCE_PORT)
		rest |= (__u32)seen->source_port << 16 | seen->destination_port;
	hash = mix(hash ^ low(&seen->source));
	hash = mix(hash ^ high(&seen->source));
	hash = mix(hash ^ low(&seen->destination));
	hash = mix(hash ^ high(&seen->destination));
	return mix(hash ^ rest);
}

/* Selects a path for a flow by weighted rendezvous hashing. The share of each path is proportional to its
 * weight. When a path is removed, only its own flows move. */
inline_always __u32 balanced(const struct rule *rule, __u64 conversation)
{
	__u64 least = ~0ULL;
	__u32 best = 0;

#pragma nounroll
	for (__u32 i = 0; i < PATHS; i++) {
		__u64 score;

		if (i >= rule->count)
			break;
		score = (rarity(mix(conversation ^ rule->known_by[i])) << 32) / rule->weights[i];
		if (score < least) {
			least = score;
			best = rule->paths[i];
		}
	}
	return best;
}

/* Selects the path for a flow by the set of rules with this number. Returns the number of the path; PATHS if
 * the slow path has to choose. */
verified_once __u32 choose(const struct flow *flow, __u32 number)
{
	const struct rules *rules = bpf_map_lookup_elem(&RULES, &number);
	__u32 first, protocol, found, is_agents;
	struct seen seen = {};
	const struct rule *rule;

	if (!flow)
		return PATHS;
	first = be32_to_cpu(flow->first);
	protocol = flow->protocol;
	is_agents = flow->is_agents;
	if (!rules || protocol & IN_FRAGMENTS || protocol == PROTOCOL_AUTHENTICATION)
		return PATHS;
	seen.fields = FIELD_SOURCE | FIELD_DESTINATION | FIELD_LABEL | FIELD_CLASS | FIELD_NEXT_HEADER;
	seen.source = is_agents ? flow->source : flow->destination;
	seen.destination = is_agents ? flow->destination : flow->source;
	seen.label = first & 0xfffff;
	seen.class = first >> 22 & 0x3f;
	seen.next_header = protocol;
	if (protocol == PROTOCOL_ESP) {
		seen.fields |= FIELD_SPI;
		seen.spi = be32_to_cpu(flow->ports);
	} else if (has_ports(protocol)) {
		__u16 from = be16_to_cpu(((const __be16 *)&flow->ports)[0]);
		__u16 to = be16_to_cpu(((const __be16 *)&flow->ports)[1]);

		seen.fields |= FIELD_SOURCE_PORT | FIELD_DESTINATION_PORT;
		seen.source_port = is_agents ? from : to;
		seen.destination_port = is_agents ? to : from;
	}
	/* Execute the action after the search and not inside, so that the verifier follows it only once. */
#pragma nounroll
	for (found = 0; found < RULES_MAX; found++) {
		if (found >= rules->count)
			return PATHS;
		if (matches(&rules->rule[found], &seen))
			break;
	}
	if (found >= RULES_MAX)
		return PATHS;
	/* The index does not change: `first >> 31` is 0, because the version is 6. For the verifier the index may
	 * now have any value below RULES_MAX, so it follows the code below only once. */
	found = (found + (first >> 31)) & (RULES_MAX - 1);
	rule = &rules->rule[found];
	if (rule->action == FAILOVER)
		return rule->paths[0];
	return rule->action == BALANCE ? balanced(rule, conversation(&seen)) : PATHS;
}
