/*
 * Traffic of the scenarios, and its measurements.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */

#ifndef CARNET_TRAFFIC_H
#define CARNET_TRAFFIC_H

#include "ns3/address.h"
#include "ns3/event-id.h"
#include "ns3/node.h"
#include "ns3/nstime.h"
#include "ns3/packet.h"
#include "ns3/ptr.h"
#include "ns3/socket.h"

#include <set>

namespace carnet
{

/** A stream of numbered datagrams at a constant rate. */
class DatagramStream
{
  public:
    /** What came of it. */
    struct Result
    {
        uint64_t sent = 0;       //!< Datagrams.
        uint64_t received = 0;   //!< Datagrams, each once.
        uint64_t duplicates = 0; //!< Datagrams that came once more.
        uint64_t reordered = 0;  //!< Datagrams that came after a later one.
        double delay = 0;        //!< Seconds, of all received together.
        double longest = 0;      //!< Seconds, the longest delay.
        double outage = 0;       //!< Seconds, the longest time from one arrival to the next.
    };

    /**
     * \param from The sender.
     * \param to The receiver.
     * \param destination Its address and port.
     * \param rate Datagrams per second.
     * \param size Octets of the payload.
     * \param start When the first one is sent.
     * \param stop No further one is sent then.
     */
    void Start(ns3::Ptr<ns3::Node> from,
               ns3::Ptr<ns3::Node> to,
               const ns3::Address& destination,
               double rate,
               uint32_t size,
               ns3::Time start,
               ns3::Time stop);

    /** \return What came of it. */
    const Result& GetResult() const;

  private:
    void SendNext();
    void Receive(ns3::Ptr<ns3::Socket> socket);

    Result m_result;
    ns3::Ptr<ns3::Socket> m_sender;
    ns3::Ptr<ns3::Socket> m_receiver;
    ns3::Address m_destination;
    ns3::Time m_interval;
    ns3::Time m_stop;
    uint32_t m_size = 0;
    uint32_t m_latest = 0;
    ns3::Time m_arrival; //!< Of the last one; before that, when the first one was to be sent.
    std::set<uint32_t> m_seen;
};

} // namespace carnet

#endif // CARNET_TRAFFIC_H
