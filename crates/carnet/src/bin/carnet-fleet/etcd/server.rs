//! One of the store's servers, and the token of its user there.
//!
//! The client requests a token when it needs one, and keeps one for each server, because servers forget
//! tokens that are not used there. One task at a time requests it; tasks that wait meanwhile get the same
//! answer, or the same error.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hyper::header::HeaderValue;
use tokio::sync::Mutex;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{Connection, READ};
use crate::access::{Tls, User};

/// Time for which a refused password is not tried again.
const REFUSED: Duration = Duration::from_secs(1);

/// One of the store's servers.
#[derive(Clone)]
pub struct Server {
    /// `host:port`
    pub place: String,
    pub(super) tls: Option<(Arc<Tls>, ServerName<'static>)>,
    pub(super) user: Option<Arc<User>>,
    state: Arc<Mutex<State>>,
}

/// State of the token for a server.
#[derive(Default)]
struct State {
    /// Last received token.
    given: Given,
    /// Time and reason of the last failure, and whether etcd refused the user.
    failed: Option<(Instant, bool, String)>,
}

/// A token.
#[derive(Clone, Default)]
pub(super) struct Given {
    /// Number of the token; 0 for no token.
    number: u64,
    /// Token; `None` if etcd needs none.
    pub(super) value: Option<HeaderValue>,
}

impl Server {
    /// Creates a server, with or without TLS and user.
    pub fn new(place: &str, tls: Option<(Arc<Tls>, ServerName<'static>)>, user: Option<Arc<User>>) -> Server {
        Server { place: place.to_owned(), tls, user, state: Arc::default() }
    }

    /// Returns a token that differs from the refused one.
    pub(super) async fn token(&self, refused: Option<&Given>) -> anyhow::Result<Given> {
        let Some(user) = self.user.clone() else { return Ok(Given::default()) };
        let old = refused.map_or(0, |given| given.number);
        let wanted = Instant::now();
        {
            let state = self.state.lock().await;
            if state.given.number > old {
                return Ok(state.given.clone());
            }
        }
        // The request runs to its end even if its caller stops waiting. Otherwise a caller that never waits
        // long enough would never get a token.
        let server = self.clone();
        let asked = tokio::spawn(async move {
            let mut state = server.state.lock().await;
            // Another task has received one meanwhile. Otherwise all tasks that wait behind a failed request
            // would also send one, one after the other, and more would join than finish.
            if state.given.number > old {
                return Ok(state.given.clone());
            }
            if let Some((when, refused, why)) = &state.failed
                && (*when >= wanted || *refused && when.elapsed() < REFUSED)
            {
                bail!("{why}");
            }
            let question = async { Connection::to(&server).await?.authenticate(&user).await };
            let answer = tokio::time::timeout(READ, question).await;
            let failed = match answer.context("no answer").flatten().context("cannot have a token") {
                Ok(Ok(value)) => {
                    *state = State { given: Given { number: state.given.number + 1, value }, failed: None };
                    return Ok(state.given.clone());
                }
                Ok(Err(why)) => (true, format!("etcd refuses the user {:?} (access.user): {why}", user.name)),
                Err(error) => (false, format!("{error:#}")),
            };
            state.failed = Some((Instant::now(), failed.0, failed.1.clone()));
            bail!(failed.1)
        });
        asked.await?
    }
}

// Tokens are not for logs.
impl Debug for Server {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.place)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::net::TcpListener;

    use super::*;

    /// A server of etcd accepts connections but does not answer: more tasks would begin to wait than finish.
    #[tokio::test]
    async fn who_waits_for_a_token_that_cannot_be_had_does_not_ask_after_the_others() {
        let listener = TcpListener::bind("[::1]:0").await.expect("a port");
        let place = listener.local_addr().expect("an address").to_string();
        let server = Server::new(&place, None, Some(Arc::new(User::new("north", "secret"))));
        let taking = tokio::spawn(async move {
            let mut taken = 0;
            while let Ok((stream, _)) = listener.accept().await {
                taken += 1;
                drop(stream);
                if taken == 2 {
                    break;
                }
            }
            taken
        });
        let waiting = join_all((0..20).map(|_| server.token(None))).await;
        let errors: Vec<String> =
            waiting.into_iter().map(|one| format!("{:#}", one.err().expect("no token"))).collect();
        assert!(errors.iter().all(|one| one.starts_with("cannot have a token")), "{errors:?}");
        assert!(!taking.is_finished(), "one asks for all");
        // The next one asks again.
        server.token(None).await.err().expect("no token");
        assert_eq!(taking.await.expect("it counts"), 2);
    }
}
