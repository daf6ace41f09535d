//! A core that repeats remembered cycles does what one does that works all of them out: the same events in the same cycles, the
//! same registers, the same packets.

#[path = "../examples/rocket/generate.rs"]
#[allow(dead_code, reason = "the example uses all of it")]
mod generate;
#[path = "../examples/rocket/here.rs"]
#[allow(dead_code, clippy::disallowed_methods, reason = "the example uses all of it, and reads files")]
mod here;
mod support;

use highwire_nanopu::client::{Client, Request};
use highwire_nanopu::packet::{Packet, flag};
use highwire_nanopu::{Core, CoreConfig, Event, Node, NodeConfig, NodeEvent, SharedCacheConfig};
use highwire_riscv::{AccessFault, Bus, Hart, Ram};
use highwire_stdx::Rng;
use support::{CLIENT, NODE, program};

const BASE: u64 = here::BASE;
const BYTES: usize = 1 << 20;

/// Memory, and a word to end with.
struct Bench {
    ram: Ram,
    is_done: bool,
    /// Whether it says how often instructions may have changed.
    counts: bool,
}

impl highwire_nanopu::Port for Bench {}

impl Bus for Bench {
    fn load(&mut self, address: u64, bytes: u8) -> Result<u64, AccessFault> {
        self.ram.load(address, bytes)
    }

    fn store(&mut self, address: u64, bytes: u8, value: u64) -> Result<(), AccessFault> {
        if address & !7 == here::DONE {
            self.is_done = true;
            return Ok(());
        }
        self.ram.store(address, bytes, value)
    }

    fn fetch_word(&mut self, address: u64) -> Result<u32, AccessFault> {
        self.ram.fetch_word(address)
    }

    fn code_changes(&self) -> Option<u64> {
        self.ram.code_changes().filter(|_| self.counts)
    }
}

/// Runs `image` on both kinds of core, `rounds` times over, cycle by cycle, on memory of both kinds; how many cycles the one that remembers
/// has worked out, and of how many.
fn check(image: &[u8], rounds: usize, what: &str) -> (u64, u64) {
    let looking = check_with(image, rounds, false, what);
    assert_eq!(check_with(image, rounds, true, what), looking, "{what}");
    looking
}

fn check_with(image: &[u8], rounds: usize, counts: bool, what: &str) -> (u64, u64) {
    let core = |remembers_cycles| {
        let config = CoreConfig { remembers_cycles, ..CoreConfig::default() };
        Core::new(Hart::new(0, BASE), &config)
    };
    let bench = || Bench { ram: Ram::new(BASE, BYTES), is_done: false, counts };
    let (mut forgetful, mut remembering) = (core(false), core(true));
    let mut benches = [bench(), bench()];
    for round in 0..rounds {
        for bench in &mut benches {
            bench.ram.slice_mut(BASE, image.len()).unwrap().copy_from_slice(image);
            bench.is_done = false;
        }
        for core in [&mut forgetful, &mut remembering] {
            core.hart.flush_fetched();
            core.restart_at(BASE);
        }
        let [first, second] = &mut benches;
        while !first.is_done {
            let expected = forgetful.tick(first);
            assert_eq!(remembering.tick(second), expected, "{what}, round {round}");
            assert!(forgetful.cycle() < 20_000_000, "{what} ends");
        }
        assert!(second.is_done);
        assert_eq!(remembering.hart.x, forgetful.hart.x, "{what}");
        assert_eq!(remembering.hart.f, forgetful.hart.f, "{what}");
    }
    assert_eq!(forgetful.worked_out(), forgetful.cycle());
    (remembering.worked_out(), remembering.cycle())
}

#[test]
fn random_programs_are_the_same() {
    for seed in 0..12 {
        let image = generate::program(seed);
        check(&image.bytes, 4, &image.name);
    }
}

/// A program that counts in an instruction of its own, and heeds what it has written in every other turn.
#[test]
fn programs_that_change_themselves_are_the_same() {
    let words: [u32; 14] = [
        0x0000_0293, // li    t0, 0
        0x0000_0317, // auipc t1, 0
        0x0000_0393, // li    t2, 0, which becomes 1, and so on
        0x0073_8e33, // add   t3, t2, t2
        0x0043_2403, // lw    s0, 4(t1)
        0x0010_04b7, // lui   s1, 0x100
        0x0094_043b, // addw  s0, s0, s1
        0x0083_2223, // sw    s0, 4(t1)
        0x0012_f513, // andi  a0, t0, 1
        0x0005_0463, // beqz  a0, over the next
        0x0000_100f, // fence.i
        0x0012_8293, // addi  t0, t0, 1
        0x0c82_a593, // slti  a1, t0, 200
        0xfc05_9ae3, // bnez  a1, back to the third
    ];
    let end: [u32; 3] = [
        0x1000_16b7, // lui   a3, 0x10001
        0x0076_b023, // sd    t2, 0(a3)
        0x0000_006f, // j     here
    ];
    let image: Vec<u8> = words.iter().chain(&end).flat_map(|word| word.to_le_bytes()).collect();
    let bench = |counts| Bench { ram: Ram::new(BASE, BYTES), is_done: false, counts };
    check(&image, 3, "a program that changes itself");
    // The program does what it is meant to do.
    let mut core = Core::new(Hart::new(0, BASE), &CoreConfig::default());
    let mut memory = bench(true);
    memory.ram.slice_mut(BASE, image.len()).unwrap().copy_from_slice(&image);
    core.run_while(&mut memory, 1_000_000, |bench| !bench.is_done);
    assert!(memory.is_done);
    // The value that it wrote in the turn before the last, the last with a `fence.i`.
    assert_eq!(core.hart.x[7], 198);
    assert!(memory.ram.code_changes() >= Some(200));
}

#[test]
fn benchmarks_are_the_same_and_mostly_remembered() {
    let text = include_str!("rocket/golden.txt");
    let programs = text.split("\n\n").skip(1).map(str::trim).filter(|program| !program.is_empty());
    for program in programs {
        let (head, memory) = program.split_once('\n').unwrap();
        let digits: Vec<u8> = memory.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let image: Vec<u8> = digits.chunks(2).map(byte).collect();
        let (worked_out, cycles) = check(&image, 2, head);
        // Without the device that it asks, one program ends soon, and repeats little.
        assert!(worked_out * 2 < cycles || cycles < 10_000, "{head}: {worked_out} of {cycles}");
    }
}

/// How a node's cycles are run.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Pace {
    Ticks,
    Rounds { skips_idle: bool },
}

/// Running many cycles at once gives the same result as single ones: the cores by themselves while nothing else happens.
#[test]
fn many_cycles_at_once_are_as_many_single_ones() {
    const ROUND: u64 = 140;
    let play = |name: &str, config: NodeConfig, requests: &[Request], pace: Pace| {
        let skips_idle = pace == Pace::Rounds { skips_idle: true };
        let mut node = Node::new(&program(name)?, &NodeConfig { skips_idle, ..config }).expect("it fits");
        let end = requests.last().expect("there are some").sent + 40_000;
        let mut due = requests.iter().peekable();
        let mut first_free = 0;
        let mut seen = Vec::new();
        while node.cycle() < end {
            let base = node.cycle();
            while let Some(request) = due.next_if(|request| request.sent <= base) {
                let first = first_free.max(base + ROUND);
                let packet = Packet {
                    source: CLIENT,
                    destination: NODE,
                    flags: flag::DATA,
                    destination_context: request.context,
                    message: seen.len() as u16 ^ (request.sent as u16) << 5,
                    message_bytes: request.payload.len() as u16,
                    payload: request.payload.clone(),
                    ..Packet::default()
                };
                first_free = first + packet.wire_words();
                node.receive(first, packet);
            }
            match pace {
                Pace::Ticks => (0..ROUND).for_each(|_| node.tick(|_, _| {})),
                Pace::Rounds { .. } => node.run_until(base + ROUND),
            }
            seen.extend(node.take_events());
        }
        let cores = 0..config.cores;
        let cores: Vec<_> = cores
            .map(|core| {
                let hart = &node.core(core).hart;
                (node.misuse(core), hart.csrs.minstret, hart.x, hart.pc, node.current_context(core))
            })
            .collect();
        Some((format!("{seen:?} {cores:?}"), node.skipped_cycles()))
    };
    let one = NodeConfig::default();
    let four = NodeConfig { cores: 4, ..one };
    let cached = NodeConfig { shared_cache: Some(SharedCacheConfig::default()), ..four };
    let timer = NodeConfig { cycles_per_tick: 100, ..one };
    let banks = NodeConfig { context_banks: true, ..one };
    let service = |rng: &mut Rng, sent| vec![rng.below(900), sent];
    let cases: [(&str, NodeConfig, u64); 6] = [
        ("loopback", one, 1),
        ("service4", four, 1),
        ("service4", cached, 1),
        ("service", one, 2),
        ("service", banks, 2),
        ("service_timer", timer, 2),
    ];
    for (number, (name, config, contexts)) in cases.into_iter().enumerate() {
        let requests = requests(10 + number as u64, contexts, service);
        let play = |pace| play(name, config, &requests, pace);
        let Some((single, _)) = play(Pace::Ticks) else { return };
        for skips_idle in [false, true] {
            let (here, skipped) = play(Pace::Rounds { skips_idle }).expect("the program is there");
            assert!(single == here, "{name}, case {number}, skips idle: {skips_idle}\n{single}\n{here}");
            assert!(skips_idle || skipped == 0);
        }
        assert!(single.contains("Sent"), "{name} answers");
    }
}

/// Everything that can be seen of a node that serves `requests`.
fn served(name: &str, config: NodeConfig, requests: &[Request]) -> Option<Vec<String>> {
    let mut node = Node::new(&program(name)?, &config).expect("it fits");
    let mut client = Client::new(CLIENT, NODE, 140);
    let mut seen = Vec::new();
    let mut on_event = |core: usize, event: Event| {
        if event != Event::Bubble {
            seen.push((core, event));
        }
    };
    let answers: Result<_, NodeEvent> = client.play(&mut node, requests, 30_000, &mut on_event);
    let cores = 0..config.cores;
    let counters =
        cores.map(|core| (node.misuse(core), node.core(core).hart.csrs.minstret, node.core(core).hart.x));
    let counters: Vec<_> = counters.collect();
    let mut lines: Vec<String> = seen.iter().map(|event| format!("{event:?}")).collect();
    lines.push(format!("{answers:?} {counters:?} {:?} {:?}", node.nic().received(), node.nic().sent()));
    Some(lines)
}

fn check_served(name: &str, config: NodeConfig, requests: &[Request]) {
    let mut configs = [config, config];
    configs[0].core.remembers_cycles = false;
    let [Some(expected), Some(here)] = configs.map(|config| served(name, config, requests)) else { return };
    let differs = expected.iter().zip(&here).position(|(expected, here)| expected != here);
    if let Some(place) = differs {
        panic!("{name}: {} instead of {}", here[place], expected[place]);
    }
    assert_eq!(expected.len(), here.len(), "{name}");
}

fn requests(seed: u64, contexts: u64, payload: impl Fn(&mut Rng, u64) -> Vec<u64>) -> Vec<Request> {
    let mut rng = Rng::new(seed);
    let mut sent = 10_000;
    (0..150)
        .map(|_| {
            sent += 60 + rng.below(700);
            let words = payload(&mut rng, sent);
            let context = rng.below(contexts) as u16;
            Request { sent, context, payload: words.into_iter().flat_map(u64::to_be_bytes).collect() }
        })
        .collect()
}

#[test]
fn nodes_are_the_same_with_messages_and_interrupts() {
    let one = NodeConfig::default();
    let four = NodeConfig { cores: 4, shared_cache: Some(SharedCacheConfig::default()), ..one };
    // So small that the second level recalls lines all the time.
    let tiny = SharedCacheConfig { bytes: 4 << 10, ways: 2, ..SharedCacheConfig::default() };
    let tiny = NodeConfig { shared_cache: Some(tiny), ..four };
    let timer = NodeConfig { cycles_per_tick: 100, ..one };
    check_served("loopback", one, &requests(1, 1, |rng, _| (0..1 + rng.below(140)).collect()));
    let service = |rng: &mut Rng, sent| vec![rng.below(900), sent];
    check_served("service4", four, &requests(2, 1, service));
    check_served("service4", tiny, &requests(2, 1, service));
    check_served("service", one, &requests(3, 2, service));
    check_served("service_timer", timer, &requests(4, 2, service));
    let store = |rng: &mut Rng, _| {
        let key = rng.below(20);
        let mut words = vec![1 + rng.below(2), key.wrapping_mul(0x7fb5_d329_728e_a185), key, !key];
        if words[0] == 2 {
            words.extend(0..64);
        }
        words
    };
    check_served("mica", four, &requests(5, 1, store));
}
