/*
 * How the nodes of the scenarios move.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */

#ifndef CARNET_MOTION_H
#define CARNET_MOTION_H

#include "ns3/mobility-model.h"
#include "ns3/node-container.h"

#include <string>
#include <vector>

namespace carnet
{

/** Back and forth along the y axis at constant speed: the columns of the paper's figure 3. */
class ShuttleMobilityModel : public ns3::MobilityModel
{
  public:
    /** \return The type. */
    static ns3::TypeId GetTypeId();

    /**
     * \param centre In the middle of the track.
     * \param amplitude Metres from there to either end.
     * \param speed Metres per second.
     * \param phase Metres of the way (of which a round has four amplitudes) at the start.
     */
    void Set(ns3::Vector centre, double amplitude, double speed, double phase);

  private:
    ns3::Vector DoGetPosition() const override;
    void DoSetPosition(const ns3::Vector& position) override;
    ns3::Vector DoGetVelocity() const override;
    double Way() const;

    ns3::Vector m_centre;
    double m_amplitude = 0;
    double m_speed = 0;
    double m_phase = 0;
};

/** Along the x axis at constant speed, and from its end back to its beginning: a lane of a motorway. */
class LaneMobilityModel : public ns3::MobilityModel
{
  public:
    /** \return The type. */
    static ns3::TypeId GetTypeId();

    /**
     * \param start Where it is at the start.
     * \param speed Metres per second; negative the other way.
     * \param length Metres of the lane.
     */
    void Set(ns3::Vector start, double speed, double length);

  private:
    ns3::Vector DoGetPosition() const override;
    void DoSetPosition(const ns3::Vector& position) override;
    ns3::Vector DoGetVelocity() const override;

    ns3::Vector m_start;
    double m_speed = 0;
    double m_length = 1;
};

/** Along recorded points, straight on between them: a vehicle of SUMO. */
class TraceMobilityModel : public ns3::MobilityModel
{
  public:
    /** \return The type. */
    static ns3::TypeId GetTypeId();

    /** \param points Times (s) and places, in order. */
    void Set(std::vector<std::pair<double, ns3::Vector>> points);

  private:
    ns3::Vector DoGetPosition() const override;
    void DoSetPosition(const ns3::Vector& position) override;
    ns3::Vector DoGetVelocity() const override;
    size_t Index() const;

    std::vector<std::pair<double, ns3::Vector>> m_points;
    mutable size_t m_index = 0;
};

/** Interface of a scenario's motion. */
struct Motion
{
    std::string scenario = "columns"; //!< columns, waypoint, swarm, highway, trace.
    double speed = 0;                 //!< Metres per second.
    uint32_t nodes = 0;               //!< How many; 0 for the scenario's own number.
    std::string trace;                //!< File of a trace: lines "seconds,vehicle,x,y".
};

/**
 * Makes the nodes. The first one is the sender, the second one the receiver.
 *
 * \param motion What is asked.
 * \return The nodes, with mobility models.
 */
ns3::NodeContainer MakeNodes(const Motion& motion);

} // namespace carnet

#endif // CARNET_MOTION_H
