//! A real network that is split, a real disk that is full, and a rolling restart: clients count meanwhile,
//! and count again afterwards.

mod common;

use common::be_a_node_if_asked;
use highwire_store::faults::{Etcd, Fault, Laboratory, Level, Setting, is_private, private};
use std::path::{Path, PathBuf};

use std::time::Duration;

#[test]
fn this_process_is_a_node() {
    be_a_node_if_asked();
}

fn laboratory(name: &str, level: Level) -> Laboratory {
    let setting = Setting {
        level,
        // Long enough for a process of a busy machine.
        lease_ms: 600,
        clients: 3,
        filling: 1000,
        patience: Duration::from_secs(1),
        calm: Duration::from_millis(300),
    };
    // Process numbers are no names: containers that share the folder may have the same ones.
    let fresh = highwire_store::fresh_name().expect("random numbers");
    let folder: PathBuf = std::env::temp_dir().join(format!("highwire-{name}-{fresh}"));
    let launch = |file: &Path, node: u16| common::node_command(file, node);
    Laboratory::start(setting, &folder, Box::new(launch)).expect("a cluster")
}

/// Runs `test` in this very program with a network and mounts of its own; `false` if this is already that
/// program.
fn goes_elsewhere(test: &str) -> bool {
    if is_private() {
        return false;
    }
    if !has_etcd() {
        return true;
    }
    match private() {
        Ok(mut command) => {
            let output = command.args(["--exact", test, "--nocapture"]).output().expect("this program");
            let said = [output.stdout, output.stderr].concat();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
        }
        Err(reason) => println!("skipped: {reason}"),
    }
    true
}

fn has_etcd() -> bool {
    let is_there = Etcd::is_there();
    if !is_there {
        println!("skipped: there is no etcd here; apt-get install etcd-server");
    }
    is_there
}

#[test]
fn a_node_that_is_cut_off_is_removed_and_comes_back_and_nothing_is_lost() {
    if goes_elsewhere("a_node_that_is_cut_off_is_removed_and_comes_back_and_nothing_is_lost") {
        return;
    }
    let mut laboratory = laboratory("partition", Level::Memory);
    let before = laboratory.status(0).expect("it serves");
    let episodes = Fault::Partition.play(&mut laboratory).expect("nothing is lost");
    let after = laboratory.status(0).expect("it serves");
    // The node was removed, and let in again.
    assert!(after.configuration >= before.configuration + 2, "{before:?} {after:?}");
    assert!(episodes[0].times.unlocked_ms.is_some() && episodes[0].back_ms.is_some(), "{episodes:?}");
    assert!(laboratory.counted().acknowledged() >= 60);
}

#[test]
fn a_node_whose_file_system_is_full_is_removed_and_comes_back_and_nothing_is_lost() {
    if goes_elsewhere("a_node_whose_file_system_is_full_is_removed_and_comes_back_and_nothing_is_lost") {
        return;
    }
    let mut laboratory = laboratory("full", Level::Disk);
    let before = laboratory.status(0).expect("it serves");
    let episodes = Fault::FullDisk.play(&mut laboratory).expect("nothing is lost");
    let after = laboratory.status(0).expect("it serves");
    assert!(after.configuration >= before.configuration + 2, "{before:?} {after:?}");
    assert!(episodes[0].times.unlocked_ms.is_some() && episodes[0].back_ms.is_some(), "{episodes:?}");
}

#[test]
fn all_nodes_are_restarted_one_after_the_other_and_nothing_is_lost() {
    if !has_etcd() {
        return;
    }
    for level in [Level::Memory, Level::Disk] {
        let mut laboratory = laboratory("rolling", level);
        let before = laboratory.status(0).expect("it serves");
        let episodes = Fault::RollingRestart.play(&mut laboratory).expect("nothing is lost");
        assert_eq!(episodes.len(), 3);
        for episode in &episodes {
            assert!(episode.times.configured_ms.is_some(), "{episode:?}");
            assert!(episode.times.unlocked_ms.is_some() && episode.back_ms.is_some(), "{episode:?}");
        }
        let after = laboratory.status(0).expect("it serves again");
        assert!(after.process != before.process && after.configuration >= before.configuration + 3);
    }
}

#[test]
fn what_was_acknowledged_is_there_after_all_nodes_and_etcd_were_away() {
    if !has_etcd() {
        return;
    }
    let mut laboratory = laboratory("power", Level::Disk);
    for fault in [Fault::EtcdAway, Fault::PowerLoss, Fault::EtcdRestart] {
        let episodes = fault.play(&mut laboratory).expect("nothing is lost");
        assert!(episodes[0].times.unlocked_ms.is_some(), "{episodes:?}");
    }
}
