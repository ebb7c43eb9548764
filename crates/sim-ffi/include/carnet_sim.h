// C interface of a carnet station, for simulators. Made of crates/sim-ffi by its test `header`
// (CARNET_UPDATE=1 cargo test -p carnet-sim-ffi --test header); how to drive it stands at the head of its lib.rs.
//
// SPDX-License-Identifier: Apache-2.0 OR MIT

#ifndef CARNET_SIM_H
#define CARNET_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What `carnet_sim_abi_version` says for this header.
#define CARNET_SIM_ABI_VERSION 1

// What `carnet_sim_deadline` says where nothing is due.
#define CARNET_SIM_NEVER UINT64_MAX

// How a call went.
typedef enum CarnetSimStatus {
  // Done; of `carnet_sim_poll_output`: there is an output.
  CARNET_SIM_STATUS_DONE = 0,
  // There is no output (any more).
  CARNET_SIM_STATUS_EMPTY = 1,
  // A pointer is null that must not be, or a value does not exist.
  CARNET_SIM_STATUS_BAD_ARGUMENT = 2,
  // `carnet_sim_poll_output` has not said yet that nothing is left.
  CARNET_SIM_STATUS_NOT_DRAINED = 3,
  // The time is before that of an earlier call.
  CARNET_SIM_STATUS_TIME_RUNS_BACKWARDS = 4,
  // The station refuses the input.
  CARNET_SIM_STATUS_REFUSED = 5,
  // The station has panicked, now or before. It can only be freed.
  CARNET_SIM_STATUS_PANICKED = 6,
} CarnetSimStatus;

// What an output is.
typedef enum CarnetSimOutputKind {
  // A frame of EtherType 0x8947 for the radio: `source`, `destination`, the octets behind the EtherType.
  CARNET_SIM_OUTPUT_KIND_FRAME = 0,
  // A frame for the host: `link`, `source`, `destination`, `ether_type`, the octets behind it.
  CARNET_SIM_OUTPUT_KIND_HOST_FRAME = 1,
  // A payload that came over GeoNetworking for whoever listens: `station`, `next_header`, `hops`, the payload.
  CARNET_SIM_OUTPUT_KIND_DELIVERED = 2,
  // An IPv6 packet that the tunnel device gives to the host's routing.
  CARNET_SIM_OUTPUT_KIND_PACKET = 3,
  // Anything else, as JSON like in the answer of `carnet replay`.
  CARNET_SIM_OUTPUT_KIND_OTHER = 4,
} CarnetSimOutputKind;

// How a payload travels.
typedef enum CarnetSimTransport {
  // To a station: `destination`.
  CARNET_SIM_TRANSPORT_GEO_UNICAST = 0,
  // To all in the circle of `radius` around `latitude`, `longitude`.
  CARNET_SIM_TRANSPORT_GEO_BROADCAST = 1,
  // To anybody in the circle.
  CARNET_SIM_TRANSPORT_GEO_ANYCAST = 2,
  // To all within `hop_limit` hops.
  CARNET_SIM_TRANSPORT_TOPOLOGICALLY_SCOPED = 3,
  // To all in range; a beacon is spared.
  CARNET_SIM_TRANSPORT_SINGLE_HOP = 4,
} CarnetSimTransport;

// A station of one node.
typedef struct CarnetSimStation CarnetSimStation;

// What a station is made of.
typedef struct CarnetSimOptions {
  // Text of the config file, UTF-8, without a zero at its end.
  const uint8_t *config;
  // Its octets.
  size_t config_length;
  // Path of a recording, UTF-8; null for none.
  const uint8_t *record;
  // Its octets.
  size_t record_length;
  // GN address; 0 for a station without GeoNetworking.
  uint64_t gn_address;
  // What all randomness of the station comes from.
  uint64_t seed;
  // Nanoseconds since the simulation began.
  uint64_t now;
  // The date then, nanoseconds since 1970 (UTC).
  uint64_t wall;
} CarnetSimOptions;

// An IPv6 address of the host.
typedef struct CarnetSimAddress {
  // The address, in network order.
  uint8_t address[16];
  // Bits of its prefix.
  uint8_t prefix_length;
} CarnetSimAddress;

// Where a node is, in the units of EN 302 636-4-1 9.5.2.
typedef struct CarnetSimPosition {
  // TAI milliseconds since 2004-01-01, modulo 2^32.
  uint32_t timestamp;
  // Tenths of a microdegree, north positive.
  int32_t latitude;
  // Tenths of a microdegree, east positive.
  int32_t longitude;
  // Centimetres per second.
  int16_t speed;
  // Tenths of a degree clockwise from North.
  uint16_t heading;
  // PAI: the position is accurate.
  bool accurate;
} CarnetSimPosition;

// A payload to be sent (GN-DATA.request).
typedef struct CarnetSimRequest {
  // How it travels: a `CarnetSimTransport`.
  uint32_t transport;
  // GN address for `GeoUnicast`.
  uint64_t destination;
  // Centre of the circle, tenths of a microdegree.
  int32_t latitude;
  // Centre of the circle, tenths of a microdegree.
  int32_t longitude;
  // Radius of the circle, metres.
  uint16_t radius;
  // NH of the Common Header: 0 any, 1 BTP-A, 2 BTP-B, 3 IPv6.
  uint8_t next_header;
  // Hops that it may go; 0 for the default.
  uint8_t hop_limit;
  // Milliseconds that it may be on its way; 0 for the default.
  uint64_t lifetime_ms;
  // Whether it may wait for a neighbour (SCF).
  bool store;
} CarnetSimRequest;

// An output of a station.
typedef struct CarnetSimOutput {
  // What it is.
  enum CarnetSimOutputKind kind;
  // The virtual interface.
  uint32_t link;
  // GN address of the station that sent a payload; 0 where that is not known.
  uint64_t station;
  // Link-layer source.
  uint8_t source[6];
  // Link-layer destination.
  uint8_t destination[6];
  // EtherType of a frame for the host.
  uint16_t ether_type;
  // NH of a payload.
  uint8_t next_header;
  // Hops that a payload, or an IPv6 packet, has gone; 0 where that is not known.
  uint8_t hops;
  // Its octets, there until the next call for this station.
  const uint8_t *octets;
  // How many.
  size_t length;
} CarnetSimOutput;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of this interface; it has to be the header's `CARNET_SIM_ABI_VERSION`.
uint32_t carnet_sim_abi_version(void);

// Whether a panic ends one station only, and not the process: whether the library was built with unwinding.
bool carnet_sim_contains_panics(void);

// A new station, to be freed by `carnet_sim_free`; its outputs of the start wait. Null where something is wrong,
// and then `error` has it in words, cut to `error_capacity` octets with the zero at its end.
//
// # Safety
// `options` points to options whose pointers point to as many octets as they say. `error` is null or points to
// `error_capacity` octets that may be written.
struct CarnetSimStation *carnet_sim_new(const struct CarnetSimOptions *options,
                                        char *error,
                                        size_t error_capacity);

// Ends a station and its recording. Null is allowed.
//
// # Safety
// `station` is null or comes from `carnet_sim_new` and was not freed; nobody uses it any more.
void carnet_sim_free(struct CarnetSimStation *station);

// A frame of EtherType 0x8947 from the radio; `packet` is what stands behind the EtherType.
//
// # Safety
// `station` is null or comes from `carnet_sim_new`, and nobody else uses it during the call. `source` and
// `destination` are null or point to 6 octets, `packet` to `length` octets.
enum CarnetSimStatus carnet_sim_handle_frame(struct CarnetSimStation *station,
                                             uint64_t now,
                                             const uint8_t *source,
                                             const uint8_t *destination,
                                             const uint8_t *packet,
                                             size_t length);

// A frame that this station sent to one other and that was not acknowledged, given back by the link; `packet` is
// what stood behind its EtherType.
//
// # Safety
// As for `carnet_sim_handle_frame`.
enum CarnetSimStatus carnet_sim_handle_unacknowledged(struct CarnetSimStation *station,
                                                      uint64_t now,
                                                      const uint8_t *source,
                                                      const uint8_t *destination,
                                                      const uint8_t *packet,
                                                      size_t length);

// A frame that the host has put into the virtual interface `link` (0 is that of `ipv6_interface`).
//
// # Safety
// As for `carnet_sim_handle_frame`, `payload` like `packet`.
enum CarnetSimStatus carnet_sim_handle_host_frame(struct CarnetSimStation *station,
                                                  uint64_t now,
                                                  uint32_t link,
                                                  const uint8_t *source,
                                                  const uint8_t *destination,
                                                  uint16_t ether_type,
                                                  const uint8_t *payload,
                                                  size_t length);

// The IPv6 addresses that the host has on the virtual interface `link`, all of them.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`; `addresses` is null or points to `count` addresses.
enum CarnetSimStatus carnet_sim_handle_addresses(struct CarnetSimStation *station,
                                                 uint64_t now,
                                                 uint32_t link,
                                                 const struct CarnetSimAddress *addresses,
                                                 size_t count);

// Where the node is now. To be told before anything else that happens at the same time.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`; `position` is null or points to a position.
enum CarnetSimStatus carnet_sim_handle_position(struct CarnetSimStation *station,
                                                uint64_t now,
                                                const struct CarnetSimPosition *position);

// A payload to be sent over GeoNetworking.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`; `request` is null or points to a request, `payload` to `length`
// octets.
enum CarnetSimStatus carnet_sim_handle_request(struct CarnetSimStation *station,
                                               uint64_t now,
                                               const struct CarnetSimRequest *request,
                                               const uint8_t *payload,
                                               size_t length);

// An IPv6 packet that the host's routing gives to the tunnel device.
//
// # Safety
// As for `carnet_sim_handle_frame`.
enum CarnetSimStatus carnet_sim_handle_packet(struct CarnetSimStation *station,
                                              uint64_t now,
                                              const uint8_t *packet,
                                              size_t length);

// Any other input, as JSON like in a recording: what stands behind `"input":`.
//
// # Safety
// As for `carnet_sim_handle_frame`, `json` like `packet`.
enum CarnetSimStatus carnet_sim_handle_input(struct CarnetSimStation *station,
                                             uint64_t now,
                                             const uint8_t *json,
                                             size_t length);

// Time has passed; to be called when `carnet_sim_deadline` is reached.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`.
enum CarnetSimStatus carnet_sim_handle_timeout(struct CarnetSimStation *station, uint64_t now);

// When `carnet_sim_handle_timeout` is due, nanoseconds; `CARNET_SIM_NEVER` where nothing is.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`.
uint64_t carnet_sim_deadline(struct CarnetSimStation *station);

// Takes the next output. `Empty` when nothing is left; until then no input is taken.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`; `output` is null or points to an output that may be written.
enum CarnetSimStatus carnet_sim_poll_output(struct CarnetSimStation *station,
                                            struct CarnetSimOutput *output);

// All counters as a JSON object, cut to `capacity` octets with the zero at its end. Returns its whole length.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`; `text` is null or points to `capacity` octets that may be written.
size_t carnet_sim_counters(struct CarnetSimStation *station,
                           char *text,
                           size_t capacity);

// What went wrong last, in words, cut to `capacity` octets with the zero at its end. Returns its whole length.
//
// # Safety
// As for `carnet_sim_counters`.
size_t carnet_sim_last_error(struct CarnetSimStation *station,
                             char *text,
                             size_t capacity);

// Writes out the recording as far as it goes.
//
// # Safety
// `station` as for `carnet_sim_handle_frame`.
enum CarnetSimStatus carnet_sim_flush(struct CarnetSimStation *station);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CARNET_SIM_H */
