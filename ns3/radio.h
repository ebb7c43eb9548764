/*
 * The radios of the scenarios.
 *
 * SPDX-License-Identifier: GPL-2.0-only
 */

#ifndef CARNET_RADIO_H
#define CARNET_RADIO_H

#include "ns3/error-rate-model.h"
#include "ns3/net-device-container.h"
#include "ns3/node-container.h"

#include <string>

namespace carnet
{

/**
 * Reception as in ns-2: a frame survives exactly if it is so many times as strong as what overlaps it.
 *
 * ns-3's own model of DSSS lets a frame of 1 or 2 Mb/s survive the overlap with one that is as strong (0 dB).
 */
class CaptureModel : public ns3::ErrorRateModel
{
  public:
    /** \return The type. */
    static ns3::TypeId GetTypeId();

  private:
    double DoGetChunkSuccessRate(ns3::WifiMode mode,
                                 const ns3::WifiTxVector& vector,
                                 double snr,
                                 uint64_t bits,
                                 uint8_t antennas,
                                 ns3::WifiPpduField field,
                                 uint16_t station) const override;

    double m_threshold = 10; //!< A ratio: 10 dB.
};

/** Capabilities of a radio. */
struct Radio
{
    /**
     * "ns2": the radio of the paper, 802.11b at 2 Mb/s over two-ray ground. It decodes frames to 250 m and
     * senses them to 550 m, with 10 dB capture. "range": the radio "ns2" with 250 m for both. "air": the
     * radio "ns2" over free space (decoded to 250 m), for aircraft. "80211p": 6 Mb/s in 10 MHz at 5.9 GHz,
     * some 400 m, for vehicles.
     */
    std::string kind = "ns2";
    uint32_t queue = 50; //!< Frames that wait at the MAC.
    bool rts = true;     //!< RTS/CTS before unicast frames.
};

/**
 * \param nodes Nodes with mobility models.
 * \param radio The radio.
 * \return Their radios, on one channel.
 */
ns3::NetDeviceContainer InstallRadio(const ns3::NodeContainer& nodes, const Radio& radio);

} // namespace carnet

#endif // CARNET_RADIO_H
