//! What things cost, in nanoseconds.

macro_rules! costs {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The constants of a machine.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
        pub struct Costs {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Costs {
            /// Names and values, in the order of declaration.
            pub fn each(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }

            /// The median of each, of several measurements; `None` of none.
            pub fn median(of: &[Costs]) -> Option<Costs> {
                Some(Costs { $($name: median(of.iter().map(|costs| costs.$name))?,)* })
            }
        }
    };
}

costs! {
    /// A polling thread's look at a word that no other thread has changed, with a pause.
    relax_ns,
    /// A turn of work in which there is nothing to do.
    turn_ns,
    /// A polling thread's extra time for an event: to count it and report it.
    event_ns,
    /// Until a core sees a word that another core has written.
    fetch_ns,
    /// A look at the clock.
    clock_ns,
    /// A call that finds nothing to do: a wake-up where none sleeps, a yield where none waits.
    call_ns,
    /// Asking how many threads want to run.
    census_ns,
    /// Starting a thread.
    spawn_ns,
    /// A thread's own time to move to another core.
    move_ns,
    /// The caller's time to wake a thread of another core, if that core is idle.
    wake_idle_ns,
    /// The same, if that core runs something.
    wake_busy_ns,
    /// The same for a thread of the caller's own core.
    wake_here_ns,
    /// The sleeping thread's own time, to go to sleep and to come back.
    sleep_ns,
    /// Its extra time if another core has woken it and its own was idle: caches, the scheduler's search for
    /// other work. Processor time only: any delay that the thread sees is part of `idle_exit_ns`.
    from_idle_ns,
    /// The same if its own core ran something.
    from_busy_ns,
    /// From one thread to the next of the same core.
    switch_ns,
    /// From the end of the caller's call until an idle core runs the thread.
    idle_exit_ns,
    /// From the end of the caller's call until a core that runs something turns to the thread.
    interrupt_ns,
    /// How long a thread that is picked keeps its core while others want it: until the scheduler looks next.
    slice_ns,
    /// How often the scheduler looks by itself.
    tick_ns,
}

fn median(values: impl Iterator<Item = u64>) -> Option<u64> {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

impl Costs {
    /// The first impossible cost, if there is one: time would stand still, or run for hours.
    pub fn problem(&self) -> Option<String> {
        const MAX_NS: u64 = 1_000_000_000;
        /// With shorter slices a core would do nothing but switch.
        const SLICE_MIN_NS: u64 = 1000;
        self.each().into_iter().find_map(|(name, ns)| {
            let min = match name {
                // A thread that polls, or yields where none waits, would do so for ever in the same nanosecond.
                "relax_ns" | "turn_ns" | "call_ns" => 1,
                "slice_ns" | "tick_ns" => SLICE_MIN_NS,
                _ => 0,
            };
            (!(min..=MAX_NS).contains(&ns))
                .then(|| format!("{name} is {ns}; it is to be from {min} to {MAX_NS}"))
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Costs;

    /// Of no machine.
    pub(crate) const COSTS: Costs = Costs {
        relax_ns: 1,
        turn_ns: 1,
        event_ns: 0,
        fetch_ns: 1,
        clock_ns: 1,
        call_ns: 1,
        census_ns: 0,
        spawn_ns: 0,
        move_ns: 0,
        wake_idle_ns: 0,
        wake_busy_ns: 0,
        wake_here_ns: 0,
        sleep_ns: 0,
        from_idle_ns: 0,
        from_busy_ns: 0,
        switch_ns: 0,
        idle_exit_ns: 0,
        interrupt_ns: 0,
        slice_ns: 1000,
        tick_ns: 4000,
    };

    #[test]
    fn constants_in_which_time_stands_still_or_runs_for_hours_are_refused() {
        assert_eq!(COSTS.problem(), None, "measured as nothing");
        assert_eq!(COSTS.each().iter().filter(|(name, ns)| *name == "tick_ns" && *ns == 4000).count(), 1);
        for (wrong, name) in [
            (Costs { relax_ns: 0, ..COSTS }, "relax_ns is 0"),
            (Costs { turn_ns: 0, ..COSTS }, "turn_ns is 0"),
            (Costs { call_ns: 0, ..COSTS }, "call_ns is 0"),
            (Costs { slice_ns: 999, ..COSTS }, "slice_ns is 999; it is to be from 1000"),
            (Costs { tick_ns: 0, ..COSTS }, "tick_ns is 0"),
            (Costs { sleep_ns: 1_000_000_001, ..COSTS }, "sleep_ns is 1000000001"),
        ] {
            let problem = wrong.problem().expect("it is wrong");
            assert!(problem.starts_with(name), "{problem}");
        }
    }
    #[test]
    fn the_median_is_each_constants_own() {
        let of = |relax_ns, tick_ns| Costs { relax_ns, tick_ns, ..COSTS };
        assert_eq!(Costs::median(&[of(1, 9000), of(3, 5000), of(2, 7000)]), Some(of(2, 7000)));
        assert_eq!(Costs::median(&[]), None);
    }
}
