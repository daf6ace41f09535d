//! The authors' load generator, draw by draw.
//!
//! Theirs is built on `std::default_random_engine` and `rand()` without a seed, so its requests are the same
//! in every run, and this generator draws the same ones. It sends a request at the beginning of a round of
//! the switch, at most one per round of one link latency, so the load is the rate sent and not the rate asked
//! for; and a sweep over loads never starts its engines again.

use crate::client::Request;

/// A round of the switch: the link's latency in cycles.
pub(super) const ROUND_CYCLES: u64 = 140;

/// A request to work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Work {
    /// When it leaves the generator, from the first of its point on.
    pub(super) sent: u64,
    /// The thread that it is for.
    pub(super) context: u16,
    /// How long to work.
    pub(super) cycles: u64,
}

impl Work {
    /// As a message of two words: the work, and when it was sent.
    pub(super) fn request(&self, start: u64) -> Request {
        let sent = self.sent + start;
        let payload = [self.cycles.to_be_bytes(), sent.to_be_bytes()].concat();
        Request { sent, context: self.context, payload }
    }
}

/// How long requests work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Service {
    /// So many cycles each.
    Fixed(u64),
    /// Around 1,600 cycles, one in 200 around 16,000.
    Bimodal,
}

/// Which context a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Contexts {
    /// All for context 0.
    One,
    /// One of so many, by `rand()`.
    Random(u16),
    /// Short ones for 0, long ones for 1.
    ByService,
}

/// The generator.
#[derive(Clone, Debug)]
pub(super) struct Load {
    service: Service,
    contexts: Contexts,
    gaps: Engine,
    services: Engine,
    short: Normal,
    long: Normal,
    rand: Rand,
}

impl Load {
    /// The authors' generator.
    pub(super) fn new(service: Service, contexts: Contexts) -> Load {
        Load::seeded(1, service, contexts)
    }

    /// The same generator with another seed: other requests that are drawn alike. Theirs has 1, which engines without a seed have.
    pub(super) fn seeded(seed: u32, service: Service, contexts: Contexts) -> Load {
        Load {
            service,
            contexts,
            gaps: Engine::new(seed),
            services: Engine::new(seed),
            short: Normal { mean: 1600.0, saved: None },
            long: Normal { mean: 16_000.0, saved: None },
            rand: Rand::new(seed),
        }
    }

    /// The next `count` requests, with so many cycles between two in the mean if they were not rounded.
    pub(super) fn point(&mut self, count: usize, mean_cycles: u64) -> Vec<Work> {
        let (mut now, mut threshold) = (0, 0);
        let works = (0..count).map(|_| {
            now = u64::max(now, threshold).next_multiple_of(ROUND_CYCLES);
            threshold = now + (self.gaps.exponential() * mean_cycles as f64) as u64;
            let sent = now;
            now += 1;
            let (cycles, is_long) = self.work();
            let context = match self.contexts {
                Contexts::One => 0,
                Contexts::Random(count) => (self.rand.draw() % u32::from(count)) as u16,
                Contexts::ByService => u16::from(is_long),
            };
            Work { sent, context, cycles }
        });
        works.collect()
    }

    fn work(&mut self) -> (u64, bool) {
        match self.service {
            Service::Fixed(cycles) => (cycles, false),
            Service::Bimodal => {
                let short = self.short.draw(&mut self.services);
                let long = self.long.draw(&mut self.services);
                // A binomial of one trial: an exponential waiting time, at most that of the share.
                let is_long = self.services.exponential() <= -(1.0f64 - 0.005).ln();
                (if is_long { long } else { short }.max(300.0) as u64, is_long)
            }
        }
    }
}

/// `std::minstd_rand0`.
#[derive(Clone, Debug)]
struct Engine(u64);

impl Engine {
    fn new(seed: u32) -> Engine {
        // As the library seeds it: the engine would stay at zero for ever.
        Engine((u64::from(seed) % 2_147_483_647).max(1))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0 * 16_807 % 2_147_483_647;
        self.0
    }

    /// From 0 to 1: two draws make 53 bits.
    fn unit(&mut self) -> f64 {
        const RANGE: f64 = 2_147_483_646.0;
        let low = (self.next() - 1) as f64;
        let high = (self.next() - 1) as f64;
        (low + high * RANGE) / (RANGE * RANGE)
    }

    fn exponential(&mut self) -> f64 {
        -(1.0 - self.unit()).ln()
    }
}

/// `std::normal_distribution` with a deviation of 100: the polar method, which makes two at a time.
#[derive(Clone, Debug)]
struct Normal {
    mean: f64,
    saved: Option<f64>,
}

impl Normal {
    fn draw(&mut self, engine: &mut Engine) -> f64 {
        const DEVIATION: f64 = 100.0;
        let standard = self.saved.take().unwrap_or_else(|| {
            loop {
                let (x, y) = (2.0 * engine.unit() - 1.0, 2.0 * engine.unit() - 1.0);
                let square = x * x + y * y;
                if square <= 1.0 && square != 0.0 {
                    let scale = (-2.0 * square.ln() / square).sqrt();
                    self.saved = Some(x * scale);
                    break y * scale;
                }
            }
        });
        standard * DEVIATION + self.mean
    }
}

/// The C library's `rand()`: an additive feedback over 31 words.
#[derive(Clone, Debug)]
struct Rand {
    words: [u32; 31],
    next: usize,
}

impl Rand {
    fn new(seed: u32) -> Rand {
        // The library takes 1 for 0, and works on signed words; a seed of 31 bits is the same in both.
        let mut words = [(seed & 0x7fff_ffff).max(1); 31];
        for place in 1..31 {
            words[place] = (u64::from(words[place - 1]) * 16_807 % 2_147_483_647) as u32;
        }
        // The first feedbacks only copy, so they can begin here.
        let mut rand = Rand { words, next: 3 };
        (0..310).for_each(|_| {
            rand.draw();
        });
        rand
    }

    fn draw(&mut self) -> u32 {
        let place = self.next;
        let before = (place + 31 - 3) % 31;
        self.words[place] = self.words[place].wrapping_add(self.words[before]);
        self.next = (place + 1) % 31;
        self.words[place] >> 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_libraries() {
        // What `rand()` and `minstd_rand0` are documented to begin with.
        let mut rand = Rand::new(1);
        assert_eq!([rand.draw(), rand.draw(), rand.draw()], [1_804_289_383, 846_930_886, 1_681_692_777]);
        let mut engine = Engine::new(1);
        let last = (0..10_000).map(|_| engine.next()).last();
        assert_eq!(last, Some(1_043_618_065));
    }

    #[test]
    fn loads_are_the_published_ones() {
        let mut load = Load::new(Service::Fixed(1600), Contexts::Random(2));
        let published = [0.982, 1.047, 1.117, 1.197, 1.294, 1.415, 1.544, 1.721, 1.920];
        for (mean, published) in (1600..=3200).rev().step_by(200).zip(published) {
            let works = load.point(20_000, mean);
            let here = 3200.0 * works.len() as f64 / works[works.len() - 1].sent as f64;
            assert!((here - published).abs() < 0.0006, "{mean}: {here}");
        }
    }

    #[test]
    fn long_requests_are_one_in_two_hundred() {
        let works = Load::new(Service::Bimodal, Contexts::ByService).point(20_000, 600);
        let long = works.iter().filter(|work| work.context == 1).count();
        assert!((70..130).contains(&long), "{long}");
        assert!(works.iter().all(|work| (work.cycles > 10_000) == (work.context == 1)));
    }
}
