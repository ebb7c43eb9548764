/*
 * A mobile router that reaches its home agent by roadside units: NEMO (RFC 3963) over GeoNetworking.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */

#ifndef CARNET_ROADSIDE_H
#define CARNET_ROADSIDE_H

#include "carnet-net-device.h"

#include "ns3/ipv6-address.h"
#include "ns3/net-device-container.h"
#include "ns3/node-container.h"

#include <memory>
#include <string>
#include <vector>

namespace carnet
{

/**
 * The kernel of a mobile router whose uplink is `gn0`. It receives Router Advertisements, makes addresses of
 * their prefixes, and reports both to the station. It leads packets to these addresses into the tunnel
 * device. It sends a packet from one of these addresses to the router of its prefix. The device is the node's
 * `carnet0`.
 */
class BusKernel
{
  public:
    /** \param device The tunnel device of the bus. */
    explicit BusKernel(ns3::Ptr<CarnetNetDevice> device);

    /** \return How often packets began to leave by another roadside unit than before. */
    uint64_t GetHandovers() const;

  private:
    struct Router
    {
        ns3::Ipv6Address address;
        ns3::Mac48Address station;
        ns3::Ipv6Address careOf;
    };

    bool FromAir(const std::vector<uint8_t>& packet, ns3::Mac48Address from);
    bool FromTunnel(const std::vector<uint8_t>& packet);
    void Advertised(const std::vector<uint8_t>& packet, ns3::Mac48Address from);
    void TellInterface();

    ns3::Ptr<CarnetNetDevice> m_device;
    ns3::Ipv6Address m_own;
    std::vector<Router> m_routers;
    ns3::Ipv6Address m_used;
    uint64_t m_handovers = 0;
};

/** A road with roadside units, a bus, a home agent and a correspondent node. */
struct Roadside
{
    ns3::NodeContainer nodes;          //!< The bus, the correspondent node, the home agent, the units.
    ns3::NetDeviceContainer devices;   //!< Those with stations: the bus, the home agent, the units.
    ns3::NetDeviceContainer radios;    //!< Of the bus and the units.
    ns3::Ipv6Address bus;              //!< In the mobile network.
    std::unique_ptr<BusKernel> kernel; //!< Of the bus.
};

/** How far it is from one roadside unit to the next, metres. */
constexpr double BETWEEN_UNITS = 500;

/**
 * Builds the road: units along it for as far as the bus drives.
 *
 * \param speed Of the bus, metres per second.
 * \param seconds How long it drives.
 * \param phy Kind of radio.
 * \param stations Folder of the stations' configs: bus, roadside-unit and home-agent.
 * \param seed Of the stations.
 * \return All of it.
 */
Roadside MakeRoadside(double speed, double seconds, const std::string& phy, const std::string& stations,
                      uint32_t seed);

} // namespace carnet

#endif // CARNET_ROADSIDE_H
