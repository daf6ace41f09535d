//! Every task of the repository, for people and CI alike: `cargo xtask --help`.
//!
//! A task is a function that returns `Result<ExitCode>`; all commands go through [`shell`], so that their
//! output is kept in a log and the command that repeats it can be printed.

mod bench;
mod commands;
mod compat;
mod debian;
mod debug;
mod dist;
mod documents;
mod faults;
mod figures;
mod fuzz;
mod gallery;
mod guard;
mod interop;
mod java;
mod layers;
mod libs;
mod measure;
mod measurements;
mod mutants;
mod nanopu;
mod packages;
mod programs;
mod python;
mod rocket;
mod rtl;
mod shell;
mod soak;
mod store;
mod stress;
mod table;
mod test;
mod tour;
mod wheels;
mod witnesses;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Every task of the repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Show each capability doing its real job, with a table of results and a page.
    Tour(tour::Args),
    /// Run every test; install what they need first where that is possible.
    Test(test::Args),
    /// Fuzz one target, or each in turn, for longer than `test` does.
    Fuzz(fuzz::Args),
    /// Plant bugs of one line each, and count those that a crate's own tests notice.
    Mutants(mutants::Args),
    /// Do one thing very often, and count what that leaves behind.
    Soak(soak::Args),
    /// Run the Java modules' concurrency tests (jcstress) for longer than `test` does.
    Stress(stress::Args),
    /// Measure the tables of docs/measurements.
    Bench(bench::Args),
    /// Draw the charts of docs/measurements again, from the tables that are there.
    Charts,
    /// Do real faults to real processes of the store, and measure how long each is felt.
    Faults(faults::Args),
    /// Run Redis's own tests against the store.
    Store(store::Args),
    /// Play every scenario of faults that ships, often, or software of others under some: is it the same each time?
    Gallery(gallery::Args),
    /// Play every figure of the IRN paper on the simulator: claim, paper, here, inside the band?
    Figures(figures::Args),
    /// Run every experiment of the nanoPU paper on the simulator: claim, paper, here, inside the band?
    Nanopu(nanopu::Args),
    /// Build the drop-in libibverbs.so.1 and librdmacm.so.1.
    Libs(libs::Args),
    /// Make what users install: packages, an image, a wheel; crates and Java's modules.
    Dist(dist::Args),
    /// Run programs and test suites of others over the drop-in libraries.
    Compat(compat::Args),
    /// Run small programs in C against the drop-in libraries, over both links.
    Programs(programs::Args),
    /// Hold the nanoPU's blocks in SystemVerilog against the model, cycle by cycle; or synthesise them.
    Rtl(rtl::Args),
    /// Hold the nanoPU's core against the RTL of Rocket, commit by commit.
    Rocket(rocket::Args),
    /// Run stock Hadoop, or ZooKeeper's own tests, over the Java modules.
    Java(java::suites::Args),
    /// Talk to the Linux kernel's own software RNIC in a virtual machine.
    Interop(interop::Args),
    /// Measure in a virtual machine what the kernel can do for waiting threads.
    Wake(interop::wake::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Tour(args) => tour::run(&args),
        Task::Test(args) => test::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Mutants(args) => mutants::run(&args),
        Task::Soak(args) => soak::run(&args),
        Task::Stress(args) => stress::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Charts => measurements::draw_charts(),
        Task::Faults(args) => faults::run(&args),
        Task::Store(args) => store::run(&args),
        Task::Gallery(args) => gallery::run(&args),
        Task::Figures(args) => figures::run(&args),
        Task::Nanopu(args) => nanopu::run(&args),
        Task::Libs(args) => libs::run(&args),
        Task::Dist(args) => dist::run(&args),
        Task::Compat(args) => compat::run(&args),
        Task::Programs(args) => programs::run(&args),
        Task::Rtl(args) => rtl::run(&args),
        Task::Rocket(args) => rocket::run(&args),
        Task::Java(args) => java::suites::run(&args),
        Task::Interop(args) => interop::run(&args),
        Task::Wake(args) => interop::wake::run(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
