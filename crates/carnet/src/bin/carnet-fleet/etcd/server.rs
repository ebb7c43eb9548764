//! One server of the store, and the user's token for it.
//!
//! The client requests a token when it needs one. It stores a token for each server, because a server forgets
//! a token that no client uses with it. Only one task requests a token at a time. Tasks that wait for it get
//! the same token, or the same error.

use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use hyper::header::HeaderValue;
use tokio::sync::Mutex;
use tokio_rustls::rustls::pki_types::ServerName;

use super::{EtcdConnection, READ_TIMEOUT};
use crate::access::{EtcdUser, TlsSettings};

/// Time for which the client does not send a refused password again.
const REFUSED_LOGIN_PAUSE: Duration = Duration::from_secs(1);

/// One of the store's servers, with the token for it.
#[derive(Clone)]
pub struct StoreServer {
    /// Name and port of the server, `host:port`.
    pub address: String,
    pub(super) tls_with_name: Option<(Arc<TlsSettings>, ServerName<'static>)>,
    pub(super) etcd_user: Option<Arc<EtcdUser>>,
    state: Arc<Mutex<TokenState>>,
}

/// State of the token for one server.
#[derive(Default)]
struct TokenState {
    /// Token that the server gave last.
    current_token: ServerToken,
    /// Last failure to get a token: its time, whether etcd refused the user, and the reason. `None` after a
    /// new token.
    last_failure: Option<(Instant, bool, String)>,
}

/// A token that a server has given.
#[derive(Clone, Default)]
pub(super) struct ServerToken {
    /// Number of the token. Each new token has a higher number; 0 means that there has been no token.
    token_number: u64,
    /// Token as a header value; `None` if etcd needs no token.
    pub(super) value: Option<HeaderValue>,
}

impl StoreServer {
    /// Creates a server, with or without TLS and user.
    pub fn new(
        place: &str,
        tls: Option<(Arc<TlsSettings>, ServerName<'static>)>,
        user: Option<Arc<EtcdUser>>,
    ) -> StoreServer {
        StoreServer { address: place.to_owned(), tls_with_name: tls, etcd_user: user, state: Arc::default() }
    }

    /// Returns a token of the server. If `refused` is given, the server has refused that token, and the
    /// function returns a newer one.
    pub(super) async fn token_except(&self, refused: Option<&ServerToken>) -> anyhow::Result<ServerToken> {
        let Some(user) = self.etcd_user.clone() else { return Ok(ServerToken::default()) };
        let old = refused.map_or(0, |given| given.token_number);
        let wanted = Instant::now();
        {
            let state = self.state.lock().await;
            if state.current_token.token_number > old {
                return Ok(state.current_token.clone());
            }
        }
        // The token request continues even if the caller stops waiting. Otherwise a caller with a short
        // time limit would never get a token.
        let server = self.clone();
        let asked = tokio::spawn(async move {
            let mut state = server.state.lock().await;
            // Another task has received a new token while this task waited. Without this check, all waiting
            // tasks would send a request, one after the other. Further tasks would arrive faster than these
            // finish.
            if state.current_token.token_number > old {
                return Ok(state.current_token.clone());
            }
            if let Some((when, refused, why)) = &state.last_failure
                && (*when >= wanted || *refused && when.elapsed() < REFUSED_LOGIN_PAUSE)
            {
                bail!("{why}");
            }
            let question = async { EtcdConnection::connect_to(&server).await?.authenticate(&user).await };
            let answer = tokio::time::timeout(READ_TIMEOUT, question).await;
            let failed = match answer.context("no answer").flatten().context("cannot get a token") {
                Ok(Ok(value)) => {
                    *state = TokenState {
                        current_token: ServerToken {
                            token_number: state.current_token.token_number + 1,
                            value,
                        },
                        last_failure: None,
                    };
                    return Ok(state.current_token.clone());
                }
                Ok(Err(why)) => (true, format!("etcd refuses the user {:?} (access.user): {why}", user.name)),
                Err(error) => (false, format!("{error:#}")),
            };
            state.last_failure = Some((Instant::now(), failed.0, failed.1.clone()));
            bail!(failed.1)
        });
        asked.await?
    }
}

// Tokens must not appear in logs.
impl Debug for StoreServer {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.address)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use tokio::net::TcpListener;

    use super::*;

    /// The server accepts connections but does not answer. If each task sent its own request for a token,
    /// tasks would arrive faster than they finish.
    #[tokio::test]
    async fn concurrent_requests_share_one_failed_token_request() {
        let listener = TcpListener::bind("[::1]:0").await.expect("a port");
        let place = listener.local_addr().expect("an address").to_string();
        let server = StoreServer::new(&place, None, Some(Arc::new(EtcdUser::new("north", "secret"))));
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
        let waiting = join_all((0..20).map(|_| server.token_except(None))).await;
        let errors: Vec<String> =
            waiting.into_iter().map(|one| format!("{:#}", one.err().expect("no token"))).collect();
        assert!(errors.iter().all(|one| one.starts_with("cannot get a token")), "{errors:?}");
        assert!(!taking.is_finished(), "one asks for all");
        // The next task sends a new request.
        server.token_except(None).await.err().expect("no token");
        assert_eq!(taking.await.expect("it counts"), 2);
    }
}
