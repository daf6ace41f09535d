//! The roster of threads that poll: who sees whom, and files and processes that do not behave.

use std::os::unix::fs::{PermissionsExt, symlink};

use highwire_link::shm::{BEAT_LASTS_MS, Poller, Registry, Roster};

use crate::support::{House, Second};

const NOW: u32 = 5_000_000;

fn poller(thread: u32, core: u32) -> Poller {
    Poller { thread, core }
}

fn join(registry: &Registry) -> Roster {
    let roster = Roster::join(registry).unwrap();
    assert!(roster.is_seen());
    roster
}

#[test]
fn a_thread_sees_those_of_its_core_that_have_beaten_a_moment_ago_and_not_itself() {
    let house = House::new("beats");
    let (a, b) = (join(&house.registry), join(&house.registry));
    let (me, other) = (poller(11, 1), poller(12, 1));
    a.beat(me, NOW);
    assert_eq!(a.others_here(me, NOW), 0, "only itself");
    assert_eq!((b.others_here(other, NOW), b.everywhere(NOW)), (1, 1));
    b.beat(other, NOW);
    assert_eq!((a.others_here(me, NOW), b.everywhere(NOW)), (1, 2));
    // Another core; and one with which core 1 shares its row.
    for core in [0, 2, 65] {
        assert_eq!(a.others_here(poller(11, core), NOW), 0, "core {core}");
    }
    // Another thread of the same device counts as well.
    assert_eq!(a.others_here(poller(13, 1), NOW), 2);
    b.beat(other, NOW + 1);
    assert_eq!(a.others_here(me, NOW + 1 + BEAT_LASTS_MS), 1);
    assert_eq!(a.others_here(me, NOW + 2 + BEAT_LASTS_MS), 0, "it has stopped polling");
    // It says so at once; another thread of its device cannot say so in its place.
    b.beat(other, NOW);
    b.leave(poller(14, 1));
    assert_eq!(a.others_here(me, NOW), 1);
    b.leave(other);
    assert_eq!(a.others_here(me, NOW), 0);
    b.beat(other, NOW + 1);
    // It moves: it is one thread still.
    b.beat(poller(12, 2), NOW + 1);
    assert_eq!(a.everywhere(NOW + 1), 2);
    drop(b);
    assert_eq!((a.others_here(me, NOW + 1), a.everywhere(NOW + 1)), (0, 1), "its device is closed");
}

/// The second process of the next test.
pub(crate) fn poll_as_second(registry: &Registry) {
    let roster = join(registry);
    roster.beat(poller(99, 1), NOW);
    std::mem::forget(roster);
    println!("ready");
}

#[test]
fn a_killed_process_leaves_a_beat_that_grows_old_and_a_column_that_is_free() {
    let house = House::new("killed-poller");
    let mut second = Second::spawn("poll", house.registry.root());
    second.wait_for("ready");
    let mine = join(&house.registry);
    let me = poller(1, 1);
    assert_eq!(mine.others_here(me, NOW), 1);
    second.kill();
    assert_eq!(mine.others_here(me, NOW + BEAT_LASTS_MS + 1), 0);
    // All columns but mine are free, so one of these has that of the killed process, and has cleared it.
    let all: Vec<Roster> = (1..Roster::COLUMNS).map(|_| join(&house.registry)).collect();
    assert_eq!(mine.others_here(me, NOW), 0);
    drop(all);
}

#[test]
fn in_a_full_roster_a_thread_sees_the_others_and_a_column_that_is_given_back_is_used_again() {
    let house = House::new("full");
    let mut all: Vec<Roster> = (0..Roster::COLUMNS).map(|_| join(&house.registry)).collect();
    let late = Roster::join(&house.registry).unwrap();
    assert!(!late.is_seen());
    late.beat(poller(9, 3), NOW);
    all[127].beat(poller(8, 3), NOW);
    assert_eq!((late.others_here(poller(9, 3), NOW), all[0].others_here(poller(7, 3), NOW)), (1, 1));
    drop(all.pop());
    assert_eq!(late.everywhere(NOW), 0);
    join(&house.registry);
}

#[test]
fn a_file_that_is_no_roster_is_replaced() {
    let house = House::new("foreign");
    let path = Roster::path(&house.registry);
    let whole = {
        let roster = join(&house.registry);
        roster.beat(poller(1, 1), NOW);
        std::fs::read(&path).unwrap()
    };
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut other_version = whole.clone();
    other_version[8] += 1;
    let mut other_magic = whole.clone();
    other_magic[0] ^= 1;
    let noise: Vec<u8> = (0..whole.len()).map(|at| (at * 7 + at / 251) as u8).collect();
    for (what, bytes) in [
        ("empty", &[][..]),
        ("short", &whole[..64]),
        ("cut off", &whole[..whole.len() / 2]),
        ("another version", &other_version),
        ("another file", &other_magic),
        ("noise", &noise),
    ] {
        std::fs::write(&path, bytes).unwrap();
        let (a, b) = (join(&house.registry), join(&house.registry));
        a.beat(poller(1, 1), NOW);
        assert_eq!(b.others_here(poller(2, 1), NOW), 1, "{what}");
        assert_eq!(std::fs::read(&path).unwrap()[..12], whole[..12], "{what}");
    }
    std::fs::remove_file(&path).unwrap();
    let elsewhere = house.registry.root().join("elsewhere");
    std::fs::write(&elsewhere, &whole).unwrap();
    symlink(&elsewhere, &path).unwrap();
    join(&house.registry).beat(poller(1, 1), NOW);
    assert_eq!(std::fs::read(&elsewhere).unwrap(), whole, "a link is not followed");
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    Roster::join(&house.registry).expect_err("a folder of another program stays");
}

#[test]
fn what_other_processes_write_or_cut_off_harms_no_process_that_has_joined() {
    let house = House::new("spoilt");
    let path = Roster::path(&house.registry);
    let (a, b) = (join(&house.registry), join(&house.registry));
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    // Beats of no time, columns without number.
    let noise: Vec<u8> = (0..file.metadata().unwrap().len()).map(|at| 0x80 | at as u8).collect();
    std::os::unix::fs::FileExt::write_all_at(&file, &noise, 0).unwrap();
    let me = poller(1, 1);
    assert_eq!(a.others_here(me, NOW), 0);
    b.beat(poller(2, 1), NOW);
    assert_eq!((a.others_here(me, NOW), a.everywhere(NOW)), (1, 1));
    file.set_len(0).unwrap();
    b.beat(poller(2, 1), NOW);
    a.beat(me, NOW);
    assert!(a.others_here(me, NOW) <= 1 && a.everywhere(NOW) <= 2);
    drop((a, b));
    let (a, b) = (join(&house.registry), join(&house.registry));
    b.beat(poller(2, 1), NOW);
    assert_eq!(a.others_here(me, NOW), 1, "newcomers have a whole one");
}
