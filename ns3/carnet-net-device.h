/*
 * A carnet station in a node of ns-3.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */

#ifndef CARNET_NET_DEVICE_H
#define CARNET_NET_DEVICE_H

#include "carnet_sim.h"

#include "ns3/event-id.h"
#include "ns3/ipv6-address.h"
#include "ns3/mac48-address.h"
#include "ns3/net-device.h"
#include "ns3/nstime.h"
#include "ns3/packet.h"
#include "ns3/random-variable-stream.h"
#include "ns3/traced-callback.h"
#include "ns3/virtual-net-device.h"
#include "ns3/wifi-mac.h"

#include <deque>
#include <functional>
#include <string>
#include <vector>

namespace carnet
{

/** EtherType of GeoNetworking. */
constexpr uint16_t GEONETWORKING = 0x8947;

/** Where the origin of the simulation's coordinates is on earth. */
struct Origin
{
    double latitude = 48.8375; //!< Degrees.
    double longitude = 2.1008; //!< Degrees.
};

/** Processor time and number of calls of the core in all nodes of this process. */
struct CoreUse
{
    uint64_t nanoseconds = 0; //!< Of a processor, in stations and in the copying of their outputs.
    uint64_t calls = 0;       //!< Inputs.
    uint64_t packets = 0;     //!< Frames and packets among them.
    uint64_t hash = 14695981039346656037ULL; //!< FNV-1a of time, node and octets of all frames sent.
};

/**
 * The network device of IPv6 (and IPv4) over GeoNetworking, which a station on the road has as `gn0`.
 *
 * Above the device is a node's IP stack. Below it is the radio. The device receives and sends the radio's
 * frames of EtherType 0x8947. Between IP stack and radio is the station of the product. The device keeps one
 * event: the station's deadline.
 *
 * The station handles IPv6 as on the road, Neighbor Discovery included. EN 302 636-6-1 does not define IPv4.
 * So an IPv4 packet travels as a GeoUnicast with next header "any" to the station of the next hop's MAC
 * address. The ARP cache must have this MAC address, because there is no ARP over GeoNetworking.
 */
class CarnetNetDevice : public ns3::VirtualNetDevice
{
  public:
    /** \return The type. */
    static ns3::TypeId GetTypeId();

    CarnetNetDevice();
    ~CarnetNetDevice() override;

    /** Parameters of a station. */
    struct Settings
    {
        std::string config;  //!< Text of the config file.
        std::string record;  //!< Where inputs are recorded; empty for nowhere.
        uint64_t seed = 1;   //!< Of the station's randomness.
        uint8_t type = 5;    //!< Station type: a passenger car.
        Origin origin;       //!< Of the coordinates.
        bool feedback = true; //!< Whether the radio says what was not acknowledged.
        bool backlog = false; //!< Whether it says how many octets wait to be sent.
        bool tunnel = false;  //!< It is `carnet0`, the tunnel device, and not `gn0`.
    };

    /**
     * Takes the radio and its address, and makes the station. The node has a mobility model already.
     *
     * \param radio A device with EtherTypes; null for a station without GeoNetworking.
     * \param settings What the station is made of.
     */
    void Attach(ns3::Ptr<ns3::NetDevice> radio, const Settings& settings);

    /** Receives an IPv6 packet and the address of its sender. Returns true if it has taken the packet. */
    typedef std::function<bool(const std::vector<uint8_t>& packet, ns3::Mac48Address from)> Taker;

    /**
     * Sets the functions of the kernel of a node whose tunnel device this is.
     *
     * \param fromAir Receives packets by `gn0`. Without it the device drops them.
     * \param fromTunnel Receives first the packets that the station writes into the tunnel device. The device
     *     passes packets that the function does not take up its own IP stack.
     */
    void SetKernel(Taker fromAir, Taker fromTunnel);

    /**
     * Sends an IPv6 packet by `gn0`.
     *
     * \param packet Its octets.
     * \param to The station that is the next hop.
     */
    void SendByAir(const std::vector<uint8_t>& packet, ns3::Mac48Address to);

    /**
     * Gives the station a packet that the node's routing leads into the tunnel device.
     *
     * \param packet Its octets.
     */
    void Tunnel(const std::vector<uint8_t>& packet);

    /**
     * Gives the station any input.
     *
     * \param json As in a recording.
     */
    void Tell(const std::string& json);

    /**
     * Tells the station all IPv6 addresses of `gn0`.
     *
     * \param addresses Addresses of 64-bit prefixes.
     */
    void TellAddresses(const std::vector<ns3::Ipv6Address>& addresses);

    /** Tells the station the IPv6 addresses that the node has on this device. */
    void TellAddresses();

    /**
     * Sends a payload to everybody in range (SHB), as a CAM goes.
     *
     * \param payload Its octets.
     */
    void SendSingleHop(const std::vector<uint8_t>& payload);

    /** \return All counters, a JSON object. */
    std::string Counters();

    /** \return What all stations have cost. */
    static const CoreUse& Used();

    bool IsMulticast() const override;
    ns3::Address GetMulticast(ns3::Ipv4Address group) const override;
    ns3::Address GetMulticast(ns3::Ipv6Address group) const override;

    /** A payload came that is no IP packet: octets, hops. */
    typedef void (*DeliveredCallback)(const std::vector<uint8_t>& payload, uint8_t hops);

  protected:
    void DoDispose() override;

  private:
    /** Actions to execute when the station has no further outputs. */
    struct Output
    {
        CarnetSimOutputKind kind;
        ns3::Mac48Address source;
        ns3::Mac48Address destination;
        uint16_t etherType;
        uint8_t nextHeader;
        uint8_t hops;
        std::vector<uint8_t> octets;
    };

    /**
     * Runs an input of the station and carries out what comes of it.
     *
     * \param input Calls the station.
     * \param packet Whether it is a frame or a packet.
     */
    template <typename F>
    void Run(F input, bool packet);
    CarnetSimPosition Place(uint64_t now) const;
    void CarryOut();
    void Fix();
    void TellBacklog();
    void Timeout();
    void Check(CarnetSimStatus status);
    bool SendDown(ns3::Ptr<ns3::Packet> packet,
                  const ns3::Address& source,
                  const ns3::Address& destination,
                  uint16_t protocol);
    void FromRadio(ns3::Ptr<ns3::NetDevice> device,
                   ns3::Ptr<const ns3::Packet> packet,
                   uint16_t protocol,
                   const ns3::Address& source,
                   const ns3::Address& destination,
                   ns3::NetDevice::PacketType type);
    void Dropped(ns3::WifiMacDropReason reason, ns3::Ptr<const ns3::WifiMpdu> mpdu);
    void Unacknowledged(ns3::Mac48Address destination, std::vector<uint8_t> octets);

    CarnetSimStation* m_station = nullptr;
    ns3::Ptr<ns3::NetDevice> m_radio;
    Taker m_fromAir;
    Taker m_fromTunnel;
    Settings m_settings;
    std::deque<Output> m_outputs;
    bool m_carrying = false;
    ns3::EventId m_deadline;
    ns3::Time m_fixInterval;
    ns3::Time m_jitter;
    ns3::Ptr<ns3::UniformRandomVariable> m_processing;
    uint64_t m_planned = CARNET_SIM_NEVER;
    uint64_t m_placed = CARNET_SIM_NEVER;
    uint64_t m_freshness = 0;
    uint32_t m_backlog = 0;
    ns3::TracedCallback<const std::vector<uint8_t>&, uint8_t> m_delivered;
    ns3::TracedCallback<ns3::Ptr<const ns3::Packet>, uint8_t> m_received;
};

} // namespace carnet

#endif // CARNET_NET_DEVICE_H
