/*
 * The paper's two changes of TCP, for comparison: both are ns-3's TCP but for what is told here.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */

#ifndef CARNET_TCP_VARIANTS_H
#define CARNET_TCP_VARIANTS_H

#include "ns3/event-id.h"
#include "ns3/node-container.h"
#include "ns3/socket-factory.h"
#include "ns3/tag.h"
#include "ns3/tcp-socket-base.h"

#include <string>

namespace carnet
{

/** How many hops of GeoNetworking a packet has come. IP sees only one, so that its TTL tells nothing. */
class HopTag : public ns3::Tag
{
  public:
    /** \return The type. */
    static ns3::TypeId GetTypeId();
    ns3::TypeId GetInstanceTypeId() const override;
    uint32_t GetSerializedSize() const override;
    void Serialize(ns3::TagBuffer buffer) const override;
    void Deserialize(ns3::TagBuffer buffer) override;
    void Print(std::ostream& out) const override;

    uint8_t hops = 0; //!< Hops; 0 where that is not known.
};

/**
 * Fixed-RTO (Dyer, Boppana). A second timeout for the same segment means a broken path, and does not double
 * the RTO.
 */
class FixedRtoSocket : public ns3::TcpSocketBase
{
  public:
    /** \return The type. */
    static ns3::TypeId GetTypeId();

  protected:
    void ReTxTimeout() override;
    ns3::Ptr<ns3::TcpSocketBase> Fork() override;

  private:
    ns3::SequenceNumber32 m_timedOut;
    bool m_any = false;
};

/**
 * The paper's receiver (section 5.2). A segment above a gap has overtaken others if it came over another
 * number of hops than the last segment in order. The receiver answers it by a duplicate ACK only if the gap
 * still exists after SRTT + 4 RTTVAR. The receiver computes this time from timestamps.
 */
class PatientReceiverSocket : public ns3::TcpSocketBase
{
  public:
    /** \return The type. */
    static ns3::TypeId GetTypeId();

    /** Counts over all sockets. */
    struct Counters
    {
        uint64_t above = 0;  //!< Segments above a gap.
        uint64_t held = 0;   //!< Duplicate ACKs that were held back.
        uint64_t spared = 0; //!< Those of them that were never sent.
    };

    /** \return What came of it. */
    static const Counters& GetCounters();

  protected:
    ns3::Ptr<ns3::TcpSocketBase> Fork() override;
    void DoForwardUp(ns3::Ptr<ns3::Packet> packet,
                     const ns3::Address& from,
                     const ns3::Address& to) override;
    void ReceivedData(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader& header) override;
    void SendEmptyPacket(uint8_t flags) override;

  private:
    void Give();
    void Measure(const ns3::TcpHeader& header);
    ns3::Time Wait() const;

    uint8_t m_hops = 0;
    uint8_t m_hopsInOrder = 0;
    bool m_judged = false;
    uint32_t m_heldAcks = 0;
    ns3::EventId m_timer;
    double m_srtt = 0;
    double m_rttvar = 0;
};

/** Makes sockets of one of these types; for `Socket::CreateSocket` and applications. */
template <typename SOCKET>
class VariantFactory : public ns3::SocketFactory
{
  public:
    /** \return The type. */
    static ns3::TypeId GetTypeId();
    ns3::Ptr<ns3::Socket> CreateSocket() override;

    ns3::Ptr<ns3::Node> node; //!< Whose sockets they are.
};

using FixedRtoFactory = VariantFactory<FixedRtoSocket>;
using PatientReceiverFactory = VariantFactory<PatientReceiverSocket>;

/**
 * \param nodes Nodes with TCP, which can make such sockets afterwards.
 */
void InstallTcpVariants(const ns3::NodeContainer& nodes);

} // namespace carnet

#endif // CARNET_TCP_VARIANTS_H
