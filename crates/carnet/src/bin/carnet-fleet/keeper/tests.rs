//! Tests of the keeper, with a simulated etcd server.

use std::sync::{Arc, Mutex};

use carnet_fleet::LeaderToken;
use carnet_fleet::store::TokenState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::*;
use crate::access::EtcdUser;

fn test_transaction() -> StoreTransaction {
    let token = LeaderToken { member: "anna".into(), process: 1, count: 1, state: TokenState::Starting };
    StoreTransaction { expected_owner_revision: 0, token, changes: Vec::new() }
}

async fn listening_store() -> (TcpListener, StoreLocation) {
    let listener = TcpListener::bind("[::1]:0").await.expect("a port");
    let server = StoreServer::new(&listener.local_addr().expect("an address").to_string(), None, None);
    (listener, StoreLocation { store_servers: vec![server], prefix: KeyPrefix::of_seat("carnet", "north") })
}

/// Accepts the next connection, and reads one request from it.
async fn accept_request(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.expect("a connection");
    read_request(&mut stream).await.expect("a request");
    stream
}

/// Returns the next request on a connection; `None` after its end.
async fn read_request(stream: &mut TcpStream) -> Option<String> {
    let (mut text, mut octets) = (String::new(), [0; 4096]);
    let whole = |text: &str| {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        (body.len() == length.parse::<usize>().ok()?).then_some(())
    };
    while whole(&text).is_none() {
        let length = stream.read(&mut octets).await.ok().filter(|length| *length > 0)?;
        text += std::str::from_utf8(&octets[..length]).expect("text");
    }
    Some(text)
}

/// If etcd answers an earlier attempt after the next attempt has started, the answer still counts. Otherwise
/// transactions would never succeed with a slow etcd.
#[tokio::test]
async fn late_answer_of_etcd_still_counts() {
    let (listener, place) = listening_store().await;
    let (ask, to_make) = unbounded_channel();
    let (tell, mut told) = unbounded_channel();
    tokio::spawn(execute_transactions("north".into(), place, Duration::from_secs(3600), to_make, tell));
    ask.send((1, test_transaction())).expect("it runs");
    let mut first = accept_request(&listener).await;
    ask.send((2, test_transaction())).expect("it runs");
    let _second = accept_request(&listener).await;
    let body = r#"{"header":{"revision":"7"},"succeeded":true}"#;
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    first.write_all(answer.as_bytes()).await.expect("it is still wanted");
    let heard = told.recv().await;
    assert!(matches!(heard, Some(StoreMessage::Outcome(1, StoreTransactionOutcome::Done(7)))), "{heard:?}");
}

/// Answers of a store that has one user: the answer to a token request, and the answers to successive
/// transactions.
struct StoreWithUser {
    token_answer: (u16, &'static str),
    transaction_answers: Vec<(u16, String)>,
    /// If present, the simulated etcd answers a token request only after this notification.
    token_gate: Option<Arc<Notify>>,
}

const TOKEN_ANSWER: (u16, &str) = (200, r#"{"token":"TOKEN"}"#);
const SUCCESS_ANSWER: &str = r#"{"header":{"revision":"7"},"succeeded":true}"#;

impl StoreWithUser {
    /// Starts the store. Returns its location, and the path and token of each request.
    async fn start_store(self) -> (StoreLocation, UnboundedReceiver<String>) {
        let (listener, mut place) = listening_store().await;
        let user = Arc::new(EtcdUser::new("north", "secret"));
        place.store_servers[0] = StoreServer::new(&place.store_servers[0].address, None, Some(user));
        let (tell, told) = unbounded_channel();
        let (answers, count) =
            (Arc::new(Mutex::new(self.transaction_answers.into_iter())), Arc::new(Mutex::new(0)));
        let (gate, token) = (self.token_gate, self.token_answer);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (tell, answers, count, gate) =
                    (tell.clone(), answers.clone(), count.clone(), gate.clone());
                tokio::spawn(async move {
                    while let Some(text) = read_request(&mut stream).await {
                        let path = text.split(' ').nth(1).expect("a path");
                        let shown = text.lines().find_map(|line| line.strip_prefix("authorization: "));
                        let _ = tell.send(format!("{path} {}", shown.unwrap_or("-")));
                        let (status, body) = if path == "/v3/auth/authenticate" {
                            assert!(text.ends_with(r#"{"name":"north","password":"secret"}"#), "{text}");
                            if let Some(gate) = &gate {
                                gate.notified().await;
                            }
                            let mut count = count.lock().expect("it is whole");
                            *count += 1;
                            (token.0, token.1.replace("TOKEN", &format!("token{count}")))
                        } else {
                            answers.lock().expect("it is whole").next().expect("no more is asked")
                        };
                        let head =
                            format!("HTTP/1.1 {status} Of Course\r\nContent-Length: {}\r\n\r\n", body.len());
                        let answer = head + &body;
                        stream.write_all(answer.as_bytes()).await.expect("it is still wanted");
                    }
                });
            }
        });
        (place, told)
    }
}

fn take_requests(requests: &mut UnboundedReceiver<String>) -> Vec<String> {
    std::iter::from_fn(|| requests.try_recv().ok()).collect()
}

async fn transaction_result(store: &StoreLocation) -> anyhow::Result<StoreTransactionOutcome> {
    EtcdConnection::connect_to(&store.store_servers[0])
        .await?
        .execute_transaction(&store.prefix, &test_transaction())
        .await
}

/// The store refuses the token with the error text of etcd up to 3.5, and with that of later versions.
#[tokio::test]
async fn a_transaction_with_an_expired_token_is_repeated_with_a_new_token() {
    for refused in [
        (
            401,
            concat!(
                r#"{"error":"etcdserver: invalid auth token","#,
                r#""message":"etcdserver: invalid auth token","code":16}"#
            ),
        ),
        (401, r#"{"code":16,"message":"etcdserver: invalid auth token","details":[]}"#),
        (400, r#"{"code":3,"message":"etcdserver: user name is empty","details":[]}"#),
        (400, r#"{"code":3,"message":"etcdserver: revision of auth store is old","details":[]}"#),
    ] {
        let transactions = vec![
            (refused.0, refused.1.to_owned()),
            (200, SUCCESS_ANSWER.into()),
            (200, SUCCESS_ANSWER.into()),
        ];
        let (place, mut told) =
            StoreWithUser { token_answer: TOKEN_ANSWER, transaction_answers: transactions, token_gate: None }
                .start_store()
                .await;
        assert_eq!(
            transaction_result(&place).await.expect("it is made"),
            StoreTransactionOutcome::Done(7),
            "{refused:?}"
        );
        let authenticate = "/v3/auth/authenticate -";
        assert_eq!(
            take_requests(&mut told),
            [authenticate, "/v3/kv/txn token1", authenticate, "/v3/kv/txn token2"],
            "{refused:?}"
        );
        transaction_result(&place).await.expect("it is made");
        assert_eq!(take_requests(&mut told), ["/v3/kv/txn token2"]);
    }
}

/// etcd might still execute the first attempt. Then a second attempt would find a changed key, as if another
/// member had written it.
#[tokio::test]
async fn transaction_with_unknown_result_is_not_repeated() {
    for refused in [
        (503, r#"{"error":"etcdserver: request timed out","code":14}"#),
        (401, r#"{"error":"who are you?","code":16}"#),
        (401, "etcdserver: invalid auth token, says the proxy"),
        (403, r#"{"error":"etcdserver: permission denied","code":7}"#),
    ] {
        let transactions = vec![(refused.0, refused.1.to_owned())];
        let (place, mut told) =
            StoreWithUser { token_answer: TOKEN_ANSWER, transaction_answers: transactions, token_gate: None }
                .start_store()
                .await;
        let error = transaction_result(&place).await.expect_err("it is not known to be made").to_string();
        assert!(
            error.starts_with(&format!("etcd refused the request with HTTP status {}", refused.0)),
            "{error}"
        );
        assert_eq!(take_requests(&mut told), ["/v3/auth/authenticate -", "/v3/kv/txn token1"], "{refused:?}");
    }
}

/// A text of etcd, or of another server at its address, causes one log line only, whatever it contains.
#[tokio::test]
async fn error_quotes_only_the_start_of_an_unexpected_etcd_answer() {
    for (said, told) in [
        ("x".repeat(5000), "x".repeat(300)),
        (format!("{{\"error\":\"{}\"}}", "y".repeat(5000)), "y".repeat(300)),
        ("x".repeat(1 << 20), String::new()),
        ("one\n\u{1b}[2Jtwo\n".into(), "one\u{fffd}\u{fffd}[2Jtwo".into()),
    ] {
        let (place, _) = StoreWithUser {
            token_answer: TOKEN_ANSWER,
            transaction_answers: vec![(503, said)],
            token_gate: None,
        }
        .start_store()
        .await;
        let error = transaction_result(&place).await.expect_err("it is not known to be made").to_string();
        assert_eq!(
            error,
            format!("etcd refused the request with HTTP status 503 Service Unavailable: {told}")
        );
    }
}

/// A faulty server that repeats keys must not make the client read endlessly.
#[tokio::test]
async fn endless_pages_of_equal_keys_are_an_error() {
    let prefix = KeyPrefix::of_seat("carnet", "north");
    let page = |revision: &str| {
        // Base64 of "/carnet/north/owner".
        let key = "L2Nhcm5ldC9ub3J0aC9vd25lcg==";
        let pair = format!(r#"{{"key":"{key}","value":"e30=","mod_revision":"{revision}"}}"#);
        (200, format!(r#"{{"header":{{"revision":"{revision}"}},"kvs":[{pair}],"more":true}}"#))
    };
    let transactions = vec![page("18446744073709551615"), page("7"), page("7")];
    let (place, mut told) =
        StoreWithUser { token_answer: TOKEN_ANSWER, transaction_answers: transactions, token_gate: None }
            .start_store()
            .await;
    let mut open = EtcdConnection::connect_to(&place.store_servers[0]).await.expect("a connection");
    let error = open.read_seat(&prefix).await.expect_err("it has no end").to_string();
    assert_eq!(error, "expected only the requested keys in etcd's answer, found other keys");
    assert_eq!(take_requests(&mut told)[1..], ["/v3/kv/range token1", "/v3/kv/range token1"]);
    // No revision follows the largest one, but the watch must begin anyway.
    let known = StoreRevision::MAX;
    assert!(open.watch_seat(&prefix, known).await.is_ok());
}

/// etcd needs some work for each password, even for a wrong one. So the client waits before it sends a
/// refused password again. An unusable token does not count as a refused password.
#[tokio::test]
async fn a_password_that_is_refused_is_not_shown_each_time() {
    let wrong = "etcdserver: authentication failed, invalid user ID or password";
    let token =
        (400, r#"{"error":"etcdserver: authentication failed, invalid user ID or password","code":3}"#);
    let (place, mut told) =
        StoreWithUser { token_answer: token, transaction_answers: Vec::new(), token_gate: None }
            .start_store()
            .await;
    for _ in 0..50 {
        let error = transaction_result(&place).await.expect_err("it has no token").to_string();
        assert_eq!(error, format!("etcd refuses the user \"north\" (access.user): {wrong}"));
    }
    let shown = take_requests(&mut told).len();
    assert!(shown < 50, "{shown}");
    for token in [(200, r#"{"token":""}"#), (200, r#"{"token":"two\nlines"}"#), (200, "{}")] {
        let (place, mut told) =
            StoreWithUser { token_answer: token, transaction_answers: Vec::new(), token_gate: None }
                .start_store()
                .await;
        transaction_result(&place).await.expect_err("it has no token");
        assert_eq!(take_requests(&mut told), ["/v3/auth/authenticate -"]);
    }
}

/// An attempt lasts at most one lease. If etcd needs longer to check a password, the token request must
/// continue after the attempt, or no attempt would ever succeed.
#[tokio::test]
async fn token_request_continues_although_its_caller_gave_up() {
    let gate = Arc::new(Notify::new());
    let transactions = vec![(200, SUCCESS_ANSWER.into())];
    let (place, mut told) = StoreWithUser {
        token_answer: TOKEN_ANSWER,
        transaction_answers: transactions,
        token_gate: Some(gate.clone()),
    }
    .start_store()
    .await;
    tokio::select! {
        outcome = transaction_result(&place) => panic!("{outcome:?}"),
        asked = told.recv() => assert_eq!(asked.as_deref(), Some("/v3/auth/authenticate -")),
    }
    gate.notify_one();
    transaction_result(&place).await.expect("it is made");
    assert_eq!(take_requests(&mut told), ["/v3/kv/txn token1"]);
}

/// If etcd has no users, the client sends no token until etcd gets users.
#[tokio::test]
async fn etcd_without_authentication_gets_requests_without_token() {
    let token = (400, r#"{"error":"etcdserver: authentication is not enabled","code":9}"#);
    let transactions = vec![(200, SUCCESS_ANSWER.into()), (200, SUCCESS_ANSWER.into())];
    let (place, mut told) =
        StoreWithUser { token_answer: token, transaction_answers: transactions, token_gate: None }
            .start_store()
            .await;
    for _ in 0..2 {
        transaction_result(&place).await.expect("it is made");
    }
    assert_eq!(take_requests(&mut told), ["/v3/auth/authenticate -", "/v3/kv/txn -", "/v3/kv/txn -"]);
}

/// An ending home agent may still report a commit. If the answer to this commit went to the next home agent,
/// that one would send its acknowledgements one commit too early.
#[tokio::test]
async fn events_of_an_ending_process_do_not_count_for_the_next() {
    let (_listener, place) = listening_store().await;
    let recipe = AgentParameters {
        carnet_program: "/nonexistent".into(),
        config: "north.toml".into(),
        socket_directory: "/nonexistent".into(),
        name: "north".into(),
    };
    let config = LeadershipConfig::new("anna", vec!["anna".into()]);
    let mut keeper =
        SeatKeeper::new("north".into(), config, 1, place, recipe.clone(), watch::channel(Ok(())).1);
    let (transactions, mut made) = unbounded_channel();
    keeper.transaction_sender = transactions;
    keeper.carry_out_actions();
    keeper.handle_store_message(StoreMessage::Snapshot(
        1,
        StoreSnapshot { revision: 5, ..StoreSnapshot::default() },
    ));
    keeper.carry_out_actions();
    let (id, taking) = made.try_recv().expect("nobody has the seat");
    keeper.handle_store_message(StoreMessage::Outcome(id, StoreTransactionOutcome::Done(6)));
    let event = StoreEvent { key: StoreKey::Owner, value: Some(taking.token.to_text()) };
    keeper.handle_store_message(StoreMessage::Events(1, BTreeMap::from([(6, vec![event])])));
    keeper.carry_out_actions();
    assert!(
        matches!(keeper.agent_process, AgentProcessState::None(_, Some(_))),
        "{:?}",
        keeper.agent_process
    );
    keeper.agent_process = AgentProcessState::Ending(AgentProcess::start(recipe), Some(BTreeMap::new()));
    keeper.handle_agent_event(agent::AgentEvent::Commit(1, vec![("own".into(), Some("{}".into()))]));
    keeper.handle_agent_event(agent::AgentEvent::Working);
    keeper.carry_out_actions();
    while let Ok((_, transaction)) = made.try_recv() {
        assert_eq!((transaction.changes, transaction.token.state), (Vec::new(), TokenState::Starting));
    }
}
