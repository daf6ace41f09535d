//! What a debugger looks at: a node that gets messages, or a program on the core alone.

use highwire_nanopu::client::{Play, Progress};
use highwire_nanopu::{Core, Event, Node, NodeConfig};
use highwire_riscv::{LoadError, MachineConfig, Platform, Program, Ram, Trap};

use crate::nanopu::bare::Bench;

/// See the module.
pub(crate) enum Subject<'a> {
    /// A node and its messages.
    Node { node: Box<Node>, play: Play<'a>, config: &'a NodeConfig },
    /// A program alone.
    Bare { bench: Box<Bench>, memory: MachineConfig },
}

/// The state of a subject at some time.
pub(super) enum Saved {
    Node(Box<Node>, Box<Progress>),
    Bare(Box<Bench>),
}

/// An exception that a core took.
pub(super) struct Taken {
    pub(super) core: usize,
    pub(super) cycle: u64,
    pub(super) pc: u64,
    pub(super) trap: Trap,
}

impl<'a> Subject<'a> {
    /// A node that gets the messages of `play`.
    pub(crate) fn node(
        program: &Program,
        config: &'a NodeConfig,
        play: Play<'a>,
    ) -> Result<Subject<'a>, LoadError> {
        Ok(Subject::Node { node: Box::new(Node::new(program, config)?), play, config })
    }

    /// A program on the core alone.
    pub(crate) fn bare(program: &Program, memory: MachineConfig) -> Result<Subject<'a>, LoadError> {
        Ok(Subject::Bare { bench: Box::new(Bench::new(program, memory)?), memory })
    }

    /// Begins again.
    pub(super) fn reset(&mut self, program: &Program) -> Result<(), LoadError> {
        match self {
            Subject::Node { node, play, config } => {
                **node = Node::new(program, config)?;
                play.rewind();
            }
            Subject::Bare { bench, memory } => **bench = Bench::new(program, *memory)?,
        }
        Ok(())
    }

    pub(super) fn save(&self) -> Saved {
        match self {
            Subject::Node { node, play, .. } => Saved::Node(node.clone(), Box::new(play.progress())),
            Subject::Bare { bench, .. } => Saved::Bare(bench.clone()),
        }
    }

    pub(super) fn restore(&mut self, saved: Saved) {
        match (self, saved) {
            (Subject::Node { node, play, .. }, Saved::Node(old, progress)) => {
                *node = old;
                play.go_back(&progress);
            }
            (Subject::Bare { bench, .. }, Saved::Bare(old)) => *bench = old,
            _ => unreachable!("a subject stays what it is"),
        }
    }

    /// One cycle. Returns the exceptions that cores took in it.
    pub(super) fn tick(&mut self) -> Vec<Taken> {
        let mut taken = Vec::new();
        let mut note = |core, event| {
            if let Event::Trap { cycle, pc, trap } = event
                && matches!(trap.cause, highwire_riscv::Cause::Exception(_))
            {
                taken.push(Taken { core, cycle, pc, trap });
            }
        };
        match self {
            // The debugger has heard of the exception when it was taken.
            Subject::Node { node, play, .. } => _ = play.tick(node, note),
            Subject::Bare { bench, .. } => note(0, bench.advance(1)),
        }
        taken
    }

    pub(super) fn exit_code(&self) -> Option<u64> {
        match self {
            Subject::Node { node, .. } => node.platform().exit_code(),
            Subject::Bare { bench, .. } => bench.exit_code(),
        }
    }

    pub(super) fn cores(&self) -> usize {
        match self {
            Subject::Node { node, .. } => node.cores(),
            Subject::Bare { .. } => 1,
        }
    }

    pub(super) fn core(&self, number: usize) -> &Core {
        match self {
            Subject::Node { node, .. } => node.core(number),
            Subject::Bare { bench, .. } => bench.core(),
        }
    }

    pub(super) fn core_mut(&mut self, number: usize) -> &mut Core {
        match self {
            Subject::Node { node, .. } => node.core_mut(number),
            Subject::Bare { bench, .. } => bench.core_mut(),
        }
    }

    pub(super) fn cycle(&self) -> u64 {
        self.core(0).cycle()
    }

    pub(super) fn platform(&self) -> &Platform {
        match self {
            Subject::Node { node, .. } => node.platform(),
            Subject::Bare { bench, .. } => bench.platform(),
        }
    }

    pub(super) fn memory_mut(&mut self) -> &mut Ram {
        match self {
            Subject::Node { node, .. } => node.memory_mut(),
            Subject::Bare { bench, .. } => bench.memory_mut(),
        }
    }

    /// The node, if there is a network.
    pub(super) fn network(&self) -> Option<&Node> {
        match self {
            Subject::Node { node, .. } => Some(node),
            Subject::Bare { .. } => None,
        }
    }

    /// The word that the next read of x30 takes.
    pub(super) fn peek_word(&self, core: usize) -> Option<u64> {
        self.network()?.peek_word(core)
    }
}
