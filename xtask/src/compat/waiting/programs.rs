//! The programs that wait for completions, or whose server's threads do: how each is run, and the figure that
//! counts in its output.

use anyhow::Result;

use super::super::Workshop;
use super::super::case::{Case, Link, Ready};
use super::super::judge;
use super::super::outcome::Outcome;
use super::super::read::{self, Read};

/// Pings of a run of rping, which shows no times: its start and its connection are shared by so many.
const PINGS: u32 = 5000;
/// Milliseconds for which the token of the repository's MPI program goes round.
const RING_MS: u32 = 400;

/// A figure's upper limit, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Aim {
    pub(super) idle: f64,
    /// With a thread that computes on every core.
    pub(super) hog: Option<f64>,
}

/// How a program's figure is found.
#[derive(Debug, Clone, Copy)]
pub(super) enum Figure {
    Printed(Read),
    /// The time of the client divided by this number.
    Elapsed(u32),
}

/// One program over one link.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) case: Case,
    pub(super) figure: Figure,
    /// The measured quantity, for the table.
    pub(super) per: &'static str,
    pub(super) aim: Option<Aim>,
}

impl Figure {
    pub(super) fn of(self, outcome: &Outcome) -> Option<f64> {
        let value = match self {
            Figure::Printed(read) => read(&outcome.client.output)?,
            Figure::Elapsed(count) => outcome.client.elapsed.as_secs_f64() * 1e6 / f64::from(count),
        };
        (value > 0.0 && outcome.trouble().is_none()).then_some(value)
    }
}

/// Every program over both links. An aim is for programs that sleep for each message.
pub(super) fn all(workshop: &Workshop) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    let mpi = [workshop.program("ring", "mpicc.mpich", "")?, workshop.program("ring", "mpicc.openmpi", "")?];
    for link in [Link::Shm, Link::Udp] {
        let events = match link {
            Link::Udp => Aim { idle: 12.0, hog: None },
            _ => Aim { idle: 4.0, hog: Some(10.0) },
        };
        let half = "half a round trip";
        let mut add =
            |case: Case, figure: Figure, per, aim| programs.push(Program { case, figure, per, aim });
        let printed = Figure::Printed;
        let perftest = |words: &str| {
            Case::two("waiting", &format!("{words} -F -s 8 -p {{port}}"), link, judge::perftest).titled(words)
        };
        add(perftest("ib_send_lat -n 10000"), printed(read::perftest_latency), half, None);
        for words in ["ib_send_lat -e -n 3000", "ib_send_lat -e -c UD -n 3000"] {
            add(perftest(words), printed(read::perftest_latency), half, Some(events));
        }
        // A READ that the device answers for its peer: a whole round trip.
        add(perftest("ib_read_lat -e -n 3000"), printed(read::perftest_latency), "a READ", Some(events));
        let uc = Aim { idle: 6.0, hog: None };
        add(perftest("ib_write_lat -c UC -n 3000"), printed(read::perftest_latency), half, Some(uc));
        let words = "ibv_rc_pingpong -g 0 -e -n 3000";
        let case = Case::two("waiting", &format!("{words} -p {{port}}"), link, judge::pingpong);
        add(case, printed(read::pingpong_latency), half, Some(events));
        let common = format!("-a {{address}} -p {{port}} -C {PINGS}");
        let case = Case::two("waiting", &format!("rping -C {PINGS}"), link, judge::ended_well)
            .ends(&format!("rping -s {common}"), &format!("rping -c {common}"), Ready::Soon)
            .at_most(30);
        add(case, Figure::Elapsed(PINGS), "a ping: four messages, a READ and a WRITE", None);
        let words = "rstream -T b -S 8 -C 1 -I 2000";
        let case = Case::two("waiting", words, link, judge::stream).ends(
            &format!("{words} -p {{port}}"),
            &format!("{words} -p {{port}} -s {{address}}"),
            Ready::Soon,
        );
        add(case, printed(read::rstream_latency), half, Some(events));
        for (tls, test, per) in [
            ("rc_verbs,ud_verbs", "tag_lat -E sleep", half),
            ("ud_verbs", "tag_lat -E sleep", half),
            ("ud_verbs", "ucp_put_lat", half),
            ("ud_verbs", "ucp_get", "a GET"),
            ("ud_verbs", "ucp_fadd", "a fetch and add"),
        ] {
            let aim = test.contains("sleep").then_some(events);
            add(ucx(tls, test, link), printed(read::ucx_latency), per, aim);
        }
        let words = "fi_pingpong -p verbs -e msg -S 64 -I 3000";
        let case = Case::two("waiting", words, link, judge::fi_pingpong).ends(
            &format!("{words} -B {{port}}"),
            &format!("{words} -P {{port}} {{address}}"),
            Ready::Port,
        );
        add(case, printed(read::fi_pingpong_latency), half, None);
        let words = "qperf -cm 1 -t 1 -m 8 rc_lat";
        let case = Case::two("waiting", words, link, judge::qperf)
            .ends("qperf -lp {port}", "qperf -lp {port} -t 1 -cm 1 -m 8 {address} rc_lat", Ready::Port)
            .server_stays();
        add(case, printed(read::qperf_latency), half, Some(events));
        for (implementation, program) in ["MPICH", "Open MPI"].into_iter().zip(&mpi) {
            let Some(program) = program else { continue };
            let rest = format!("{} {RING_MS}", program.display());
            let line = if implementation == "MPICH" {
                format!("env UCX_TLS=rc_verbs,ud_verbs,self mpiexec.hydra -launcher fork -n 4 {rest}")
            } else {
                format!(
                    "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe -np 4 --mca pml ucx \
                     --mca osc ucx --mca btl ^vader,tcp,openib -x UCX_TLS=rc_verbs,ud_verbs,self {rest}"
                )
            };
            let case = Case::one("waiting", &line, judge::ended_well)
                .titled(&format!("{implementation}, four ranks, a token's hop"));
            let case = Case { link, ..case }.at_most(60);
            add(case, printed(read::ring_latency), "a hop", None);
        }
    }
    programs.push(Program {
        case: ucx("tcp", "ucp_get", Link::Auto),
        figure: Figure::Printed(read::ucx_latency),
        per: "a GET over the kernel's TCP",
        aim: None,
    });
    Ok(programs)
}

fn ucx(tls: &str, test: &str, link: Link) -> Case {
    let title = format!("UCX_TLS={tls} ucx_perftest -t {test}");
    let common = format!("env UCX_TLS={tls} ucx_perftest -t {test} -s 8 -n 2000 -w 100 -p {{port}}");
    Case::two("waiting", &title, link, judge::ucx_perftest).ends(
        &common,
        &format!("{common} {{address}}"),
        Ready::Port,
    )
}
