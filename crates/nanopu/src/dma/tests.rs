//! The NIC by itself: no program runs, the test posts requests as one would.

use highwire_riscv::{AccessFault, Hart, Ram};
use highwire_stdx::Rng;

use super::*;
use crate::config::CoreConfig;
use crate::core::Core;
use crate::shared_cache::{SharedCache, SharedCacheConfig};

const RAM: u64 = 0x8000_0000;
const RAM_BYTES: u64 = 1 << 20;

/// A NIC with memory behind it.
struct Bench {
    nic: DmaNic,
    ram: Ram,
    cache: SharedCache,
    core: Core,
    cycle: u64,
    departures: Vec<Departure>,
}

impl Bench {
    fn new(config: &DmaConfig) -> Bench {
        Bench {
            nic: DmaNic::new(config),
            ram: Ram::new(RAM, RAM_BYTES as usize),
            cache: SharedCache::new(SharedCacheConfig::default()),
            core: Core::new(Hart::new(0, RAM), &CoreConfig::default()),
            cycle: 0,
            departures: Vec::new(),
        }
    }

    fn run(&mut self, cycles: u64) {
        for _ in 0..cycles {
            let Bench { ram, cache, core, .. } = self;
            let mut memory = Memory { ram, cache, core, memory_cycles: 40 };
            self.departures.extend(self.nic.tick(self.cycle, &mut memory));
            self.cycle += 1;
        }
    }

    fn post(&mut self, register: u64, address: u64, bytes: u64) {
        self.nic.registers.store(register, 8, bytes << 48 | address, &self.ram).expect("a register");
    }

    fn post_send(&mut self, address: u64, bytes: u64) {
        self.post(register::SEND_REQUEST, address, bytes);
    }

    fn post_receive(&mut self, address: u64, bytes: u64) {
        self.post(register::RECEIVE_REQUEST, address, bytes);
    }

    fn load(&mut self, register: u64, bytes: u8) -> u64 {
        self.nic.registers.load(register, bytes).expect("a register")
    }

    /// Room for sends, room for receives, send completions, receive completions: now, where a load would find what is there when it
    /// has come.
    fn counts(&self) -> [u8; 4] {
        (self.nic.registers.counts(self.cycle) as u32).to_le_bytes()
    }

    fn errors(&mut self) -> Vec<DmaError> {
        self.nic.registers.take_errors()
    }

    fn memory(&self, address: u64, bytes: usize) -> &[u8] {
        self.ram.slice(address, bytes).expect("memory")
    }
}

fn frame(bytes: usize, seed: u64) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..bytes).map(|_| rng.next_u32() as u8).collect()
}

#[test]
fn a_frame_is_written_into_the_buffer_and_no_further() {
    for bytes in [1, 7, 8, 9, 63, 64, 65, 80, 88, 1088, FRAME_BYTES_MAX] {
        let mut bench = Bench::new(&DmaConfig::default());
        let (sent, buffer) = (frame(bytes, 1), RAM + 4096 + 24);
        bench.post_receive(buffer, 0);
        bench.nic.receive(bytes as u64 / 8, sent.clone());
        bench.run(3000);
        assert_eq!(bench.counts(), [64, 64, 0, 1], "{bytes} bytes");
        assert_eq!(bench.load(register::RECEIVE_COMPLETION, 2), bytes as u64);
        assert_eq!(bench.memory(buffer, bytes), sent);
        assert!(bench.memory(buffer + bytes as u64, 64).iter().all(|&byte| byte == 0), "{bytes} bytes");
        assert!(bench.memory(buffer - 64, 64).iter().all(|&byte| byte == 0), "{bytes} bytes");
        assert_eq!((bench.nic.counters().delivered, bench.errors()), (1, vec![]));
    }
}

#[test]
fn a_frame_is_read_from_any_address() {
    let mut bench = Bench::new(&DmaConfig::default());
    let content = frame(4096, 2);
    bench.ram.slice_mut(RAM, 4096).expect("memory").copy_from_slice(&content);
    for (number, (start, bytes)) in
        [(0, 64), (0, 1), (3, 5), (3, 6), (7, 2), (60, 100), (65, 1088), (1, FRAME_BYTES_MAX)]
            .into_iter()
            .enumerate()
    {
        bench.post_send(RAM + start as u64, bytes as u64);
        bench.run(2000);
        let departure = &bench.departures[number];
        assert_eq!(departure.frame, content[start..start + bytes], "{bytes} bytes at {start}");
        assert!(departure.last - departure.first + 1 >= bytes.div_ceil(8) as u64);
        assert_eq!(bench.load(register::SEND_COMPLETION, 2), 1);
    }
    assert_eq!(bench.errors(), []);
}

#[test]
fn each_step_of_a_send_takes_its_cycles() {
    let mut bench = Bench::new(&DmaConfig::default());
    bench.run(1);
    // A line that memory alone has, then the same line from the second-level cache.
    for expected in [7 + 2 + 2 + 2 + 45 + 2 + 2, 7 + 2 + 2 + 2 + 5 + 2 + 2] {
        let posted = bench.cycle;
        bench.post_send(RAM, 64);
        bench.run(200);
        let departure = bench.departures.pop().expect("it left");
        // The store's way, queue, hop, access, cache, hop, buffer: the store falls into the cycle before the next tick.
        assert_eq!(departure.first - posted, expected - 1);
        assert_eq!(departure.last - departure.first, 7);
        assert_eq!(bench.load(register::SEND_COMPLETION, 2), 1);
        bench.run(20);
    }
}

#[test]
fn each_step_of_a_receive_takes_its_cycles() {
    let mut bench = Bench::new(&DmaConfig::default());
    bench.post_receive(RAM, 0);
    bench.run(10);
    let last = bench.cycle + 15;
    bench.nic.receive(last, frame(128, 3));
    while bench.counts()[3] == 0 {
        bench.run(1);
    }
    // Buffer, 16 words, hop, access, cache, hop; whole lines are not fetched.
    assert_eq!(bench.cycle - last, 2 + 15 + 2 + 2 + 5 + 2);
}

#[test]
fn a_partial_line_that_memory_alone_has_is_fetched_first() {
    let time = |bytes: usize| {
        let mut bench = Bench::new(&DmaConfig::default());
        bench.post_receive(RAM, 0);
        bench.run(10);
        bench.nic.receive(bench.cycle, frame(bytes, 3));
        let start = bench.cycle;
        while bench.counts()[3] == 0 {
            bench.run(1);
        }
        bench.cycle - start
    };
    assert_eq!(time(32) + 4, time(64) + 40);
}

/// `ld x5, 0(x10)`, `sd x0, 0(x10)`, and a jump to itself.
const LOAD: u32 = 0x0005_3283;
const STORE: u32 = 0x0005_3023;
const STAY: u32 = 0x0000_006f;

/// Lets the core execute `instructions` with the address of a line in x10, without the NIC.
fn execute(bench: &mut Bench, instructions: &[u32], line: u64) {
    let code: Vec<u8> = instructions.iter().chain([&STAY]).flat_map(|bits| bits.to_le_bytes()).collect();
    bench.ram.slice_mut(RAM, code.len()).expect("memory").copy_from_slice(&code);
    bench.core.hart.flush_fetched();
    bench.core.restart_at(RAM);
    bench.core.hart.x[10] = line;
    for _ in 0..300 {
        bench.core.tick(&mut bench.ram);
    }
}

#[test]
fn the_first_level_is_asked_when_it_holds_the_line() {
    const LINE: u64 = RAM + 4096;
    // From the request to the first word of a line that the second level holds.
    let read = |instructions: &[u32]| {
        let mut bench = Bench::new(&DmaConfig::default());
        bench.post_send(LINE, 64);
        bench.run(200);
        execute(&mut bench, instructions, LINE);
        let posted = bench.cycle;
        bench.post_send(LINE, 64);
        bench.run(200);
        (bench.departures.last().expect("it left").first - posted, bench.nic.counters().probed)
    };
    let (alone, probed) = read(&[]);
    assert_eq!(probed, 0);
    assert_eq!(read(&[LOAD]), (alone + 6, 1));
    assert_eq!(read(&[STORE]), (alone + 6 + 8, 1));
    // A line that the NIC reads stays, clean.
    let mut bench = Bench::new(&DmaConfig::default());
    execute(&mut bench, &[STORE], LINE);
    bench.post_send(LINE, 64);
    bench.run(200);
    assert_eq!(bench.core.share_line(LINE), Some(false), "it stayed");
    // A write of the NIC takes the line away.
    bench.post_receive(LINE, 64);
    bench.nic.receive(bench.cycle + 8, frame(64, 1));
    bench.run(200);
    assert_eq!((bench.counts()[3], bench.core.share_line(LINE)), (1, None));
    execute(&mut bench, &[LOAD], LINE);
    assert_eq!(bench.core.hart.x[5].to_le_bytes(), frame(64, 1)[..8]);
}

#[test]
fn a_store_to_a_line_that_was_read_asks_for_it_again() {
    const LINE: u64 = RAM + 4096;
    let stores = |sends: bool| {
        let mut bench = Bench::new(&DmaConfig::default());
        execute(&mut bench, &[STORE, STORE], LINE);
        if sends {
            bench.post_send(LINE, 64);
            bench.run(200);
        }
        execute(&mut bench, &[STORE], LINE);
        bench.core.share_line(LINE)
    };
    // Either way the line ends dirty and in one place.
    assert_eq!((stores(false), stores(true)), (Some(true), Some(true)));
}

#[test]
fn blocks_in_flight_bound_the_rate() {
    let time = |in_flight: usize| {
        let config = DmaConfig { in_flight, ..DmaConfig::default() };
        let mut bench = Bench::new(&config);
        bench.post_send(RAM, 1024);
        bench.run(3000);
        let departure = bench.departures.pop().expect("it left");
        departure.last - departure.first
    };
    // With eight lines of eight words in flight memory's 45 cycles do not show; one at a time, each waits for them.
    assert_eq!(time(8), 127);
    assert!(time(1) > 16 * 45, "{}", time(1));
}

#[test]
fn a_full_send_buffer_holds_reads_back() {
    let config = DmaConfig { send_words: 8, ..DmaConfig::default() };
    let mut bench = Bench::new(&config);
    bench.post_send(RAM, 1024);
    bench.run(3000);
    let departure = bench.departures.pop().expect("it left");
    assert!(departure.last - departure.first > 16 * 45);
}

#[test]
fn a_load_finds_what_is_there_when_it_comes() {
    let mut bench = Bench::new(&DmaConfig::default());
    bench.post_receive(RAM, 0);
    bench.run(20);
    bench.nic.receive(20, frame(64, 1));
    let due = 20 + 2 + 7 + 2 + 2 + 5 + 2;
    // A load that executes seven cycles earlier arrives just in time. Two that follow each other come eight cycles apart.
    bench.run(due - 8 - 20 + 1);
    assert_eq!(bench.load(register::COUNTS, 4) >> 24, 0);
    assert_eq!(bench.load(register::COUNTS, 4) >> 24, 1);
    assert_eq!(bench.counts()[3], 0);
    bench.run(8);
    assert_eq!((bench.cycle, bench.counts()[3]), (due + 1, 1));
}

#[test]
fn what_cannot_be_had_is_refused() {
    let mut bench = Bench::new(&DmaConfig { queue_depth: 2, ..DmaConfig::default() });
    let end = RAM + RAM_BYTES;
    let refused: [(u64, u64, u64, DmaError); 9] = [
        (register::SEND_REQUEST, RAM, 0, DmaError::Length { bytes: 0 }),
        (register::SEND_REQUEST, RAM, 2113, DmaError::Length { bytes: 2113 }),
        (register::SEND_REQUEST, RAM, 0xffff, DmaError::Length { bytes: 0xffff }),
        (register::SEND_REQUEST, RAM - 1, 64, DmaError::Address { address: RAM - 1, bytes: 64 }),
        (register::SEND_REQUEST, end - 63, 64, DmaError::Address { address: end - 63, bytes: 64 }),
        (
            register::SEND_REQUEST,
            0xffff_ffff_ffff,
            64,
            DmaError::Address { address: 0xffff_ffff_ffff, bytes: 64 },
        ),
        (register::RECEIVE_REQUEST, RAM + 4, 0, DmaError::Misaligned { address: RAM + 4 }),
        (register::RECEIVE_REQUEST, end - 64, 0, DmaError::Address { address: end - 64, bytes: 2112 }),
        (register::RECEIVE_REQUEST, end - 64, 65, DmaError::Address { address: end - 64, bytes: 65 }),
    ];
    for (register, address, bytes, error) in refused {
        bench.post(register, address, bytes);
        assert_eq!(bench.errors(), [error]);
        assert_eq!(bench.counts(), [2, 2, 0, 0], "{error}");
    }
    assert_eq!(bench.load(register::SEND_COMPLETION, 2), 0);
    assert_eq!(bench.load(register::RECEIVE_COMPLETION, 2), 0);
    let empty = [Queue::SendCompletion, Queue::ReceiveCompletion].map(DmaError::Empty);
    assert_eq!(bench.errors(), empty);
    for _ in 0..3 {
        bench.post_receive(RAM, 0);
        bench.post_send(RAM, 64);
    }
    assert_eq!(bench.errors(), [Queue::Receive, Queue::Send].map(DmaError::Full));
    assert_eq!(bench.nic.counters().refused, 13);
    // Requests that were not refused are still served.
    bench.run(500);
    assert_eq!((bench.departures.len(), bench.counts()), (2, [2, 0, 2, 0]));
}

#[test]
fn nonsense_is_refused_and_all_else_is_accounted_for() {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let config = DmaConfig { queue_depth: 4, receive_words: 300, ..DmaConfig::default() };
        let mut bench = Bench::new(&config);
        let (mut arrived, mut last, mut refused) = (0, 0, 0);
        let (mut taken, mut accepted) = ([0u64; 2], 0);
        for _ in 0..2_000 {
            let address = match rng.below(8) {
                0 => rng.next_u64(),
                1 => RAM + RAM_BYTES - rng.below(4096),
                _ => RAM + rng.below(RAM_BYTES / 8) * 8,
            };
            let bytes = if rng.below(8) == 0 { rng.below(1 << 16) } else { rng.between(1, 300) };
            match rng.below(6) {
                0 => bench.post_receive(address & ((1 << 48) - 1), bytes),
                1 => {
                    bench.post_send(address & ((1 << 48) - 1), bytes);
                    accepted += u64::from(bench.errors().is_empty());
                }
                2 => taken[0] += bench.load(register::SEND_COMPLETION, 2),
                3 => taken[1] += u64::from(bench.load(register::RECEIVE_COMPLETION, 2) > 0),
                _ => {
                    let bytes = bytes % 3000;
                    last = bench.cycle.max(last) + bytes.div_ceil(8);
                    bench.nic.receive(last, frame(bytes as usize, seed));
                    arrived += 1;
                }
            }
            bench.errors();
            bench.run(rng.below(60));
        }
        bench.run(last.saturating_sub(bench.cycle) + 10);
        // Requests that are still queued end when there is room for their completions.
        for _ in 0..2_000 {
            for (index, register) in
                [register::SEND_COMPLETION, register::RECEIVE_COMPLETION].into_iter().enumerate()
            {
                taken[index] += u64::from(bench.load(register, 2) > 0);
            }
            if bench.counts()[1] > 0 {
                bench.post_receive(RAM, 0);
            }
            refused += bench.errors().len();
            bench.run(100);
        }
        let counters = bench.nic.counters();
        assert_eq!(
            (counters.received, counters.delivered + counters.lost()),
            (arrived, arrived),
            "seed {seed}"
        );
        assert_eq!([counters.sent, counters.delivered], taken, "seed {seed}");
        assert_eq!((bench.departures.len() as u64, accepted), (counters.sent, counters.sent), "seed {seed}");
        assert!(bench.departures.windows(2).all(|pair| pair[0].last < pair[1].first), "one at a time");
        assert!(refused > 0 && counters.refused > refused as u64);
    }
}

#[test]
fn other_addresses_and_widths_are_no_registers() {
    let mut bench = Bench::new(&DmaConfig::default());
    let right = [(0x10, 2), (0x12, 2), (0x14, 4), (0x18, 8), (0x20, 4), (0x28, 8)];
    for offset in 0..0x40 {
        for bytes in [1, 2, 4, 8] {
            let loaded = bench.nic.registers.load(offset, bytes);
            assert_eq!(loaded.is_ok(), right.contains(&(offset, bytes)), "{offset:#x} {bytes}");
            let stored = bench.nic.registers.store(offset, bytes, 0, &bench.ram);
            let writable = [(0, 8), (8, 8), (0x20, 4)].contains(&(offset, bytes));
            assert_eq!(stored, if writable { Ok(()) } else { Err(AccessFault) }, "{offset:#x} {bytes}");
        }
    }
    assert_eq!(bench.load(register::MAC, 8), DmaConfig::default().mac);
}

#[test]
fn frames_without_a_buffer_wait_until_there_is_no_room_and_are_then_counted() {
    let mut bench = Bench::new(&DmaConfig { receive_words: 20, ..DmaConfig::default() });
    for number in 0..3 {
        bench.nic.receive(10 * number + 9, frame(80, number));
    }
    bench.run(100);
    let counters = bench.nic.counters();
    assert_eq!((counters.received, counters.without_room, counters.delivered), (3, 1, 0));
    bench.post_receive(RAM, 0);
    bench.post_receive(RAM + 128, 0);
    bench.post_receive(RAM + 256, 0);
    bench.run(300);
    assert_eq!(bench.counts()[3], 2);
    assert_eq!((bench.memory(RAM, 80), bench.memory(RAM + 128, 80)), (&frame(80, 0)[..], &frame(80, 1)[..]));
    assert_eq!(bench.load(register::LOST, 8), 1);
    // There is room again.
    bench.nic.receive(bench.cycle, frame(80, 9));
    bench.run(100);
    assert_eq!((bench.counts()[3], bench.memory(RAM + 256, 80)), (3, &frame(80, 9)[..]));
}

#[test]
fn a_frame_longer_than_its_buffer_is_lost_and_the_buffer_stays() {
    let mut bench = Bench::new(&DmaConfig::default());
    bench.post_receive(RAM, 64);
    bench.nic.receive(20, frame(65, 1));
    bench.nic.receive(40, frame(64, 2));
    bench.nic.receive(60, Vec::new());
    bench.nic.receive(400, frame(FRAME_BYTES_MAX + 1, 3));
    bench.run(600);
    let counters = bench.nic.counters();
    assert_eq!((counters.too_long, counters.malformed, counters.delivered, counters.lost()), (1, 2, 1, 3));
    assert_eq!(bench.load(register::RECEIVE_COMPLETION, 2), 64);
    assert_eq!(bench.memory(RAM, 64), frame(64, 2));
}

#[test]
fn completions_wait_for_room() {
    let mut bench = Bench::new(&DmaConfig { queue_depth: 1, ..DmaConfig::default() });
    for number in 0..3 {
        bench.nic.receive(10 * number, frame(64, number));
    }
    for number in 0..3u64 {
        bench.post_receive(RAM + 64 * number, 64);
        bench.run(200);
        assert_eq!(bench.counts()[3], 1);
    }
    // The second frame has been written, and the third has not: its engine waits.
    assert_eq!(bench.memory(RAM + 64, 64), frame(64, 1));
    assert!(bench.memory(RAM + 128, 64).iter().all(|&byte| byte == 0));
    for _ in 0..3 {
        assert_eq!(bench.load(register::RECEIVE_COMPLETION, 2), 64);
        bench.run(200);
    }
    assert_eq!((bench.nic.counters().delivered, bench.errors()), (3, vec![]));
}

#[test]
fn the_interrupt_is_raised_while_there_are_completions() {
    let mut bench = Bench::new(&DmaConfig::default());
    bench.post_send(RAM, 64);
    bench.post_receive(RAM + 64, 64);
    bench.nic.receive(9, frame(64, 1));
    bench.run(300);
    assert!(!bench.nic.registers.wants_interrupt());
    for (mask, completion) in [(1, register::SEND_COMPLETION), (2, register::RECEIVE_COMPLETION)] {
        bench.nic.registers.store(register::INTERRUPT_MASK, 4, mask, &bench.ram).expect("a register");
        assert!(bench.nic.registers.wants_interrupt());
        bench.load(completion, 2);
        assert!(!bench.nic.registers.wants_interrupt());
    }
}

#[test]
fn blocks_are_aligned_powers_of_two() {
    assert_eq!(
        [(0, 64), (0, 2112), (8, 64), (64, 16), (64, 24), (32, 64)]
            .map(|(address, bytes)| bus::block_bytes(address, bytes)),
        [64, 64, 8, 16, 16, 32]
    );
}
