//! The numbers on which the promises rest are the register's, whatever the files of the nodes say.

mod common;

use common::{Cluster, Folder, commit, until};
use highwire_store::{Client, ClusterConfig, Engine, configure};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The folder's file with one number changed, beside it.
fn changed(folder: &Folder, name: &str, value: &str) -> PathBuf {
    let text = std::fs::read_to_string(folder.file()).expect("a cluster file");
    let others: String =
        text.lines().filter(|line| !line.starts_with(name)).map(|line| format!("{line}\n")).collect();
    let path = folder.path().join(format!("changed-{name}-{value}.toml"));
    std::fs::write(&path, format!("{name} = {value}\n{others}")).expect("written");
    path
}

fn load(path: &Path) -> ClusterConfig {
    ClusterConfig::load(path).expect("a cluster file")
}

/// Why a node with this file cannot be one of the cluster.
#[track_caller]
fn refusal(file: &Path, node: u16) -> String {
    match Engine::start(&load(file), node) {
        Err(error) => error.to_string(),
        Ok(engine) => engine.join().expect_err("it is refused").to_string(),
    }
}

const NUMBERS: [(&str, &str, &str); 5] = [
    ("lease_ms", "2000", "900"),
    ("rows_max", "5000", "6000"),
    ("f", "1", "2"),
    ("workers", "64", "32"),
    ("regions", "16", "8"),
];

#[test]
fn a_cluster_does_not_begin_while_a_number_differs_and_says_which() {
    for (name, there, here) in NUMBERS {
        let folder = Folder::new(3, "lease_ms = 2000\nrows_max = 5000");
        let other = changed(&folder, name, here);
        let engines = [
            Engine::start(&folder.config(), 0).expect("a node"),
            Engine::start(&load(&other), 1).expect("a node"),
            Engine::start(&folder.config(), 2).expect("a node"),
        ];
        let (value, own) = (format!("is {there} here"), format!("is {here} here"));
        let standing = |node: usize| {
            let mut client = Client::new([folder.config().doors()[node].clone()]);
            client.set_patience(Duration::from_secs(1));
            client.status().map(|status| status.standing).unwrap_or_default()
        };
        until(name, || {
            let all = [standing(0), standing(1)];
            let says = |text: &String| {
                text.contains(&format!("`{name}`")) && (text.contains(&value) || text.contains(&own))
            };
            all.iter().any(says).then_some(())
        });
        let mut register = highwire_store::FileRegister::open(&folder.config().register).expect("a register");
        assert!(register.holds().expect("readable").is_none(), "`{name}` differs, and the cluster began");
        for engine in engines {
            engine.store().stop();
            let _ = engine.join();
        }
    }
}

#[test]
fn a_node_with_other_numbers_is_refused_by_the_register_and_told_both() {
    let cluster = Cluster::start(3, "lease_ms = 2000\nrows_max = 5000");
    for (name, there, here) in NUMBERS {
        let (file, _) = cluster.folder.grown(7, false, "");
        let grown = std::fs::read_to_string(&file).expect("a file");
        let others: String =
            grown.lines().filter(|line| !line.starts_with(name)).map(|line| format!("{line}\n")).collect();
        std::fs::write(&file, format!("{name} = {here}\n{others}")).expect("written");
        let error = refusal(&file, 7);
        let expected = format!("`{name}` is {here} here and {there} in the");
        assert!(
            error.contains(&expected) || name == "regions" && error.contains("`regions` is 8 here"),
            "{error}"
        );
    }
    common::wait_for_members(&cluster.folder.config().doors(), &[0, 1, 2]);
}

#[test]
fn a_running_cluster_takes_other_numbers_together_and_then_wants_them_of_all() {
    let cluster = Cluster::start(3, "lease_ms = 2000\nrows_max = 5000");
    let mut client = cluster.client();
    common::put(&mut client, "t", "k", "v");
    let before = client.status().expect("it serves").configuration;
    assert_eq!(configure(&cluster.folder.config()), Ok(false), "nothing has changed");
    let (third, _) = cluster.folder.grown(3, false, "");
    let file = changed(&cluster.folder, "lease_ms", "1500");
    let fixed = changed(&cluster.folder, "workers", "32");
    let error = configure(&load(&fixed)).expect_err("it is fixed");
    assert!(
        error.contains("`workers` is 32 here and 64 in the cluster's register: it cannot be changed"),
        "{error}"
    );

    assert_eq!(configure(&load(&file)), Ok(true));
    assert_eq!(configure(&load(&file)), Ok(false));
    until("the next configuration", || {
        let status = client.status().ok()?;
        (status.configuration > before && status.is_open).then_some(())
    });
    assert_eq!(commit("a value", || client.get("t", "k")), Some(b"v".to_vec()));
    common::put(&mut client, "t", "k", "w");

    let error = refusal(&third, 3);
    assert!(error.contains("`lease_ms` is 2000 here and 1500 in the cluster's register"), "{error}");
    let text = std::fs::read_to_string(&third).expect("a file").replace("lease_ms = 2000", "lease_ms = 1500");
    std::fs::write(&third, text).expect("written");
    let newcomer = Engine::start(&load(&third), 3).expect("it agrees");
    let doors = load(&third).doors();
    common::wait_for_members(&doors, &[0, 1, 2, 3]);
    newcomer.store().stop();
    newcomer.join().expect("no panic");
}

/// Only who has read the register can send to a node's queue pair.
#[test]
fn each_cluster_has_a_secret_of_its_own_that_all_its_nodes_find() {
    let secret = |folder: &Folder| {
        let mut register = highwire_store::FileRegister::open(&folder.config().register).expect("a register");
        register.secret().expect("drawn")
    };
    let (one, other) = (Folder::new(1, "f = 0"), Folder::new(1, "f = 0"));
    assert_ne!(secret(&one), secret(&other));
    assert_eq!(secret(&one), secret(&one));
    let mode = std::fs::metadata(one.config().register.join("secret")).expect("a file");
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o077, 0, "others can read it");
}
