//! Tests of stored records, and of packets that wait for them.

use std::sync::Arc;

use carnet_mobility::mobile_router::StoredSequence;
use carnet_nemo::forwarding::desired::{EntryChange, ForwardingEntry, InterfaceAddress};
use carnet_station::io::NemoOutput;
use futures_util::FutureExt;

use super::queue::{COMMIT_INTERVAL, MAX_HELD_PACKETS};
use super::*;
use crate::scratch::ScratchFolder;

fn own_state(sequence: u16) -> PersistentState {
    PersistentState {
        mobile_router: Some(StoredSequence {
            sequence: Some(sequence),
            home_agent: None,
            last_notice: None,
            first_notice: None,
            early_notices: None,
        }),
        ..PersistentState::default()
    }
}

fn state_as_text(state: &PersistentState) -> Option<String> {
    Some(serde_json::to_string(state).expect("serialises"))
}

fn open_state_at(
    place: StorageLocation<'_>,
) -> anyhow::Result<(StateStore, PersistentState, Option<String>)> {
    StateStore::open_state(OpenedState::open_storage(place, "bus")?)
}

fn open_state_in(directory: &Path) -> (StateStore, PersistentState) {
    let (state, loaded, warning) = open_state_at(StorageLocation::Directory(directory)).expect("opens");
    assert_eq!(warning, None);
    (state, loaded)
}

fn packet(number: u8) -> Output {
    Output::Nemo(NemoOutput::Packet(vec![number]))
}

#[tokio::test]
async fn stored_records_survive_a_restart() {
    let scratch = ScratchFolder::new();
    let directory = scratch.path().join("deep/er");
    let (mut state, loaded) = open_state_in(&directory);
    assert_eq!(loaded, PersistentState::default());
    state.set_record((RecordKey::Own, state_as_text(&own_state(7))));
    assert_eq!(state.close_storage().await, []);
    drop(state);
    let (mut state, loaded) = open_state_in(&directory);
    assert_eq!(loaded, own_state(7));
    // The end of the station must also write changes that no commit contains yet.
    state.set_record((RecordKey::Own, state_as_text(&own_state(8))));
    state.close_storage().await;
    drop(state);
    assert_eq!(open_state_in(&directory).1, own_state(8));
}

#[tokio::test]
async fn packets_wait_for_their_commit_while_later_changes_gather() {
    let scratch = ScratchFolder::new();
    let (mut state, _) = open_state_in(scratch.path());
    state.set_record((RecordKey::Own, state_as_text(&own_state(1))));
    state.hold_packet(packet(1));
    state.hold_packet(packet(2));
    state.commit_changes(true);
    assert!(state.0.as_ref().is_some_and(|keeping| keeping.commit_queue.is_writing()));
    // These changes go together into the next commit.
    for number in 3..=5 {
        state.set_record((RecordKey::Own, state_as_text(&own_state(u16::from(number)))));
        state.hold_packet(packet(number));
        state.commit_changes(true);
    }
    assert_eq!(state.next_writer_event().await, WriterEvent::Written(1));
    assert_eq!(state.handle_writer_event(WriterEvent::Written(1)), (vec![packet(1), packet(2)], None));
    assert_eq!(state.next_writer_event().await, WriterEvent::Written(2));
    assert_eq!(
        state.handle_writer_event(WriterEvent::Written(2)),
        (vec![packet(3), packet(4), packet(5)], None)
    );
    assert!(state.next_writer_event().now_or_never().is_none());
    drop(state);
}

/// The first renewal is written at once, and later ones are written together. An urgent change causes a
/// commit of all waiting changes.
#[tokio::test(start_paused = true)]
async fn renewals_wait_for_a_common_commit() {
    let scratch = ScratchFolder::new();
    let (mut state, _) = open_state_in(scratch.path());
    let is_writing =
        |state: &StateStore| state.0.as_ref().is_some_and(|keeping| keeping.commit_queue.is_writing());
    let begin = Instant::now();
    for (number, presses, goes) in [(1, false, true), (2, false, false), (3, false, false)] {
        state.set_record((RecordKey::Own, state_as_text(&own_state(number))));
        state.hold_packet(packet(u8::try_from(number).expect("small")));
        state.commit_changes(presses);
        assert_eq!(is_writing(&state), goes, "{number}");
        if goes {
            let news = state.next_writer_event().await;
            assert_eq!(state.handle_writer_event(news), (vec![packet(1)], None));
        }
    }
    assert_eq!(state.next_writer_event().await, WriterEvent::Due);
    assert!(begin.elapsed() >= COMMIT_INTERVAL, "{:?}", begin.elapsed());
    assert_eq!(state.handle_writer_event(WriterEvent::Due), (vec![], None));
    assert!(is_writing(&state));
    let news = state.next_writer_event().await;
    assert_eq!(state.handle_writer_event(news), (vec![packet(2), packet(3)], None));
    // Urgent changes arrive while the disk is busy. They are written as soon as the disk is idle, together
    // with the other changes.
    for (number, presses) in [(4, true), (5, false), (6, true), (7, false)] {
        state.set_record((RecordKey::Own, state_as_text(&own_state(number))));
        state.hold_packet(packet(u8::try_from(number).expect("small")));
        state.commit_changes(presses);
        assert!(is_writing(&state));
    }
    for packets in [vec![packet(4)], vec![packet(5), packet(6), packet(7)]] {
        let news = state.next_writer_event().await;
        assert!(matches!(news, WriterEvent::Written(_)), "{news:?}");
        assert_eq!(state.handle_writer_event(news), (packets, None));
    }
    assert!(begin.elapsed() < COMMIT_INTERVAL * 2, "{:?}", begin.elapsed());
}

/// The log has one line when the failure begins and one line when it ends. No packet leaves in between.
#[tokio::test]
async fn a_disk_that_refuses_writes_is_logged_once() {
    let scratch = ScratchFolder::new();
    let (mut state, _) = open_state_in(scratch.path());
    state.set_record((RecordKey::Own, state_as_text(&own_state(1))));
    state.hold_packet(packet(1));
    state.commit_changes(true);
    let failing = || WriterEvent::Retrying("No space left on device".into());
    let (packets, told) = state.handle_writer_event(failing());
    assert_eq!(packets, []);
    assert!(told.is_some_and(|told| told.contains("acknowledges no registration")
        && told.contains(
            "No \
        space"
        )));
    assert_eq!(state.handle_writer_event(failing()), (vec![], None));
    let (packets, told) = state.handle_writer_event(WriterEvent::Written(1));
    assert_eq!((packets, told.as_deref()), (vec![packet(1)], Some("the state is being written again")));
    // The queue holds only a limited number of packets.
    for _ in 0..MAX_HELD_PACKETS + 10 {
        state.hold_packet(packet(9));
    }
    assert_eq!(
        state.0.as_ref().map(|keeping| keeping.commit_queue.held_packet_count()),
        Some(MAX_HELD_PACKETS)
    );
}

/// Without a state directory, an acknowledgement waits only for the fast path. In a batch, each
/// acknowledgement waits only for its own binding.
#[test]
fn packet_is_sent_only_after_the_fast_path_has_earlier_changes() {
    let address = "2001:db8:a::1".parse().expect("an address");
    let change = || {
        let (interface, prefix_length, deprecated) = ("i0".into(), 64, false);
        let entry =
            ForwardingEntry::Address(InterfaceAddress { interface, address, prefix_length, deprecated });
        Output::Nemo(NemoOutput::Forwarding(EntryChange::Set(Arc::new(entry))))
    };
    let mut burst = InputOutputs::default();
    let outputs =
        [packet(1), change(), change(), packet(2), packet(3), change(), packet(4), packet(5), change()];
    let order: String = outputs
        .into_iter()
        .map(|output| match burst.treatment_of_next(output) {
            OutputTreatment::Execute(Output::Nemo(NemoOutput::Forwarding(_))) => "change ",
            OutputTreatment::Execute(_) => "packet ",
            OutputTreatment::SendWhenInForce(_) => "commit packet ",
            OutputTreatment::Store(_) | OutputTreatment::Hold(_) => "later ",
        })
        .collect();
    assert_eq!(order, "packet change change commit packet packet change commit packet packet change ");
    assert!(burst.fast_path_outdated, "the last change is committed at the end of the burst");
    // A packet that has to wait for the disk waits longer than for the fast path, so the caller holds it.
    let mut burst = InputOutputs { holds_packets: true, ..InputOutputs::default() };
    assert!(matches!(burst.treatment_of_next(change()), OutputTreatment::Execute(_)));
    assert!(matches!(burst.treatment_of_next(packet(1)), OutputTreatment::Hold(_)));
    assert!(burst.fast_path_outdated);
}

#[tokio::test]
async fn without_state_dir_nothing_is_stored_and_no_packet_waits() {
    let (mut state, loaded, _) = open_state_at(StorageLocation::NotStored).expect("opens");
    assert_eq!((loaded, state.is_state_stored()), (PersistentState::default(), false));
    state.set_record((RecordKey::Own, state_as_text(&own_state(1))));
    state.commit_changes(true);
    assert!(state.next_writer_event().now_or_never().is_none());
    assert_eq!(state.close_storage().await, []);
}

#[tokio::test]
async fn state_of_earlier_version_is_read_and_invalid_state_refused() {
    let scratch = ScratchFolder::new();
    let old = scratch.path().join("bus.json");
    fs::write(&old, b"{\"mobile_router\": 5}").expect("writes");
    let refused = open_state_at(StorageLocation::Directory(scratch.path())).expect_err("refused");
    assert!(format!("{refused:#}").contains("bus.json cannot be used"), "{refused:#}");
    fs::write(&old, state_as_text(&own_state(7)).unwrap_or_default()).expect("writes");
    let (mut state, loaded) = open_state_in(scratch.path());
    assert_eq!((loaded, old.exists()), (own_state(7), false));
    state.close_storage().await;
    drop(state);
    let path = scratch.path().join("bus.state");
    let octets = fs::read(&path).expect("a file");
    fs::write(&path, [&octets[..octets.len() - 20], b"@ 1 0"].concat()).expect("writes");
    let (_, loaded, warning) = open_state_at(StorageLocation::Directory(scratch.path())).expect("opens");
    assert_eq!(loaded, PersistentState::default());
    assert!(warning.is_some_and(|warning| warning.contains("a crash interrupted")), "told");
}

/// The station sends changes to the store, and packets wait for the store's answer. If the store ends, the
/// station ends.
#[tokio::test]
async fn packet_waits_for_commit_of_remote_store() {
    use std::io::{BufRead, BufReader, Write};
    let scratch = ScratchFolder::new();
    let socket = scratch.path().join("store");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let (answer, answers) = mpsc::channel();
    let keeper = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the station");
        let text = serde_json::to_string(&("own", state_as_text(&own_state(7)))).expect("serialises");
        writeln!(stream, "{text}\n").expect("it reads");
        let mut lines = BufReader::new(stream.try_clone().expect("again")).lines();
        let commit = lines.next().expect("a commit").expect("a line");
        let () = answers.recv().expect("leave");
        writeln!(stream).expect("it reads");
        commit
    });
    let (mut state, loaded, warning) = open_state_at(StorageLocation::Store(&socket)).expect("opens");
    assert_eq!((loaded, warning), (own_state(7), None));
    state.set_record((RecordKey::Own, state_as_text(&own_state(8))));
    state.hold_packet(packet(1));
    state.commit_changes(true);
    assert!(state.next_writer_event().now_or_never().is_none());
    answer.send(()).expect("the keeper");
    let news = state.next_writer_event().await;
    assert_eq!(news, WriterEvent::Written(1));
    assert_eq!(state.handle_writer_event(news), (vec![packet(1)], None));
    let commit: Vec<(String, Option<String>)> =
        serde_json::from_str(&keeper.join().expect("the keeper")).expect("JSON");
    assert_eq!(commit, [("own".to_owned(), state_as_text(&own_state(8)))]);
    assert!(matches!(state.next_writer_event().await, WriterEvent::Lost(_)));
}

/// A station whose store has gone ends at once, even during a commit and with waiting changes, because
/// another machine is the leader.
#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_a_lost_remote_store() {
    use std::io::Write;
    let scratch = ScratchFolder::new();
    let socket = scratch.path().join("store");
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
    let (go, gone) = mpsc::channel();
    let keeper = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the station");
        writeln!(stream).expect("it reads");
        let () = gone.recv().expect("leave");
    });
    let (mut state, ..) = open_state_at(StorageLocation::Store(&socket)).expect("opens");
    state.set_record((RecordKey::Own, state_as_text(&own_state(8))));
    state.hold_packet(packet(1));
    state.commit_changes(true);
    state.set_record((RecordKey::Own, state_as_text(&own_state(9))));
    go.send(()).expect("the keeper");
    keeper.join().expect("the keeper");
    let lost = state.next_writer_event().await;
    assert!(matches!(lost, WriterEvent::Lost(_)), "{lost:?}");
    assert!(state.handle_writer_event(lost).1.is_some());
    let before = tokio::time::Instant::now();
    assert_eq!(state.close_storage().await, []);
    assert_eq!(before.elapsed(), Duration::ZERO);
}

/// A disk is full for a long time. The station does not send packets that waited for the disk, because they
/// are too old.
#[test]
fn packet_is_dropped_after_waiting_too_long_for_the_disk() {
    let mut queue = CommitQueue::new();
    let at = Time::from_secs;
    queue.set_record((RecordKey::Own, state_as_text(&own_state(1))));
    queue.hold_packet(at(1), packet(1));
    let (number, _) = queue.take_commit(at(1), true).expect("something to write");
    queue.set_record((RecordKey::Own, state_as_text(&own_state(2))));
    queue.hold_packet(at(20), packet(2));
    assert_eq!(queue.release_written(at(40), number), []);
    let (number, _) = queue.take_commit(at(40), true).expect("something to write");
    assert_eq!(queue.release_written(at(41), number), [packet(2)]);
}
