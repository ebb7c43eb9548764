//! Reasons for which the security entity drops a message.

use crate::coer;

carnet_base::drop_reasons! {
    /// Reason for which the security entity dropped a secured packet, or did not sign a packet. Each reason
    /// has its own counter.
    pub enum SecurityDrop {
        /// The octets are not a valid envelope.
        Malformed = "malformed",
        /// The envelope is valid by IEEE 1609.2, but not permitted by the profile of TS 103 097.
        NotInProfile = "not_in_profile",
        /// An envelope of a version other than 3.
        WrongVersion = "wrong_version",
        /// An unsigned packet under a policy that requires signatures.
        Unsecured = "unsecured",
        /// The envelope contains unsecured data.
        UnsecuredEnvelope = "unsecured_envelope",
        /// An encrypted message, for which the station has no key.
        Encrypted = "encrypted",
        /// The payload is outside the envelope (extDataHash).
        ExternalPayload = "external_payload",
        /// The envelope contains no signed payload.
        EmptyPayload = "empty_payload",
        /// A signature without a certificate (signer `self`).
        SelfSigned = "self_signed",
        /// The header contains a field that the profile forbids (TS 103 097 5.2).
        ForbiddenHeader = "forbidden_header",
        /// The header lacks generationTime (TS 103 097 5.2).
        NoGenerationTime = "no_generation_time",
        /// The profile requires generationLocation, and it is missing or has the value "unknown" (TS 103 097
        /// 7.1.2, 7.1.3).
        NoGenerationLocation = "no_generation_location",
        /// A CAM with generationLocation or expiryTime (TS 103 097 7.1.1).
        UnexpectedHeader = "unexpected_header",
        /// The signer is a digest, but the profile requires the certificate (TS 103 097 7.1.2).
        NoCertificate = "no_certificate",
        /// The generation time is too long ago.
        TooOld = "too_old",
        /// The generation time is in the future.
        FromTheFuture = "from_the_future",
        /// The expiryTime of the message has passed.
        Expired = "expired",
        /// The station has accepted the same message before.
        Replayed = "replayed",
        /// The message is one of this station's own, which another station forwarded. It was signed before
        /// the last change of pseudonym.
        FormerPseudonym = "former_pseudonym",
        /// The signer is a digest, and the certificate did not arrive while the message waited.
        UnknownSigner = "unknown_signer",
        /// This station does not know the issuer of the certificate.
        UnknownIssuer = "unknown_issuer",
        /// A certificate that the operator has revoked.
        Revoked = "revoked",
        /// A certificate that its issuer did not sign.
        BadCertificateSignature = "bad_certificate_signature",
        /// The certificate's key did not make the signature.
        BadSignature = "bad_signature",
        /// The signature uses another hash algorithm or curve than the certificate.
        AlgorithmMismatch = "algorithm_mismatch",
        /// A public key that is not a point on its curve.
        BadKey = "bad_key",
        /// The signer's certificate may not sign messages.
        WrongRole = "wrong_role",
        /// A certificate whose validity has not begun.
        CertificateNotYetValid = "certificate_not_yet_valid",
        /// A certificate whose validity has ended.
        CertificateExpired = "certificate_expired",
        /// Validity, region or permissions of a certificate exceed the limits of its issuer's certificate
        /// (IEEE 1609.2 5.1.2.4).
        InconsistentChain = "inconsistent_chain",
        /// The generation location is outside the certificate's region.
        OutsideRegion = "outside_region",
        /// The certificate lacks the application.
        NoPermission = "no_permission",
        /// The content of the message exceeds the certificate's SSP.
        NoServicePermission = "no_service_permission",
        /// The application does not match the payload.
        WrongApplication = "wrong_application",
        /// The content is not a GeoNetworking packet.
        BadPacket = "bad_packet",
        /// The packet's source position is not near the generation location.
        ImplausiblePosition = "implausible_position",
        /// The time of the packet's position is not near the generation time.
        ImplausibleTime = "implausible_time",
        /// A single-hop packet from beyond the radio range.
        TooFarAway = "too_far_away",
        /// The queue before verification had no room.
        QueueOverflow = "queue_overflow",
        /// The station had no room for another message that waits for a certificate.
        WaitingOverflow = "waiting_overflow",
        /// The message waited too long for verification to be useful.
        QueuedTooLong = "queued_too_long",
        /// This station has no ticket that is valid for this packet, now and at its position.
        NoTicket = "no_ticket",
        /// Own packet: the key did not sign.
        SigningFailed = "signing_failed",
        /// Forwarded packet: its envelope is no longer stored.
        EnvelopeForgotten = "envelope_forgotten",
    }
}

impl From<coer::Error> for SecurityDrop {
    fn from(error: coer::Error) -> SecurityDrop {
        match error {
            coer::Error::Profile { .. } => SecurityDrop::NotInProfile,
            _ => SecurityDrop::Malformed,
        }
    }
}
