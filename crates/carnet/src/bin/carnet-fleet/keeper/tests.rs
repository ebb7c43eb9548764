//! The keeper by itself, with a store that the test plays.

use carnet_fleet::Token;
use carnet_fleet::store::TokenState;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

fn transaction() -> Transaction {
    let token = Token { member: "anna".into(), process: 1, count: 1, state: TokenState::Starting };
    Transaction { expected: 0, token, changes: Vec::new() }
}

async fn store() -> (TcpListener, Place) {
    let listener = TcpListener::bind("[::1]:0").await.expect("a port");
    let server = Server(listener.local_addr().expect("an address").to_string());
    (listener, Place { servers: vec![server], prefix: Prefix::of("carnet", "north") })
}

/// The next connection, and the request that comes by it.
async fn asked(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.expect("a connection");
    let (mut text, mut octets) = (String::new(), [0; 4096]);
    let whole = |text: &str| {
        let (head, body) = text.split_once("\r\n\r\n")?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?;
        (body.len() == length.parse::<usize>().ok()?).then_some(())
    };
    while whole(&text).is_none() {
        let length = stream.read(&mut octets).await.expect("a request");
        assert!(length > 0, "{text}");
        text += std::str::from_utf8(&octets[..length]).expect("text");
    }
    stream
}

/// An attempt that takes longer than it takes until the next is made counts nevertheless: otherwise a store that takes that long
/// for each would never be heard.
#[tokio::test]
async fn a_store_that_is_slow_is_heard() {
    let (listener, place) = store().await;
    let (ask, to_make) = unbounded_channel();
    let (tell, mut told) = unbounded_channel();
    tokio::spawn(make("north".into(), place, Duration::from_secs(3600), to_make, tell));
    ask.send((1, transaction())).expect("it runs");
    let mut first = asked(&listener).await;
    ask.send((2, transaction())).expect("it runs");
    let _second = asked(&listener).await;
    let body = r#"{"header":{"revision":"7"},"succeeded":true}"#;
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    first.write_all(answer.as_bytes()).await.expect("it is still wanted");
    let heard = told.recv().await;
    assert!(matches!(heard, Some(FromStore::Outcome(1, Outcome::Done(7)))), "{heard:?}");
}

/// A commit of a home agent that has been told to end would be answered to the one that begins: from then on that one's
/// acknowledgements would leave one commit too early.
#[tokio::test]
async fn what_a_home_agent_says_that_ends_is_not_said_of_the_next() {
    let (_listener, place) = store().await;
    let recipe = Recipe {
        program: "/nonexistent".into(),
        config: "north.toml".into(),
        directory: "/nonexistent".into(),
        name: "north".into(),
    };
    let config = SeatConfig::new("anna", vec!["anna".into()]);
    let mut keeper = Keeper::new("north".into(), config, 1, place, recipe.clone());
    let (transactions, mut made) = unbounded_channel();
    keeper.transactions = transactions;
    keeper.carry_out();
    keeper.hear_store(FromStore::Snapshot(1, Snapshot { revision: 5, ..Snapshot::default() }));
    keeper.carry_out();
    let (id, taking) = made.try_recv().expect("nobody has the seat");
    keeper.hear_store(FromStore::Outcome(id, Outcome::Done(6)));
    let event = Event { key: Key::Owner, value: Some(taking.token.to_text()) };
    keeper.hear_store(FromStore::Events(1, BTreeMap::from([(6, vec![event])])));
    keeper.carry_out();
    assert!(matches!(keeper.process, Process::None(_, Some(_))), "{:?}", keeper.process);
    keeper.process = Process::Ends(Agent::start(recipe), Some(BTreeMap::new()));
    keeper.hear_agent(agent::News::Commit(1, vec![("own".into(), Some("{}".into()))]));
    keeper.hear_agent(agent::News::Working);
    keeper.carry_out();
    while let Ok((_, transaction)) = made.try_recv() {
        assert_eq!((transaction.changes, transaction.token.state), (Vec::new(), TokenState::Starting));
    }
}
