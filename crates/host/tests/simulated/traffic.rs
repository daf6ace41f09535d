//! A thread of a process: it posts the requests of its connections, takes completions, and checks each of them.

use crate::plan::{EndPlan, Request, Style, Theme, What};
use crate::process::{Name, Published, Scene, messages};
use highwire_host::verbs::{
    Completion, CompletionOp, CompletionStatus, Operation, QpAttr, QpState, Remote, SendWr, Sge,
};
use highwire_host::{Buffer, CompletionChannel, CompletionQueue, EMPTY_COMPLETION, QueuePair, WaitFor};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The word that the peer adds to, and the area that it reads.
const WORD: usize = 0;
const SHOWN: usize = 64;
const SHOWN_BYTES: usize = crate::plan::SLOT_BYTES;
const SLOTS: usize = SHOWN + SHOWN_BYTES;
const RECEIVES: u64 = 1 << 32;
const EMPTY_POLLS: u32 = 64;
/// Without faults a message that a thread waits for comes within this time, unless the connection is new.
const LATE_NS: u64 = 5_000_000;
const NEW_NS: u64 = 100_000_000;
/// How long threads wait, where nobody dies. Longer than all stops together.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a thread looks whether its peer lives, where somebody dies.
const LOOK: Duration = Duration::from_millis(20);

/// A completion queue and its thread's way to wait for it.
pub struct Told {
    pub cq: CompletionQueue,
    pub channel: Option<CompletionChannel>,
    pub style: Style,
}

/// An end of a connection.
pub struct End {
    pub name: Name,
    pub own: EndPlan,
    theirs: EndPlan,
    pub qp: QueuePair,
    pub buffer: Buffer,
    pub peer: Option<Published>,
    pub connected_ns: u64,
    /// The connection is over before its time.
    pub is_broken: bool,
    next: usize,
    completed: usize,
    sent_messages: usize,
    received: usize,
    flushed_receives: usize,
    added: u64,
}

fn rounded(bytes: usize) -> usize {
    bytes.next_multiple_of(64) + 64
}

/// Where the data of each of some requests lie, from an offset on; and the end.
fn places(plan: &EndPlan, from: usize) -> (Vec<usize>, usize) {
    let mut at = from;
    let mut places = Vec::new();
    for request in &plan.requests {
        places.push(at);
        at += rounded(request.bytes);
    }
    (places, at)
}

/// Memory: what the peer writes, what it sends, and what this end sends.
pub fn memory_bytes(own: &EndPlan, theirs: &EndPlan) -> usize {
    let (_, landing) = places(theirs, SLOTS);
    let (_, receives) = places(theirs, landing);
    places(own, receives).1
}

/// The bytes of a request.
fn content((round, at, side): Name, number: usize, bytes: usize) -> Vec<u8> {
    let base = (round * 101 + at * 37 + side * 17 + number * 5 + 1) as u8;
    (0..bytes).map(|i| base.wrapping_add((i as u8).wrapping_mul(31)) ^ (i >> 8) as u8).collect()
}

/// The number that stands for an end's own area.
const SHOWN_NUMBER: usize = 99;

impl End {
    pub fn new(name: Name, (own, theirs): (EndPlan, EndPlan), qp: QueuePair, buffer: Buffer) -> End {
        buffer.word(WORD).store(0, Ordering::Release);
        buffer.write(SHOWN, &content(name, SHOWN_NUMBER, SHOWN_BYTES));
        End {
            name,
            own,
            theirs,
            qp,
            buffer,
            peer: None,
            connected_ns: 0,
            is_broken: false,
            next: 0,
            completed: 0,
            sent_messages: 0,
            received: 0,
            flushed_receives: 0,
            added: 0,
        }
    }

    fn landing(&self) -> (Vec<usize>, usize) {
        places(&self.theirs, SLOTS)
    }

    fn receiving(&self) -> Vec<usize> {
        places(&self.theirs, self.landing().1).0
    }

    fn sources(&self) -> Vec<usize> {
        let receives = places(&self.theirs, self.landing().1).1;
        places(&self.own, receives).0
    }

    fn peers_name(&self) -> Name {
        let (round, at, side) = self.name;
        (round, at, 1 - side)
    }

    /// The receives for all messages that the peer will send.
    pub fn receives(&self) -> Vec<(u64, Vec<Sge>)> {
        let places = self.receiving();
        let id = |number: usize| RECEIVES | (self.name.1 as u64) << 16 | number as u64;
        let all = messages(&self.theirs).enumerate();
        all.map(|(number, (at, what, bytes))| {
            let is_empty = what == What::WriteImm || bytes == 0;
            let sges =
                if is_empty { Vec::new() } else { vec![self.buffer.sge(places[at] as u64, bytes as u32)] };
            (id(number), sges)
        })
        .collect()
    }

    fn is_complete(&self) -> bool {
        let messages = messages(&self.theirs).count();
        if self.is_broken {
            return self.completed == self.next && self.received + self.flushed_receives == messages;
        }
        self.completed == self.own.requests.len() && self.received == messages
    }

    /// How far it has come.
    fn standing(&self) -> String {
        let End { next, completed, received, flushed_receives, is_broken, .. } = self;
        let expected = messages(&self.theirs).count();
        format!(
            "posted {next}, completed {completed}, received {received} and {flushed_receives} flushed of {expected}, broken {is_broken}, {:?}",
            self.qp.state()
        )
    }

    fn may_post(&self) -> bool {
        let Some(request) = self.own.requests.get(self.next) else { return false };
        let is_ahead = request.what.is_message()
            && self.sent_messages >= self.received + self.own.lead
            && self.received < messages(&self.theirs).count();
        !self.is_broken && self.next - self.completed < self.own.window && !is_ahead
    }

    fn post(&mut self, scene: &Scene) {
        let Request { what, bytes, .. } = self.own.requests[self.next];
        let (number, peer) = (self.next, self.peer.expect("it is connected"));
        let source = self.sources()[number];
        let into = places(&self.own, SLOTS).0[number];
        let remote = |offset: usize| Remote { va: peer.memory.va + offset as u64, rkey: peer.memory.rkey };
        let operation = match what {
            What::Send => Operation::Send,
            What::SendImm => Operation::SendImm(number as u32 ^ 0x5A5A_0000),
            What::Write => Operation::Write(remote(into)),
            What::WriteImm => Operation::WriteImm(remote(into), number as u32 ^ 0x5A5A_0000),
            What::Read => Operation::Read(remote(SHOWN)),
            What::FetchAdd => Operation::FetchAdd { remote: remote(WORD), add: number as u64 + 1 },
        };
        if !matches!(what, What::Read | What::FetchAdd) {
            self.buffer.write(source, &content(self.name, number, bytes));
        }
        let sges = if bytes == 0 { Vec::new() } else { vec![self.buffer.sge(source as u64, bytes as u32)] };
        let id = (self.name.1 as u64) << 16 | number as u64;
        scene.posted.borrow_mut().insert((self.name, number), scene.machine.now_ns());
        self.next += 1;
        self.sent_messages += usize::from(what.is_message());
        self.qp.post_send(&[SendWr::new(id, operation, &sges)]).expect("there is room");
    }

    fn take(&mut self, scene: &Scene, completion: &Completion, idle_since: u64) {
        let Completion { wr_id, status, .. } = *completion;
        let (is_receive, number) = (wr_id & RECEIVES != 0, (wr_id & 0xFFFF) as usize);
        if status != CompletionStatus::Success {
            let (round, peer) = (self.name.0, self.theirs.process);
            assert!(
                scene.is_dead(round, peer) || self.is_broken,
                "{status:?} of {number}, {self}: the peer lives"
            );
            self.is_broken = true;
            if is_receive {
                self.flushed_receives += 1;
            } else {
                assert_eq!(number, self.completed, "{self}: flushed requests complete in their order");
                self.completed += 1;
            }
        } else if is_receive {
            self.take_message(scene, completion, number, idle_since);
        } else {
            self.take_result(number);
        }
    }

    fn take_message(&mut self, scene: &Scene, completion: &Completion, number: usize, idle_since: u64) {
        assert_eq!(number, self.received, "{self}: receives are taken in their order");
        let (at, what, bytes) = messages(&self.theirs).nth(number).expect("no more receives than messages");
        assert_eq!(completion.byte_len as usize, bytes, "{self}: message {number} is whole");
        let is_write = completion.operation == CompletionOp::ReceiveWriteImm;
        assert_eq!(is_write, what == What::WriteImm, "{self}: message {number} is a {what:?}");
        if what != What::Send {
            assert_eq!(completion.immediate, at as u32 ^ 0x5A5A_0000, "{self}: immediate data of {number}");
        }
        let place = if is_write { self.landing().0[at] } else { self.receiving()[at] };
        let expected = content(self.peers_name(), at, bytes);
        assert!(self.buffer.to_vec(place, bytes) == expected, "{self}: the bytes of message {number}");
        self.received += 1;
        *scene.messages.borrow_mut() += 1;
        let posted = scene.posted.borrow()[&(self.peers_name(), at)];
        let now = scene.machine.now_ns();
        let late = now - posted.max(idle_since);
        if scene.plan.theme == Theme::Clean && now - self.connected_ns > NEW_NS {
            assert!(late < LATE_NS, "{self}: message {number} comes {late} ns late");
        }
    }

    fn take_result(&mut self, number: usize) {
        assert_eq!(number, self.completed, "{self}: requests complete in their order");
        let (Request { what, bytes, .. }, source) = (self.own.requests[number], self.sources()[number]);
        match what {
            What::Read => {
                let expected = content(self.peers_name(), SHOWN_NUMBER, bytes);
                assert!(self.buffer.to_vec(source, bytes) == expected, "{self}: the bytes of READ {number}");
            }
            What::FetchAdd => {
                let found = self.buffer.word(source).load(Ordering::Acquire);
                assert_eq!(found, self.added, "{self}: atomic {number} happens once, and in its order");
                self.added += number as u64 + 1;
            }
            _ => {}
        }
        self.completed += 1;
    }

    /// The peer is dead, and nothing of this end's is under way: nothing else would end its receives.
    fn break_off(&mut self, scene: &Scene) {
        if !self.is_broken && self.completed == self.next && scene.is_dead(self.name.0, self.theirs.process) {
            self.qp.modify(&QpAttr::to_state(QpState::Error)).expect("always allowed");
            self.is_broken = true;
        }
    }

    /// What the peer has written is there, and what it has added.
    pub fn check_memory(&self) {
        let landing = self.landing().0;
        let mut added = 0;
        for (number, request) in self.theirs.requests.iter().enumerate() {
            match request.what {
                What::Write | What::WriteImm => {
                    let expected = content(self.peers_name(), number, request.bytes);
                    let found = self.buffer.to_vec(landing[number], request.bytes);
                    assert!(found == expected, "{self}: the bytes of WRITE {number}");
                }
                What::FetchAdd => added += number as u64 + 1,
                _ => {}
            }
        }
        let word = self.buffer.word(WORD).load(Ordering::Acquire);
        assert_eq!(word, added, "{self}: what the peer has added");
        let shown = self.buffer.to_vec(SHOWN, SHOWN_BYTES);
        assert!(shown == content(self.name, SHOWN_NUMBER, SHOWN_BYTES), "{self}: what nobody writes");
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (round, at, side) = self.name;
        write!(f, "connection {at} of round {round}, end {side} in process {}", self.own.process)
    }
}

/// Serves its ends until all of them are complete.
pub fn serve(scene: &Scene, told: &Told, mut ends: Vec<End>) -> Vec<End> {
    let mut idle_since = scene.machine.now_ns();
    loop {
        for end in &mut ends {
            while end.may_post() {
                let pause = end.own.requests[end.next].pause_ns;
                if pause > 0 {
                    scene.machine.sleep_ns(pause);
                }
                end.post(scene);
                idle_since = scene.machine.now_ns();
            }
            end.break_off(scene);
        }
        if ends.iter().all(End::is_complete) {
            return ends;
        }
        let mut found = [EMPTY_COMPLETION; 4];
        let count = wait(scene, told, &mut found);
        if count == 0 {
            ends.iter().for_each(|end| scene.machine.tell(|| format!("{end} waits: {}", end.standing())));
        }
        for completion in &found[..count] {
            let at = (completion.wr_id >> 16 & 0xFFFF) as usize;
            let end = ends.iter_mut().find(|end| end.name.1 == at && end.qp.qpn() == completion.qpn);
            end.expect("the completion is of one of these").take(scene, completion, idle_since);
        }
        idle_since = scene.machine.now_ns();
    }
}

/// Waits for completions as the thread does, and takes them.
fn wait(scene: &Scene, told: &Told, found: &mut [Completion]) -> usize {
    let dies = scene.plan.theme == Theme::Killed;
    let patience = if dies { LOOK } else { PATIENCE };
    let count = told.cq.poll(found);
    if count > 0 {
        return count;
    }
    let is_there = match (told.style, &told.channel) {
        (Style::Channel, Some(channel)) => {
            told.cq.request_notify(WaitFor::Any).expect("it has a channel");
            let count = told.cq.poll(found);
            if count > 0 {
                return count;
            }
            channel.event(Some(patience)).is_some()
        }
        (Style::Wait, _) => told.cq.wait(WaitFor::Any, patience),
        _ => return poll(scene, told, found, patience),
    };
    assert!(is_there || dies, "a thread has waited {patience:?} in vain");
    told.cq.poll(found)
}

/// Polls, and after a while only now and then.
fn poll(scene: &Scene, told: &Told, found: &mut [Completion], patience: Duration) -> usize {
    let begin = scene.machine.now_ns();
    let mut pause = 500;
    for polls in 1u32.. {
        let count = told.cq.poll(found);
        if count > 0 || scene.machine.now_ns() - begin > patience.as_nanos() as u64 {
            assert!(count > 0 || scene.plan.theme == Theme::Killed, "a thread has polled in vain");
            return count;
        }
        if polls >= EMPTY_POLLS {
            scene.machine.sleep_ns(pause);
            pause = (pause * 2).min(1_000_000);
        }
    }
    0
}
