//! The types of ETSI's ASN.1 modules, which `cargo xtask gen-asn1` writes. This file lists the modules.

/// Messages of stations with protocol version 1.
pub mod version1 {
    pub mod cam_pdu_descriptions;
    pub mod denm_pdu_descriptions;
    pub mod its_container;
}

/// Messages of all other stations.
pub mod release1 {
    pub mod cam_pdu_descriptions;
    pub mod denm_pdu_descriptions;
    pub mod its_container;
}

/// Messages of release 2: the messages of release 1 with later additions, and new messages.
pub mod release2 {
    pub mod cam_pdu_descriptions;
    pub mod cpm_originating_station_containers;
    pub mod cpm_pdu_descriptions;
    pub mod cpm_perceived_object_container;
    pub mod cpm_perception_region_container;
    pub mod cpm_sensor_information_container;
    pub mod denm_pdu_description;
    pub mod etsi_its_cdd;
    pub mod vam_pdu_descriptions;
}
