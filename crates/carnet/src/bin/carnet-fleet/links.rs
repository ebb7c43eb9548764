//! Finds out whether this member of a fleet reaches its neighbouring routers. It does if all configured
//! interfaces have a carrier, and at least one of the configured neighbours answers.
//!
//! A neighbour counts as missing only after several requests without an answer. So a pause of this program
//! itself does not make its neighbours missing.

use std::future::pending;
use std::time::Duration;

use carnet_linux::{CarrierWatch, EchoRequests, ProbedNeighbour};
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

/// Number of unanswered requests after which neighbours count as missing.
const UNANSWERED_REQUEST_LIMIT: u32 = 4;
/// Pause after a failed request of this program to the kernel.
const REQUEST_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Links and neighbours that this member of the fleet watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedLinks {
    /// Interfaces that must all have a carrier.
    pub required_interfaces: Vec<String>,
    /// Neighbours, of which at least one must answer.
    pub neighbours_to_reach: Vec<ProbedNeighbour>,
    /// Time without any answer after which neighbours count as missing.
    pub silence_limit: Duration,
}

/// Verdict on the links: connected, or the reason why not.
pub type LinkVerdict = Result<(), String>;

/// Watchers of the links and the neighbours.
struct LinkWatchers {
    carrier_watch: CarrierWatch,
    /// Sender of requests to neighbours; `None` without neighbours.
    echo_requests: Option<EchoRequests>,
    request_interval: Interval,
    /// Number of requests since the last answer of a neighbour.
    unanswered_requests: u32,
    /// Whether a neighbour answers; `None` as long as the program does not know.
    neighbour_answers: Option<bool>,
}

impl WatchedLinks {
    /// Starts to watch the links. Returns when the first verdict is known.
    ///
    /// # Errors
    /// Returns an error if the kernel does not permit to watch links or to send requests.
    pub async fn start_watching(self) -> anyhow::Result<Receiver<LinkVerdict>> {
        let (tell, mut verdict) = channel(Ok(()));
        if !self.required_interfaces.is_empty() || !self.neighbours_to_reach.is_empty() {
            let mut asking = interval(self.silence_limit / UNANSWERED_REQUEST_LIMIT);
            asking.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let reached = self.neighbours_to_reach.is_empty().then_some(true);
            let echoes =
                reached.is_none().then(|| EchoRequests::open(self.neighbours_to_reach)).transpose()?;
            let carriers = CarrierWatch::open(self.required_interfaces)?;
            tokio::task::spawn_local(
                LinkWatchers {
                    carrier_watch: carriers,
                    echo_requests: echoes,
                    request_interval: asking,
                    unanswered_requests: 0,
                    neighbour_answers: reached,
                }
                .watch_links(tell),
            );
            verdict.changed().await?;
        }
        Ok(verdict)
    }
}

impl LinkWatchers {
    /// Sends the first verdict, and then each changed verdict.
    async fn watch_links(mut self, verdict_sender: Sender<LinkVerdict>) {
        let mut told = None;
        let mut found = self.current_verdict();
        loop {
            let failed = found.is_err();
            let verdict = found.unwrap_or_else(|error| Some(Err(format!("unknown: {error}"))));
            if let Some(verdict) = verdict.filter(|verdict| told.as_ref() != Some(verdict)) {
                told = Some(verdict.clone());
                if verdict_sender.send(verdict).is_err() {
                    return;
                }
            }
            if failed {
                sleep(REQUEST_RETRY_PAUSE).await;
            }
            found = self.wait_for_change().await.and_then(|()| self.current_verdict());
        }
    }

    /// Returns the present verdict; `None` as long as the state of a link or neighbour is unknown.
    fn current_verdict(&mut self) -> anyhow::Result<Option<LinkVerdict>> {
        if let Some(name) = self.carrier_watch.first_interface_without_carrier()? {
            return Ok(Some(Err(format!("{name} is not there, or has no carrier"))));
        }
        let missed = || format!("no neighbour in reach has answered {UNANSWERED_REQUEST_LIMIT} requests");
        Ok(self.neighbour_answers.map(|reached| reached.then_some(()).ok_or_else(missed)))
    }

    /// Waits until the verdict may have changed.
    async fn wait_for_change(&mut self) -> anyhow::Result<()> {
        let answered = async {
            match &self.echo_requests {
                Some(echoes) => echoes.wait_for_reply().await,
                None => pending().await,
            }
        };
        tokio::select! {
            // Answers that arrived while this program was stalled count before the timeout.
            biased;
            answered = answered => {
                answered?;
                (self.unanswered_requests, self.neighbour_answers) = (0, Some(true));
            }
            changed = self.carrier_watch.wait_for_carrier_change() => changed?,
            _ = self.request_interval.tick() => if let Some(echoes) = &mut self.echo_requests {
                if self.unanswered_requests >= UNANSWERED_REQUEST_LIMIT {
                    self.neighbour_answers = Some(false);
                }
                echoes.send_requests();
                self.unanswered_requests = self.unanswered_requests.saturating_add(1);
            }
        }
        Ok(())
    }
}
