//! The simulator and the checker, tested: each mistake that is planted must be found within a number of seeds.

use crate::defect::Defect;

use super::Plan;

/// Runs seeds until the mistake is found, and says by which check. For mistakes that concern disks, the runs
/// have disks.
fn hunt(defect: Defect, seeds: u64) {
    for seed in 0..seeds {
        let plan = Plan::from_seed(seed);
        let has_disks = plan.has_disks || ON_DISKS.contains(&defect);
        // Clients must see what comes of an answer that is given too early.
        let checks_rules = defect != Defect::AnswersBeforeDurable;
        let plan = Plan { defect: Some(defect), has_disks, checks_rules, ..plan };
        if let Err(failure) = plan.run() {
            let first_line = failure.what.lines().next().unwrap_or_default();
            println!("{defect:?}: seed {seed}: {first_line}");
            return;
        }
    }
    panic!("{defect:?} was not found in {seeds} seeds");
}

const ON_DISKS: [Defect; 9] = [
    Defect::ReclaimIsNotJournalled,
    Defect::AnswersBeforeDurable,
    Defect::SyncedBeforeDurable,
    Defect::TornEntryAccepted,
    Defect::ReplayInWrongOrder,
    Defect::CheckpointMissesWrites,
    Defect::LifeIsNotJournalled,
    Defect::WritesAreNotJournalled,
    Defect::FullDiskIsIgnored,
];

/// One test for each mistake, with the number of seeds within which it must be found.
macro_rules! found {
    ($($test:ident: $defect:ident within $seeds:literal seeds;)*) => {$(
        #[test]
        fn $test() {
            hunt(Defect::$defect, $seeds);
        }
    )*};
}

found! {
    log_has_no_values: LogHasNoValues within 100 seeds;
    log_forgets_deletions: LogForgetsDeletions within 100 seeds;
    backups_keep_their_version: BackupsKeepTheirVersion within 100 seeds;
    absent_read_has_no_version: AbsentReadHasNoVersion within 100 seeds;
    abort_bumps_the_version: AbortBumpsTheVersion within 100 seeds;
    locks_have_no_owner: LocksHaveNoOwner within 100 seeds;
    loss_is_only_printed: LossIsOnlyPrinted within 400 seeds;
    no_validation: NoValidation within 100 seeds;
    absent_keys_are_not_validated: AbsentKeysAreNotValidated within 100 seeds;
    validation_ignores_locks: ValidationIgnoresLocks within 100 seeds;
    ranges_are_not_validated: RangesAreNotValidated within 100 seeds;
    reread_is_not_compared: RereadIsNotCompared within 100 seeds;
    answers_before_durable: AnswersBeforeDurable within 100 seeds;
    synced_before_durable: SyncedBeforeDurable within 400 seeds;
    torn_entry_accepted: TornEntryAccepted within 100 seeds;
    replay_in_wrong_order: ReplayInWrongOrder within 100 seeds;
    checkpoint_misses_writes: CheckpointMissesWrites within 100 seeds;
    life_is_not_journalled: LifeIsNotJournalled within 100 seeds;
    writes_are_not_journalled: WritesAreNotJournalled within 100 seeds;
    full_disk_is_ignored: FullDiskIsIgnored within 100 seeds;
    backups_are_not_awaited: BackupsAreNotAwaited within 100 seeds;
    log_is_not_awaited: LogIsNotAwaited within 400 seeds;
    log_only_at_home: LogOnlyAtHome within 100 seeds;
    log_slot_reused_early: LogSlotReusedEarly within 100 seeds;
    abort_keeps_locks: AbortKeepsLocks within 100 seeds;
    more_than_one_execution: MoreThanOneExecution within 100 seeds;
    no_fence: NoFence within 1000 seeds;
    lease_ignored: LeaseIgnored within 100 seeds;
    leases_are_not_waited_for: LeasesAreNotWaitedFor within 400 seeds;
    torn_record_accepted: TornRecordAccepted within 100 seeds;
    stale_replica_promoted: StaleReplicaPromoted within 100 seeds;
    recovery_forgets_records: RecoveryForgetsRecords within 100 seeds;
    later_records_are_not_asked_for: LaterRecordsAreNotAskedFor within 400 seeds;
    later_records_are_not_sent: LaterRecordsAreNotSent within 400 seeds;
    recovery_keeps_locks: RecoveryKeepsLocks within 100 seeds;
    recovery_skips_backups: RecoverySkipsBackups within 100 seeds;
    in_doubt_is_aborted: InDoubtIsAborted within 100 seeds;
    new_replica_ignores_writes: NewReplicaIgnoresWrites within 100 seeds;
    pages_overwrite_newer_rows: PagesOverwriteNewerRows within 100 seeds;
    synced_too_early: SyncedTooEarly within 100 seeds;
    restart_is_not_noticed: RestartIsNotNoticed within 100 seeds;
    restarted_nodes_are_opened: RestartedNodesAreOpened within 400 seeds;
}

/// Mistakes of the reclaiming of deleted rows. Where hundreds of seeds do not reach one, the seed is named that does.
mod reclaiming {
    use super::*;

    found! {
        reclaim_keeps_the_floor: ReclaimKeepsTheFloor within 100 seeds;
        reclaim_is_not_journalled: ReclaimIsNotJournalled within 100 seeds;
        recovery_ignores_floors: RecoveryIgnoresFloors within 400 seeds;
        floors_are_not_levelled: FloorsAreNotLevelled within 400 seeds;
    }

    fn is_found_with(defect: Defect, seed: u64) {
        let plan = Plan { defect: Some(defect), ..Plan::from_seed(seed) };
        println!("{}", plan.run().expect_err("the mistake is found"));
    }

    /// A page with an old value comes after its key was deleted, and after that was forgotten: many messages are late here.
    #[test]
    fn reclaims_while_a_replica_is_filled() {
        let defect = Some(Defect::ReclaimsWhileAReplicaIsFilled);
        let plan = Plan { delay: 0.3, fault_every_ns: 8_000_000, ..Plan::from_seed(855) };
        println!("{}", Plan { defect, ..plan.clone() }.run().expect_err("the mistake is found"));
        plan.run().expect("without it nothing is wrong");
    }

    /// A key is inserted at a version below the floor, and the record of that is taken for old.
    #[test]
    fn reclaims_beside_old_locks() {
        is_found_with(Defect::ReclaimsBesideOldLocks, 335);
    }

    /// The same of a key that is inserted again, while its tombstone is there.
    #[test]
    fn tombstones_go_before_records() {
        is_found_with(Defect::TombstonesGoBeforeRecords, 307);
    }
}

/// Only one in thousands of seeds reaches this: the one node that has a record is removed after some members have applied it and before all
/// have.
#[test]
fn recovery_is_not_logged() {
    let plan = Plan { defect: Some(Defect::RecoveryIsNotLogged), ..Plan::from_seed(5562) };
    let failure = plan.run().expect_err("the mistake is found");
    assert!(failure.what.starts_with("by versions: not in the order of real time"), "{failure}");
}

/// Only one in thousands of seeds reaches this: a node names a life to the others that a crash takes back.
#[test]
fn messages_leave_before_durable() {
    let defect = Some(Defect::MessagesLeaveBeforeDurable);
    let plan = Plan { defect, has_disks: true, ..Plan::from_seed(1467) };
    println!("{}", plan.run().expect_err("the mistake is found"));
    Plan { defect: None, ..plan }.run().expect("without it nothing is wrong");
}

/// An open node is in a configuration that its disk has: the rule finds it at once if adoptions are not awaited.
#[test]
fn open_before_durable() {
    let plan = Plan { defect: Some(Defect::AnswersBeforeDurable), has_disks: true, ..Plan::from_seed(0) };
    let failure = plan.run().expect_err("the mistake is found");
    assert!(failure.what.contains("its disk does not have its life or configuration"), "{failure}");
}

/// Only one in thousands of seeds reaches this: a node is removed in the life in which it asks to be let in,
/// is let in again, and only then turns to the configuration before its removal.
#[test]
fn joiner_goes_back() {
    let plan = Plan { defect: Some(Defect::JoinerGoesBack), ..Plan::from_seed(4205) };
    let failure = plan.run().expect_err("the mistake is found");
    assert!(failure.what.starts_with("no progress"), "{failure}");
}
