//! Whether this member is connected to its routers: by the carriers of interfaces, and by neighbours of which
//! one answers at least.
//!
//! A neighbour counts as missing only after several requests. So a stalled program does not mistake its own
//! silence for that of others.

use std::future::pending;
use std::time::Duration;

use carnet_linux::{Carriers, Echoes, Neighbour};
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::time::{Interval, MissedTickBehavior, interval, sleep};

/// So often neighbours are asked before they are missed.
const ATTEMPTS: u32 = 4;
/// Before the kernel is asked again that has failed to tell.
const AGAIN: Duration = Duration::from_secs(1);

/// Links and neighbours to watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Interfaces, all of which have a carrier.
    pub links: Vec<String>,
    /// Neighbours, one of whom answers.
    pub reach: Vec<Neighbour>,
    /// After such a silence they are missed.
    pub silence: Duration,
}

/// Whether the member is connected; `Err`: why it is not.
pub type Verdict = Result<(), String>;

/// Watchers of links and neighbours.
struct Links {
    carriers: Carriers,
    /// Requests to neighbours, if there are any.
    echoes: Option<Echoes>,
    asking: Interval,
    /// How often they have been asked since one answered.
    unanswered: u32,
    /// Whether they answer, if that is known.
    reached: Option<bool>,
}

impl Wanted {
    /// Looks from now on. The first verdict is there when this is ready.
    ///
    /// # Errors
    /// When the kernel does not let this program look.
    pub async fn begin(self) -> anyhow::Result<Receiver<Verdict>> {
        let (tell, mut verdict) = channel(Ok(()));
        if !self.links.is_empty() || !self.reach.is_empty() {
            let mut asking = interval(self.silence / ATTEMPTS);
            asking.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let reached = self.reach.is_empty().then_some(true);
            let echoes = reached.is_none().then(|| Echoes::open(self.reach)).transpose()?;
            let carriers = Carriers::open(self.links)?;
            tokio::task::spawn_local(Links { carriers, echoes, asking, unanswered: 0, reached }.look(tell));
            verdict.changed().await?;
        }
        Ok(verdict)
    }
}

impl Links {
    /// Tells the first verdict, and each that is another than the one before.
    async fn look(mut self, tell: Sender<Verdict>) {
        let mut told = None;
        let mut found = self.verdict();
        loop {
            let failed = found.is_err();
            let verdict = found.unwrap_or_else(|error| Some(Err(format!("nobody knows: {error}"))));
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

    /// How it is, if that is known.
    fn verdict(&mut self) -> anyhow::Result<Option<Verdict>> {
        if let Some(name) = self.carriers.missing()? {
            return Ok(Some(Err(format!("{name} is not there, or has no carrier"))));
        }
        let missed = || format!("nobody in reach has answered {ATTEMPTS} times");
        Ok(self.reached.map(|reached| reached.then_some(()).ok_or_else(missed)))
    }

    /// Until it may be otherwise.
    async fn wait(&mut self) -> anyhow::Result<()> {
        let answered = async {
            match &self.echoes {
                Some(echoes) => echoes.answered().await,
                None => pending().await,
            }
        };
        tokio::select! {
            // Answers that arrived while this program was stalled count before the time does.
            biased;
            answered = answered => {
                answered?;
                (self.unanswered, self.reached) = (0, Some(true));
            }
            changed = self.carriers.changed() => changed?,
            _ = self.asking.tick() => if let Some(echoes) = &mut self.echoes {
                if self.unanswered >= ATTEMPTS {
                    self.reached = Some(false);
                }
                echoes.ask();
                self.unanswered = self.unanswered.saturating_add(1);
            }
        }
        Ok(())
    }
}
