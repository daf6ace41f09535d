//! Libraries that are built on verbs: qperf, libfabric, UCX, MPI.

use anyhow::Result;

use crate::shell::Line;

use super::super::Workshop;
use super::super::case::{Case, Link, Ready};
use super::super::ends;
use super::super::judge;
use super::super::verdict::Verdict;
use super::LINKS;

pub(super) fn add(cases: &mut Vec<Case>) {
    for link in LINKS {
        add_qperf(cases, link);
        add_libfabric(cases, link);
        add_ucx(cases, link);
        add_mpi(cases, link);
    }
}

fn add_qperf(cases: &mut Vec<Case>, link: Link) {
    // Without connection management qperf addresses its peer by LID, which no RoCE device has.
    let tests = "rc_lat rc_bw rc_bi_bw rc_rdma_read_lat rc_rdma_read_bw rc_rdma_write_lat rc_rdma_write_bw \
                 rc_rdma_write_poll_lat rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap ver_rc_fetch_add";
    for test in tests.split_whitespace() {
        for option in ["", " -cp 1"] {
            if !option.is_empty() && !["rc_lat", "rc_bw"].contains(&test) {
                continue;
            }
            let client = format!("qperf -lp {{port}} -t 1 -cm 1{option} {{address}} {test}");
            let title = format!("qperf -cm 1{option} {test}");
            let case = Case::two("qperf", &title, link, judge::qperf);
            cases.push(case.ends("qperf -lp {port}", &client, Ready::Port).server_stays());
        }
    }
}

fn add_libfabric(cases: &mut Vec<Case>, link: Link) {
    for (provider, kind) in [("verbs", "msg"), ("verbs;ofi_rxm", "rdm"), ("verbs", "dgram")] {
        let title = format!("fi_pingpong -p {provider} -e {kind} -c");
        let with_port = |option: &str| format!("{title} {option} {{port}}");
        let (server, client) = (with_port("-B"), with_port("-P") + " {address}");
        cases.push(Case::two("libfabric", &title, link, judge::fi_pingpong).ends(
            &server,
            &client,
            Ready::Port,
        ));
    }
}

fn add_ucx(cases: &mut Vec<Case>, link: Link) {
    // Endpoints of RC are joined by messages over UD.
    for transport in ["rc_verbs,ud_verbs", "ud_verbs"] {
        for test in [
            "tag_lat",
            "tag_bw",
            "ucp_put_lat",
            "ucp_put_bw",
            "ucp_get",
            "ucp_fadd",
            "stream_bw",
            "ucp_am_lat",
        ] {
            let size = if test.contains("bw") { "-s 65536 -n 2000" } else { "-n 2000" };
            let common = format!("env UCX_TLS={transport} ucx_perftest -w 100 -t {test} {size}");
            cases.push(
                Case::two(
                    "ucx",
                    &format!("UCX_TLS={transport} ucx_perftest -t {test}"),
                    link,
                    judge::ucx_perftest,
                )
                .ends(
                    &format!("{common} -p {{port}}"),
                    &format!("{common} -p {{port}} {{address}}"),
                    Ready::Port,
                ),
            );
        }
    }
    for transport in ["rc_verbs", "ud_verbs"] {
        let common = format!("ucx_perftest -d hw0:1 -x {transport} -t am_lat -n 2000 -w 100");
        cases.push(Case::two("ucx", &common, link, judge::ucx_perftest).ends(
            &format!("{common} -p {{port}}"),
            &format!("{common} -p {{port}} {{address}}"),
            Ready::Port,
        ));
    }
}

fn add_mpi(cases: &mut Vec<Case>, link: Link) {
    for title in [
        "OpenMPI, UCX rc_verbs,ud_verbs",
        "OpenMPI, UCX ud_verbs",
        "OpenMPI, openib",
        "OpenMPI, libfabric verbs",
        "MPICH, UCX rc_verbs,ud_verbs",
        "MPICH, UCX ud_verbs",
    ] {
        cases.push(Case::special("mpi", title, link, play_mpi));
    }
}

/// Builds the MPI program with the implementation's compiler and runs two ranks of it.
fn play_mpi(workshop: &Workshop, case: &Case) -> Result<Verdict> {
    let is_open = case.title.starts_with("OpenMPI");
    let compiler = if is_open { "mpicc.openmpi" } else { "mpicc.mpich" };
    let Some(program) = workshop.program("mpi", compiler, "")? else {
        return Ok(Verdict::Skipped(format!("no {compiler} here")));
    };
    if case.title == "OpenMPI, openib" && !openib_has_rdmacm()? {
        return Ok(Verdict::Skipped(
            "this Open MPI was built without openib's connections by rdma_cm; the other way, udcm, is for InfiniBand's LIDs \
             and refuses Ethernet devices of every maker"
                .into(),
        ));
    }
    let program = program.display();
    let transport = case.title.rsplit(' ').next().unwrap_or_default();
    let open =
        "env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun.openmpi --oversubscribe -np 2";
    let line = match case.title.as_str() {
        "OpenMPI, openib" => format!(
            "{open} --mca pml ob1 --mca btl openib,self --mca btl_openib_allow_ib 1 \
             --mca btl_openib_warn_no_device_params_found 0 --mca btl_openib_receive_queues P,65536,64 {program}"
        ),
        "OpenMPI, libfabric verbs" => format!(
            "{open} --mca pml cm --mca mtl ofi --mca mtl_ofi_provider_include verbs;ofi_rxm {program}"
        ),
        _ if is_open => format!(
            "{open} --mca pml ucx --mca osc ucx --mca btl ^vader,tcp,openib -x UCX_TLS={transport},self {program}"
        ),
        _ => format!("env UCX_TLS={transport},self mpiexec.hydra -launcher fork -n 2 {program}"),
    };
    let one = Case::one(case.group, &line, judge::mpi).titled(&case.title).at_most(60);
    let one = Case { link: case.link, ..one };
    ends::run(workshop, &one)
}

/// Whether Open MPI's openib can connect over Ethernet at all.
fn openib_has_rdmacm() -> Result<bool> {
    let output = Line::new("ompi_info").words("--param btl openib --level 9 --parsable").capture()?;
    Ok(output.stdout.contains("btl_openib_connect_rdmacm"))
}
