//! Finds out whether this member reaches its routers. It does if all its interfaces have a carrier and at
//! least one of its neighbours answers.
//!
//! A neighbour counts as missing only after several requests without an answer. So a pause of this program
//! itself does not make its neighbours missing.

use std::future::pending;
use std::time::Duration;

use carnet_linux::{CarrierWatch, EchoRequests, ProbedNeighbour};
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

/// Number of unanswered requests after which neighbours count as missing.
const ATTEMPTS: u32 = 4;
/// Pause after a failed request of this program to the kernel.
const AGAIN: Duration = Duration::from_secs(1);

/// Links and neighbours that this member of the fleet watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedLinks {
    /// Interfaces that must all have a carrier.
    pub links: Vec<String>,
    /// Neighbours, of which at least one must answer.
    pub reach: Vec<ProbedNeighbour>,
    /// Time without any answer after which neighbours count as missing.
    pub silence: Duration,
}

/// Verdict on the links: connected, or the reason why not.
pub type Verdict = Result<(), String>;

/// Watchers of the links and the neighbours.
struct Links {
    carriers: CarrierWatch,
    /// Sender of requests to neighbours; `None` without neighbours.
    echoes: Option<EchoRequests>,
    asking: Interval,
    /// Number of requests since the last answer of a neighbour.
    unanswered: u32,
    /// Whether a neighbour answers; `None` as long as the program does not know.
    reached: Option<bool>,
}

impl WatchedLinks {
    /// Starts to watch the links. Returns when the first verdict is known.
    ///
    /// # Errors
    /// Returns an error if the kernel does not permit to watch links or to send requests.
    pub async fn begin(self) -> anyhow::Result<Receiver<Verdict>> {
        let (tell, mut verdict) = channel(Ok(()));
        if !self.links.is_empty() || !self.reach.is_empty() {
            let mut asking = interval(self.silence / ATTEMPTS);
            asking.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let reached = self.reach.is_empty().then_some(true);
            let echoes = reached.is_none().then(|| EchoRequests::open(self.reach)).transpose()?;
            let carriers = CarrierWatch::open(self.links)?;
            tokio::task::spawn_local(Links { carriers, echoes, asking, unanswered: 0, reached }.watch(tell));
            verdict.changed().await?;
        }
        Ok(verdict)
    }
}

impl Links {
    /// Sends the first verdict, and then each changed verdict.
    async fn watch(mut self, tell: Sender<Verdict>) {
        let mut told = None;
        let mut found = self.verdict();
        loop {
            let failed = found.is_err();
            let verdict = found.unwrap_or_else(|error| Some(Err(format!("unknown: {error}"))));
            if let Some(verdict) = verdict.filter(|verdict| told.as_ref() != Some(verdict)) {
                told = Some(verdict.clone());
                if tell.send(verdict).is_err() {
                    return;
                }
            }
            if failed {
                sleep(AGAIN).await;
            }
            found = self.wait().await.and_then(|()| self.verdict());
        }
    }

    /// Returns the present verdict; `None` as long as the state of a link or neighbour is unknown.
    fn verdict(&mut self) -> anyhow::Result<Option<Verdict>> {
        if let Some(name) = self.carriers.first_interface_without_carrier()? {
            return Ok(Some(Err(format!("{name} is not there, or has no carrier"))));
        }
        let missed = || format!("no neighbour in reach has answered {ATTEMPTS} requests");
        Ok(self.reached.map(|reached| reached.then_some(()).ok_or_else(missed)))
    }

    /// Waits until the verdict may have changed.
    async fn wait(&mut self) -> anyhow::Result<()> {
        let answered = async {
            match &self.echoes {
                Some(echoes) => echoes.wait_for_reply().await,
                None => pending().await,
            }
        };
        tokio::select! {
            // Answers that arrived while this program was stalled count before the timeout.
            biased;
            answered = answered => {
                answered?;
                (self.unanswered, self.reached) = (0, Some(true));
            }
            changed = self.carriers.carrier_changed() => changed?,
            _ = self.asking.tick() => if let Some(echoes) = &mut self.echoes {
                if self.unanswered >= ATTEMPTS {
                    self.reached = Some(false);
                }
                echoes.send_requests();
                self.unanswered = self.unanswered.saturating_add(1);
            }
        }
        Ok(())
    }
}
