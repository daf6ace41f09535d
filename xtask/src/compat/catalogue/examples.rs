//! libibverbs' own examples.

use super::super::case::Case;
use super::super::judge;
use super::LINKS;

pub(super) fn add(cases: &mut Vec<Case>) {
    for link in LINKS {
        // The first GID is as good as the second; scripts that were written for the kernel's software RNIC name the second.
        for arguments in ["", "-c", "-e", "-c -e", "-g 1 -n 100", "-s 65536 -m 4096", "-r 8 -n 100"] {
            for service in ["rc", "uc", "ud", "srq"] {
                if service == "ud" && arguments.contains("-m") {
                    continue;
                }
                // One receive per queue pair at least.
                let arguments =
                    if service == "srq" { arguments.replace("-r 8", "-q 4 -r 8") } else { arguments.into() };
                let gid = if arguments.contains("-g") { "" } else { "-g 0" };
                let title = format!("ibv_{service}_pingpong {gid} {arguments}").replace("  ", " ");
                let title = title.trim();
                let case = Case::two("ibverbs-utils", &format!("{title} -p {{port}}"), link, judge::pingpong);
                let is_quick = arguments == "-c" || (arguments == "-e" && service == "rc");
                cases.push(if is_quick { case.quick() } else { case });
            }
        }
        for arguments in ["-N", "-t", "-o", "-o -P"] {
            if !arguments.is_empty() {
                let title = format!("ibv_rc_pingpong -g 0 {arguments}");
                cases.push(Case::two(
                    "ibverbs-utils",
                    &format!("{title} -p {{port}}"),
                    link,
                    judge::pingpong,
                ));
            }
        }
        for arguments in ["", "-e", "-n 100"] {
            let title = format!("ibv_xsrq_pingpong -g 0 {arguments}");
            let title = format!("{} -p {{port}}", title.trim());
            cases.push(Case::two("ibverbs-utils", &title, link, judge::xsrq_pingpong));
        }
    }
}
