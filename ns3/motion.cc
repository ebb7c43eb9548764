/*
 * SPDX-License-Identifier: GPL-2.0-only
 */

#include "motion.h"

#include "ns3/constant-position-mobility-model.h"
#include "ns3/double.h"
#include "ns3/mobility-helper.h"
#include "ns3/node.h"
#include "ns3/pointer.h"
#include "ns3/position-allocator.h"
#include "ns3/random-variable-stream.h"
#include "ns3/random-waypoint-mobility-model.h"
#include "ns3/simulator.h"
#include "ns3/string.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

using namespace ns3;

namespace carnet
{

NS_OBJECT_ENSURE_REGISTERED(ShuttleMobilityModel);
NS_OBJECT_ENSURE_REGISTERED(LaneMobilityModel);
NS_OBJECT_ENSURE_REGISTERED(TraceMobilityModel);

TypeId
ShuttleMobilityModel::GetTypeId()
{
    static TypeId id =
        TypeId("carnet::ShuttleMobilityModel").SetParent<MobilityModel>().AddConstructor<ShuttleMobilityModel>();
    return id;
}

void
ShuttleMobilityModel::Set(Vector centre, double amplitude, double speed, double phase)
{
    m_centre = centre;
    m_amplitude = amplitude;
    m_speed = speed;
    m_phase = phase;
}

double
ShuttleMobilityModel::Way() const
{
    double way = std::fmod(m_phase + m_speed * Simulator::Now().GetSeconds(), 4 * m_amplitude);
    return way < 0 ? way + 4 * m_amplitude : way;
}

// From the middle up, all the way down, and up to the middle again.
Vector
ShuttleMobilityModel::DoGetPosition() const
{
    double way = Way();
    double y = way < m_amplitude       ? way
               : way < 3 * m_amplitude ? 2 * m_amplitude - way
                                       : way - 4 * m_amplitude;
    return {m_centre.x, m_centre.y + y, m_centre.z};
}

Vector
ShuttleMobilityModel::DoGetVelocity() const
{
    double way = Way();
    bool down = way >= m_amplitude && way < 3 * m_amplitude;
    return {0, down ? -m_speed : m_speed, 0};
}

void
ShuttleMobilityModel::DoSetPosition(const Vector& position)
{
    m_centre = position;
}

TypeId
LaneMobilityModel::GetTypeId()
{
    static TypeId id =
        TypeId("carnet::LaneMobilityModel").SetParent<MobilityModel>().AddConstructor<LaneMobilityModel>();
    return id;
}

void
LaneMobilityModel::Set(Vector start, double speed, double length)
{
    m_start = start;
    m_speed = speed;
    m_length = length;
}

Vector
LaneMobilityModel::DoGetPosition() const
{
    double x = std::fmod(m_start.x + m_speed * Simulator::Now().GetSeconds(), m_length);
    return {x < 0 ? x + m_length : x, m_start.y, m_start.z};
}

Vector
LaneMobilityModel::DoGetVelocity() const
{
    return {m_speed, 0, 0};
}

void
LaneMobilityModel::DoSetPosition(const Vector& position)
{
    m_start = position;
}

TypeId
TraceMobilityModel::GetTypeId()
{
    static TypeId id =
        TypeId("carnet::TraceMobilityModel").SetParent<MobilityModel>().AddConstructor<TraceMobilityModel>();
    return id;
}

void
TraceMobilityModel::Set(std::vector<std::pair<double, Vector>> points)
{
    m_points = std::move(points);
}

// The last point that is not in the future; time goes forward only.
size_t
TraceMobilityModel::Index() const
{
    double now = Simulator::Now().GetSeconds();
    while (m_index + 1 < m_points.size() && m_points[m_index + 1].first <= now)
    {
        m_index++;
    }
    return m_index;
}

Vector
TraceMobilityModel::DoGetPosition() const
{
    const auto& from = m_points[Index()];
    Vector velocity = DoGetVelocity();
    double since = Simulator::Now().GetSeconds() - from.first;
    return {from.second.x + velocity.x * since, from.second.y + velocity.y * since, from.second.z + velocity.z * since};
}

Vector
TraceMobilityModel::DoGetVelocity() const
{
    size_t index = Index();
    if (index + 1 >= m_points.size() || Simulator::Now().GetSeconds() < m_points[index].first)
    {
        return {0, 0, 0};
    }
    double span = m_points[index + 1].first - m_points[index].first;
    const Vector& from = m_points[index].second;
    const Vector& to = m_points[index + 1].second;
    return {(to.x - from.x) / span, (to.y - from.y) / span, (to.z - from.z) / span};
}

void
TraceMobilityModel::DoSetPosition(const Vector& position)
{
    m_points = {{0, position}};
}

namespace
{

void
Put(Ptr<Node> node, Vector place)
{
    auto mobility = CreateObject<ConstantPositionMobilityModel>();
    mobility->SetPosition(place);
    node->AggregateObject(mobility);
}

// Three columns of four nodes between sender and receiver, neighbouring columns in opposite directions. The paper does
// not say what happens at the end of the track; here they turn round. A way of four hops always exists.
void
Columns(const NodeContainer& nodes, const Motion& motion)
{
    auto random = CreateObject<UniformRandomVariable>();
    double phase = random->GetValue(0, 800);
    Put(nodes.Get(0), {0, 0, 0});
    Put(nodes.Get(1), {800, 0, 0});
    for (uint32_t i = 2; i < nodes.GetN(); i++)
    {
        uint32_t column = (i - 2) / 4;
        uint32_t row = (i - 2) % 4;
        auto mobility = CreateObject<ShuttleMobilityModel>();
        // Half a round later is the mirrored way.
        mobility->Set({200.0 * (column + 1), -300 + 200.0 * row, 0}, 200, motion.speed, phase + (column % 2) * 400);
        nodes.Get(i)->AggregateObject(mobility);
    }
}

void
Waypoints(const NodeContainer& nodes, const Motion& motion, double width, double height, double floor, uint32_t first)
{
    auto coordinate = [](double low, double high) {
        auto random = CreateObject<UniformRandomVariable>();
        random->SetAttribute("Min", DoubleValue(low));
        random->SetAttribute("Max", DoubleValue(high));
        return PointerValue(random);
    };
    MobilityHelper mobility;
    auto places = CreateObject<RandomBoxPositionAllocator>();
    places->SetAttribute("X", coordinate(0, width));
    places->SetAttribute("Y", coordinate(0, width));
    places->SetAttribute("Z", coordinate(floor, height));
    mobility.SetPositionAllocator(places);
    mobility.SetMobilityModel("ns3::RandomWaypointMobilityModel",
                              "Speed",
                              StringValue("ns3::ConstantRandomVariable[Constant=" + std::to_string(motion.speed) + "]"),
                              "Pause",
                              StringValue("ns3::ConstantRandomVariable[Constant=0]"),
                              "PositionAllocator",
                              PointerValue(places));
    for (uint32_t i = first; i < nodes.GetN(); i++)
    {
        mobility.Install(nodes.Get(i));
    }
}

// Three lanes each way, 100 vehicles per kilometre of the whole road.
void
Highway(const NodeContainer& nodes, const Motion& motion)
{
    auto random = CreateObject<UniformRandomVariable>();
    double length = std::max(1000.0, nodes.GetN() * 10.0);
    double speed = motion.speed > 0 ? motion.speed : 33;
    for (uint32_t i = 0; i < nodes.GetN(); i++)
    {
        uint32_t lane = i % 6;
        double direction = lane < 3 ? 1 : -1;
        auto mobility = CreateObject<LaneMobilityModel>();
        double x = i < 2 ? length * (0.4 + 0.2 * i) : random->GetValue(0, length);
        // Sender and receiver in the same lane.
        double drawn = speed * random->GetValue(0.8, 1.2);
        mobility->Set({x, i < 2 ? 0.0 : 4.0 * lane, 0}, i < 2 ? speed : direction * drawn, length);
        nodes.Get(i)->AggregateObject(mobility);
    }
}

// Vehicles that are there all the time; the first two are those that are farthest apart at the start.
NodeContainer
FromTrace(const Motion& motion)
{
    std::ifstream file(motion.trace);
    NS_ABORT_MSG_UNLESS(file, "cannot read the trace " << motion.trace);
    std::map<std::string, std::vector<std::pair<double, Vector>>> vehicles;
    std::string line;
    double last = 0;
    size_t number = 0;
    while (std::getline(file, line))
    {
        char name[64];
        double time;
        double x;
        double y;
        number++;
        NS_ABORT_MSG_UNLESS(std::sscanf(line.c_str(), "%lf,%63[^,],%lf,%lf", &time, name, &x, &y) == 4,
                            motion.trace << ":" << number << ": expected seconds,vehicle,x,y, got " << line);
        vehicles[name].emplace_back(time, Vector{x, y, 0});
        last = std::max(last, time);
    }
    std::vector<std::vector<std::pair<double, Vector>>> all;
    for (auto& [name, points] : vehicles)
    {
        if (points.front().first <= 0 && points.back().first >= last)
        {
            all.push_back(std::move(points));
        }
    }
    NS_ABORT_MSG_UNLESS(all.size() >= 2, motion.trace << " has fewer than two vehicles that are there all the time");
    size_t a = 0;
    size_t b = 1;
    double farthest = 0;
    for (size_t i = 0; i < all.size(); i++)
    {
        for (size_t j = i + 1; j < all.size(); j++)
        {
            double distance = CalculateDistance(all[i][0].second, all[j][0].second);
            if (distance > farthest && distance < 900)
            {
                farthest = distance;
                a = i;
                b = j;
            }
        }
    }
    std::swap(all[0], all[a]);
    std::swap(all[1], all[b == 0 ? a : b]);
    if (motion.nodes > 1 && all.size() > motion.nodes)
    {
        all.resize(motion.nodes);
    }
    NodeContainer nodes;
    nodes.Create(all.size());
    for (uint32_t i = 0; i < all.size(); i++)
    {
        auto mobility = CreateObject<TraceMobilityModel>();
        mobility->Set(std::move(all[i]));
        nodes.Get(i)->AggregateObject(mobility);
    }
    return nodes;
}

} // namespace

NodeContainer
MakeNodes(const Motion& motion)
{
    NodeContainer nodes;
    auto create = [&](uint32_t usual) { nodes.Create(motion.nodes ? motion.nodes : usual); };
    if (motion.scenario == "columns")
    {
        nodes.Create(14);
        Columns(nodes, motion);
    }
    else if (motion.scenario == "waypoint")
    {
        create(42);
        Put(nodes.Get(0), {200, 500, 0});
        Put(nodes.Get(1), {800, 500, 0});
        Waypoints(nodes, motion, 1000, 0, 0, 2);
    }
    else if (motion.scenario == "swarm")
    {
        // Two on the ground, the others between 50 and 250 m above it.
        create(50);
        Put(nodes.Get(0), {150, 500, 2});
        Put(nodes.Get(1), {850, 500, 2});
        Waypoints(nodes, motion, 1000, 250, 50, 2);
    }
    else if (motion.scenario == "highway")
    {
        create(1000);
        Highway(nodes, motion);
    }
    else if (motion.scenario == "trace")
    {
        return FromTrace(motion);
    }
    else
    {
        NS_FATAL_ERROR("no such scenario: " << motion.scenario
                                            << ", expected columns, waypoint, swarm, highway or trace");
    }
    return nodes;
}

} // namespace carnet
