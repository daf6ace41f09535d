//! One of a node's workers: transactions one after the other, each until it has ended for good.

use super::forecast::{Forecast, Map};
use super::turn::{Arrival, Play, Shared, lock};
use crate::session::{Local, Session, Stop};
use highwire_stdx::Rng;
use highwire_txn::workloads::Procedure;
use highwire_txn::{AbortReason, Event};

/// The first pause after a conflict; it doubles up to [`PAUSE_MAX_NS`].
const PAUSE_MIN_NS: u64 = 2_000;
const PAUSE_MAX_NS: u64 = 1_000_000;
/// The time after which a transaction is given up.
const PATIENCE_NS: u64 = 10_000_000_000;

/// How an attempt ended.
enum Ended {
    Committed,
    Refused,
    Conflict,
    Interrupted,
    Unknown,
}

/// One attempt at a transaction, and its outcome.
struct Attempt<'a> {
    procedure: &'a dyn Procedure,
    forecast: &'a Forecast,
    ended: Ended,
    is_first: bool,
}

/// Plays until there are no more transactions.
pub(super) async fn work(local: &Local, play: &Shared, map: &Map, elsewhere: bool, number: u64) {
    let mut rng = Rng::new(number);
    let mut forecast = Forecast::default();
    // The end of one transaction is the beginning of the next: the clock is read once for both.
    let mut now = local.shared.clock.now_ns();
    loop {
        let Some(arrival) = lock(play).next(now) else { return };
        // The endpoint's clock is read once a turn, and may be behind.
        while now < arrival.at_ns {
            local.sleep_ns(arrival.at_ns - now).await;
            now = local.shared.clock.now_ns();
        }
        match finish(local, play, map, elsewhere, &arrival, &mut rng, &mut forecast).await {
            Ok(ended_ns) => now = ended_ns,
            Err(stop) => {
                lock(play).report.failure.get_or_insert_with(|| format!("{stop:?}"));
                return;
            }
        }
    }
}

/// Carries out one transaction, with as many attempts as it needs. Returns when it ended.
async fn finish(
    local: &Local,
    play: &Shared,
    map: &Map,
    elsewhere: bool,
    arrival: &Arrival,
    rng: &mut Rng,
    forecast: &mut Forecast,
) -> Result<u64, Stop> {
    let mut pause = PAUSE_MIN_NS;
    let mut is_first = true;
    loop {
        let is_elsewhere = |table, key| !elsewhere || map.is_elsewhere(table, key);
        let mut procedure = lock(play).workload.draw(&mut Rng::new(arrival.seed), &is_elsewhere);
        forecast.reset();
        let ended = attempt(local, map, &mut *procedure, forecast).await?;
        let now = local.shared.clock.now_ns();
        let attempt = Attempt { procedure: &*procedure, forecast, ended, is_first };
        if note(&mut lock(play), map, &attempt, arrival, now) {
            return Ok(now);
        }
        is_first = false;
        local.sleep_ns(rng.between(1, pause)).await;
        pause = (pause * 2).min(PAUSE_MAX_NS);
    }
}

/// Records an attempt; returns whether the transaction has ended for good.
fn note(play: &mut Play, map: &Map, attempt: &Attempt<'_>, arrival: &Arrival, now_ns: u64) -> bool {
    let Attempt { procedure, forecast, ended, is_first } = attempt;
    let report = &mut play.report;
    report.forecast.add(&forecast.requests);
    let kind = match report.kinds.get_mut(procedure.name()) {
        Some(kind) => kind,
        None => report.kinds.entry(procedure.name().to_string()).or_default(),
    };
    kind.begun += u64::from(*is_first);
    match ended {
        Ended::Committed => {
            kind.commits += 1;
            report.of_paper += forecast.of_paper(map.f);
            report.money += procedure.money();
        }
        Ended::Refused => kind.refusals += 1,
        Ended::Unknown => report.unknown += 1,
        Ended::Conflict | Ended::Interrupted => {
            kind.conflicts += u64::from(matches!(ended, Ended::Conflict));
            report.interrupted += u64::from(matches!(ended, Ended::Interrupted));
            if now_ns < arrival.at_ns + PATIENCE_NS {
                return false;
            }
            report.given_up += 1;
        }
    }
    play.ended(arrival.at_ns, now_ns);
    true
}

async fn attempt(
    local: &Local,
    map: &Map,
    procedure: &mut dyn Procedure,
    forecast: &mut Forecast,
) -> Result<Ended, Stop> {
    let session = match local.begin().await {
        Ok(session) => session,
        Err(Stop::Unavailable) => return Ok(Ended::Interrupted),
        Err(stop) => return Err(stop),
    };
    // This node's lease must hold after the transaction began. Later steps go by the time that the node knows:
    // its own rows are as they were then, and a response from another node has brought a later time.
    let mut now = session.now();
    loop {
        {
            let mut node = session.node();
            now = now.max(node.now_ns());
            let worker = node.worker(session.worker);
            let step = procedure.step(worker);
            forecast.step(&step, map, worker);
            node.carry_out(now, session.worker, &step)?;
        }
        let mut event = session.event().await;
        if let Event::Executed { result: Err(_), .. } = event {
            event = give_up(&session, map, forecast).await?;
        }
        return Ok(match event {
            Event::Executed { .. } => continue,
            Event::Committed { .. } => {
                forecast.committed(map);
                Ended::Committed
            }
            Event::Unknown { .. } => Ended::Unknown,
            Event::Aborted { reason: AbortReason::Locked | AbortReason::Changed, .. } => {
                forecast.aborted(map);
                Ended::Conflict
            }
            Event::Aborted { reason: AbortReason::Reconfigured, .. } => Ended::Interrupted,
            Event::Aborted { reason: AbortReason::Full, .. } => return Err(AbortReason::Full.into()),
            Event::Aborted { .. } => Ended::Refused,
        });
    }
}

async fn give_up(session: &Session, map: &Map, forecast: &mut Forecast) -> Result<Event, Stop> {
    {
        let mut node = session.node();
        let now = node.now_ns();
        forecast.abort(map, node.worker(session.worker));
        node.abort(now, session.worker)?;
    }
    Ok(session.event().await)
}
