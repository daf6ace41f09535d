//! Exact results about the response with a mean service of one: M/M/k (Erlang C) and M/G/1 (Pollaczek and
//! Khinchine).

use super::load::Atoms;

/// Tails are searched for up to this time, in mean service times.
const LONGEST: f64 = 4000.0;

/// The time that `share` of the responses of M/M/`k` do not exceed, at `load` per server, below one.
pub fn mmk_percentile(k: usize, load: f64, share: f64) -> f64 {
    let (mut low, mut high) = (0.0, LONGEST);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if mmk_tail(k, load, middle) > 1.0 - share { low = middle } else { high = middle }
    }
    low
}

/// The share of responses of M/M/`k` beyond `t`.
fn mmk_tail(k: usize, load: f64, t: f64) -> f64 {
    let offered = load * k as f64;
    let mut term = 1.0;
    let mut sum = 1.0;
    for i in 1..k {
        term *= offered / i as f64;
        sum += term;
    }
    let last = term * offered / k as f64 / (1.0 - load);
    let waits = last / (sum + last);
    // A request that waits does so for an exponential time of rate `spare`, and is then served.
    let spare = k as f64 - offered;
    let apart = spare - 1.0;
    let both = match apart.abs() < 1e-9 {
        true => (1.0 + t) * (-t).exp(),
        false => (spare * (-t).exp() - (-spare * t).exp()) / apart,
    };
    (1.0 - waits) * (-t).exp() + waits * both
}

/// Steps per shortest service time.
const STEPS: usize = 2000;

/// The time that `share` of the responses of one server do not exceed, at `load`, below one, if a request takes one of the times of
/// `service`, all multiples of the first.
///
/// The wait is a geometric sum of residual services; its tail solves a renewal equation, here in steps, to
/// about one part in a million.
pub fn mg1_percentile(service: Atoms, load: f64, share: f64) -> f64 {
    let step = service[0].1 / STEPS as f64;
    let steps_of = |time: f64| (time / step).round() as usize;
    let mean: f64 = service.iter().map(|(share, time)| share * time).sum();
    // `waits[i]` is the share that waits longer than `i` steps, `sums[i]` its integral up to there.
    let mut waits = vec![load];
    let mut sums = vec![0.0];
    loop {
        let now = waits.len() - 1;
        let beyond = |time: usize| if now < time { 1.0 } else { waits[now - time] };
        let slower: f64 = service.iter().map(|&(share, time)| share * beyond(steps_of(time))).sum();
        if slower <= 1.0 - share || now as f64 * step > LONGEST {
            return now as f64 * step;
        }
        // What is left of a service is spread evenly over each service time: with density `share / mean` up to `time`. So
        //   wait(t) = load * sum over services of share / mean * (what of `time` is beyond t + integral of wait from t - time to t).
        // The last step of the integral holds the value that is looked for.
        let next = now + 1;
        let mut known = 0.0;
        for &(share, time) in service {
            let steps = steps_of(time);
            let beyond = steps.saturating_sub(next) as f64 * step;
            let before = sums[next.saturating_sub(steps).min(now)];
            known += share / mean * (beyond + sums[now] - before + waits[now] * step / 2.0);
        }
        let itself = load / mean * step / 2.0;
        let wait = load * known / (1.0 - itself);
        sums.push(sums[now] + (waits[now] + wait) * step / 2.0);
        waits.push(wait);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queueing::Service;

    /// The share of M/D/1's waits up to `t` (Erlang's sum, whose terms alternate: for short times only).
    fn md1_wait(load: f64, t: f64) -> f64 {
        let term = |i: usize| {
            let x = load * (t - i as f64);
            (1..=i).fold(x.exp(), |product, j| product * -x / j as f64)
        };
        (1.0 - load) * (0..=t as usize).map(term).sum::<f64>()
    }

    #[test]
    fn a_server_with_fixed_service_is_as_erlang_had_it() {
        let service = Service::Fixed.atoms().expect("it is one");
        for (load, share) in [(0.5, 0.9), (0.5, 0.99), (0.8, 0.7), (0.8, 0.99), (0.9, 0.8)] {
            let found = mg1_percentile(service, load, share);
            let exact = md1_wait(load, found - 1.0);
            assert!((exact - share).abs() < 1e-3 * (1.0 - share), "{load} {share}: {found} has {exact}");
        }
    }

    #[test]
    fn one_server_of_many_is_one_server() {
        for load in [0.5, 0.9] {
            let exact = 100f64.ln() / (1.0 - load);
            assert!((mmk_percentile(1, load, 0.99) / exact - 1.0).abs() < 1e-9);
        }
        // The two exponential times of M/M/2 at half a load have one rate.
        let near = mmk_percentile(2, 0.5 + 1e-7, 0.99);
        assert!((mmk_percentile(2, 0.5, 0.99) / near - 1.0).abs() < 1e-5);
    }
}
