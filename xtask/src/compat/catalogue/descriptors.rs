//! Programs that sleep in `poll`, `select` or `epoll_wait`, on the descriptor of their completion channel and others.

use anyhow::Result;

use super::super::Workshop;
use super::super::case::Case;
use super::super::ends;
use super::super::judge;
use super::super::verdict::Verdict;
use super::LINKS;

pub(super) fn add(cases: &mut Vec<Case>) {
    for link in LINKS {
        let in_poll = "a channel beside a pipe in poll, and in a set in a set";
        cases
            .push(Case::special("descriptors", in_poll, link, |shop, case| play(shop, case, "poll")).quick());
        let in_select = "a channel beside a pipe in select, and in a set in a set";
        let play = |shop: &Workshop, case: &Case| play(shop, case, "select");
        cases.push(Case::special("descriptors", in_select, link, play).quick());
    }
}

/// Builds `interop/programs/beside.c` and runs it: two processes, whose threads must have found their own events.
fn play(workshop: &Workshop, case: &Case, server: &str) -> Result<Verdict> {
    if !std::path::Path::new("/usr/include/infiniband/verbs.h").is_file() {
        return Ok(Verdict::Skipped("no infiniband/verbs.h, from Debian's libibverbs-dev".into()));
    }
    let Some(program) = workshop.program("beside", "cc", "-libverbs")? else {
        return Ok(Verdict::Skipped("no cc, from Debian's gcc".into()));
    };
    let line = format!("{} 2000 {} {server}", program.display(), workshop.highwire.display());
    let one = Case::one(case.group, &line, judge::found_their_own).titled(&case.title).at_most(120);
    ends::run(workshop, &Case { link: case.link, ..one })
}
