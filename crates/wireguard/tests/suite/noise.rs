//! Checks the octets of the handshake with another implementation of Noise, the crate `snow`.

use blake2::digest::{KeyInit, Mac};
use blake2::{Blake2s256, Blake2sMac, Digest};
use carnet_wireguard::{DatagramRoute, Output, PrivateKey, PublicKey, ReceivedDatagram};
use snow::{Builder, HandshakeState};

use crate::network::{
    TODAY_UNIX_SECONDS, TestNetwork, home_address, home_agent_private_key, new_engine, router_private_key,
    session_path, uplink_address,
};

const NOISE_PATTERN: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
const NOISE_PROLOGUE: &[u8] = b"WireGuard v1 zx2c4 Jason@zx2c4.com";
const NO_PRESHARED_KEY: [u8; 32] = [0; 32];

/// Writes the first MAC of a handshake message to the receiver with this public key, and zeros as the second
/// MAC.
pub fn write_mac1(message: &mut [u8], receiver: PublicKey) {
    let end = message.len() - 32;
    let key = Blake2s256::new_with_prefix(b"mac1----").chain_update(receiver.octets()).finalize();
    let mut mac = Blake2sMac::<blake2::digest::consts::U16>::new_from_slice(&key).expect("key of 32 octets");
    mac.update(&message[..end]);
    let (_, macs) = message.split_at_mut(end);
    macs[..16].copy_from_slice(&mac.finalize().into_bytes());
    macs[16..].fill(0);
}

fn noise_handshake(private: &PrivateKey, remote: Option<&PublicKey>, initiator: bool) -> HandshakeState {
    use base64::Engine as _;
    let private =
        base64::engine::general_purpose::STANDARD.decode(private.to_text().as_bytes()).expect("base64");
    let builder = Builder::new(NOISE_PATTERN.parse().expect("pattern"))
        .prologue(NOISE_PROLOGUE)
        .and_then(|builder| builder.psk(2, &NO_PRESHARED_KEY))
        .and_then(|builder| builder.local_private_key(&private))
        .expect("builder");
    match (remote, initiator) {
        (Some(remote), true) => builder.remote_public_key(remote.octets()).and_then(Builder::build_initiator),
        _ => builder.build_responder(),
    }
    .expect("handshake state")
}

fn data_message(index: u32, counter: u64, ciphertext: &[u8]) -> Vec<u8> {
    let mut octets = vec![4, 0, 0, 0];
    octets.extend(index.to_le_bytes());
    octets.extend(counter.to_le_bytes());
    octets.extend(ciphertext);
    octets
}

/// Returns a TAI64N timestamp of 2026 without a path number, as WireGuard in Linux writes it.
fn encoded_timestamp() -> [u8; 12] {
    let mut octets = [0; 12];
    octets[..8].copy_from_slice(&((1u64 << 62) + 37 + TODAY_UNIX_SECONDS).to_be_bytes());
    octets[8..].copy_from_slice(&0x0300_0000u32.to_be_bytes());
    octets
}

#[test]
fn another_implementation_opens_a_session_without_a_path_number() {
    let mut network = TestNetwork::new();
    let mut state =
        noise_handshake(&router_private_key(), Some(&home_agent_private_key().public_key()), true);
    let mut initiation = vec![0; 148];
    initiation[0] = 1;
    initiation[4..8].copy_from_slice(&0x1234_5678u32.to_le_bytes());
    assert_eq!(state.write_message(&encoded_timestamp(), &mut initiation[8..116]).expect("initiation"), 108);
    write_mac1(&mut initiation, home_agent_private_key().public_key());

    let route = DatagramRoute { socket: 0, remote: uplink_address(9) };
    let mut buffer = [0; 256];
    assert_eq!(
        network.home_agent_engine.receive_datagram(network.now, route, &initiation, &mut buffer),
        ReceivedDatagram::Queued
    );
    network.home_agent_engine.handle_waiting_handshakes(network.now, 1);
    let response = loop {
        match network.home_agent_engine.poll_output().expect("response") {
            Output::Send { datagram, .. } => break datagram,
            other => network.home_agent_outputs.push(other),
        }
    };
    assert_eq!((response[0], response.len()), (2, 92));
    assert_eq!(response[8..12], 0x1234_5678u32.to_le_bytes());
    let mut checked = response.to_vec();
    write_mac1(&mut checked, router_private_key().public_key());
    assert_eq!(checked[..], response[..], "the first MAC of the response");
    assert_eq!(state.read_message(&response[12..60], &mut [0; 16]).expect("response"), 0);

    let index = u32::from_le_bytes(response[4..8].try_into().expect("index"));
    let transport = state.into_stateless_transport_mode().expect("session");
    let mut ciphertext = [0; 64];
    let length = transport.write_message(0, b"sixteen octets !", &mut ciphertext).expect("ciphertext");
    let received = network.home_agent_engine.receive_datagram(
        network.now,
        route,
        &data_message(index, 0, &ciphertext[..length]),
        &mut buffer,
    );
    let ReceivedDatagram::Payload { path: from, payload, .. } = received else { panic!("{received:?}") };
    assert_eq!((from, &payload[..]), (session_path(0), &b"sixteen octets !"[..]));

    let mut datagram = [0; 128];
    let (to, length) = network
        .home_agent_engine
        .send_payload(network.now, session_path(0), b"an answer", &mut datagram)
        .expect("session");
    assert_eq!(to, route);
    assert_eq!(datagram[4..8], 0x1234_5678u32.to_le_bytes());
    let mut plain = [0; 64];
    let length = transport.read_message(0, &datagram[16..length], &mut plain).expect("plaintext");
    assert_eq!(&plain[..length], b"an answer\0\0\0\0\0\0\0");
}

#[test]
fn another_implementation_reads_the_path_number_and_answers() {
    let now = carnet_base::Time::from_secs(100);
    let mut router =
        new_engine(router_private_key(), 3, now, TODAY_UNIX_SECONDS, home_agent_private_key().public_key());
    let route = DatagramRoute { socket: 5, remote: home_address() };
    assert!(router.open_session(now, session_path(5), route));
    let Some(Output::Send { datagram: initiation, .. }) = router.poll_output() else {
        panic!("no initiation")
    };
    let mut checked = initiation.to_vec();
    write_mac1(&mut checked, home_agent_private_key().public_key());
    assert_eq!(checked[..], initiation[..], "the first MAC of the initiation");

    let mut state = noise_handshake(&home_agent_private_key(), None, false);
    let mut timestamp = [0; 12];
    assert_eq!(state.read_message(&initiation[8..116], &mut timestamp).expect("initiation"), 12);
    assert_eq!(state.get_remote_static(), Some(&router_private_key().public_key().octets()[..]));
    let seconds = u64::from_be_bytes(timestamp[..8].try_into().expect("seconds"));
    assert_eq!(seconds, (1 << 62) + 37 + TODAY_UNIX_SECONDS);
    assert_eq!(timestamp[9..], [0x43, 0x41, 5], "the mark and the path number");

    let mut response = vec![0; 92];
    response[0] = 2;
    response[4..8].copy_from_slice(&77u32.to_le_bytes());
    response[8..12].copy_from_slice(&initiation[4..8]);
    assert_eq!(state.write_message(&[], &mut response[12..60]).expect("response"), 48);
    write_mac1(&mut response, router_private_key().public_key());
    let mut buffer = [0; 256];
    assert_eq!(router.receive_datagram(now, route, &response, &mut buffer), ReceivedDatagram::Queued);
    router.handle_waiting_handshakes(now, 1);
    let Some(Output::Send { datagram: keepalive, .. }) = router.poll_output() else { panic!("no keepalive") };
    assert_eq!(keepalive.len(), 32);
    assert_eq!(keepalive[..8], [4, 0, 0, 0, 77, 0, 0, 0]);
    let transport = state.into_stateless_transport_mode().expect("session");
    assert_eq!(transport.read_message(0, &keepalive[16..], &mut [0; 16]).expect("keepalive"), 0);
    assert!(router.is_established(session_path(5)));
}
