//! Why a message was not believed, or not sent.

use crate::coer;

carnet_base::drop_reasons! {
    /// Why a secured packet was dropped, or a packet was not secured. Each has a counter of its own.
    pub enum SecurityDrop {
        /// Octets that are no envelope.
        Malformed = "malformed",
        /// An envelope that IEEE 1609.2 knows and TS 103 097 does not let in.
        NotInProfile = "not_in_profile",
        /// Another version of the envelope than 3.
        WrongVersion = "wrong_version",
        /// A packet in the open, where all have to be signed.
        Unsecured = "unsecured",
        /// Unsecured data in an envelope.
        UnsecuredEnvelope = "unsecured_envelope",
        /// An encrypted message; the station has no key for it.
        Encrypted = "encrypted",
        /// A payload that is elsewhere (extDataHash).
        ExternalPayload = "external_payload",
        /// Nothing is signed.
        EmptyPayload = "empty_payload",
        /// A signature without a certificate (signer `self`).
        SelfSigned = "self_signed",
        /// A header with what the profile forbids (TS 103 097 5.2).
        ForbiddenHeader = "forbidden_header",
        /// No generationTime (TS 103 097 5.2).
        NoGenerationTime = "no_generation_time",
        /// No generationLocation, or an unknown place, where the profile has one (TS 103 097 7.1.2, 7.1.3).
        NoGenerationLocation = "no_generation_location",
        /// A generationLocation or an expiryTime in a CAM (TS 103 097 7.1.1).
        UnexpectedHeader = "unexpected_header",
        /// A digest for a signer where the profile has the certificate (TS 103 097 7.1.2).
        NoCertificate = "no_certificate",
        /// Made too long ago.
        TooOld = "too_old",
        /// Made later than now.
        FromTheFuture = "from_the_future",
        /// expiryTime has passed.
        Expired = "expired",
        /// The same message again.
        Replayed = "replayed",
        /// An own packet of before the last change of pseudonym, which others have sent on.
        FormerPseudonym = "former_pseudonym",
        /// A signer of whom only the name is known; the message waited for the certificate in vain.
        UnknownSigner = "unknown_signer",
        /// A certificate whose issuer is not known.
        UnknownIssuer = "unknown_issuer",
        /// A certificate that the operator believes no longer.
        Revoked = "revoked",
        /// A certificate that its issuer did not sign.
        BadCertificateSignature = "bad_certificate_signature",
        /// A signature that is not by the certificate's key.
        BadSignature = "bad_signature",
        /// A hash or curve other than the certificate's.
        AlgorithmMismatch = "algorithm_mismatch",
        /// A public key that is no point of its curve.
        BadKey = "bad_key",
        /// A signer's certificate that is for other things than signing messages.
        WrongRole = "wrong_role",
        /// A certificate that does not hold yet.
        CertificateNotYetValid = "certificate_not_yet_valid",
        /// A certificate that does not hold any more.
        CertificateExpired = "certificate_expired",
        /// A certificate that holds longer, further or for more than its issuer's (IEEE 1609.2 5.1.2.4).
        InconsistentChain = "inconsistent_chain",
        /// Made outside of the certificate's region.
        OutsideRegion = "outside_region",
        /// An application that the certificate does not have.
        NoPermission = "no_permission",
        /// Something is said that the certificate's SSP do not allow.
        NoServicePermission = "no_service_permission",
        /// The application is not that of the payload.
        WrongApplication = "wrong_application",
        /// The content is not a packet.
        BadPacket = "bad_packet",
        /// The packet's source is not where the message was made.
        ImplausiblePosition = "implausible_position",
        /// The packet's time is not when the message was made.
        ImplausibleTime = "implausible_time",
        /// A single hop is not as long as that.
        TooFarAway = "too_far_away",
        /// No room in the queue before verification.
        QueueOverflow = "queue_overflow",
        /// No room among the messages that wait for a certificate.
        WaitingOverflow = "waiting_overflow",
        /// Waited too long to be of use.
        QueuedTooLong = "queued_too_long",
        /// Own: there is no ticket that holds here and now for this.
        NoTicket = "no_ticket",
        /// Own: the key did not sign.
        SigningFailed = "signing_failed",
        /// Own: a packet of another station whose envelope is not there any more.
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
