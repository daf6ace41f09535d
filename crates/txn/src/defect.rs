//! Mistakes that tests plant, one at a time, to see that the simulator and the checker find them. Outside of tests they do not exist.

/// A planted mistake. The first seven are those of FaSST's published code, as far as they concern transactions.
#[cfg(all(test, not(loom)))]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    LogHasNoValues,
    BackupsKeepTheirVersion,
    AbsentReadHasNoVersion,
    AbortBumpsTheVersion,
    LocksHaveNoOwner,
    LossIsOnlyPrinted,
    LogForgetsDeletions,
    NoValidation,
    AbsentKeysAreNotValidated,
    ValidationIgnoresLocks,
    RangesAreNotValidated,
    BackupsAreNotAwaited,
    LogIsNotAwaited,
    LogOnlyAtHome,
    NoFence,
    LeaseIgnored,
    LeasesAreNotWaitedFor,
    LogSlotReusedEarly,
    TornRecordAccepted,
    StaleReplicaPromoted,
    RecoveryForgetsRecords,
    LaterRecordsAreNotAskedFor,
    LaterRecordsAreNotSent,
    RecoveryIsNotLogged,
    RecoveryKeepsLocks,
    RecoverySkipsBackups,
    InDoubtIsAborted,
    AbortKeepsLocks,
    MoreThanOneExecution,
    NewReplicaIgnoresWrites,
    PagesOverwriteNewerRows,
    SyncedTooEarly,
    RestartIsNotNoticed,
    RestartedNodesAreOpened,
    MessagesLeaveBeforeDurable,
    RereadIsNotCompared,
    AnswersBeforeDurable,
    SyncedBeforeDurable,
    TornEntryAccepted,
    ReplayInWrongOrder,
    CheckpointMissesWrites,
    LifeIsNotJournalled,
    WritesAreNotJournalled,
    FullDiskIsIgnored,
    JoinerGoesBack,
    ReclaimKeepsTheFloor,
    ReclaimsBesideOldLocks,
    ReclaimsWhileAReplicaIsFilled,
    ReclaimIsNotJournalled,
    RecoveryIgnoresFloors,
    FloorsAreNotLevelled,
    RangesIgnoreTheFloor,
    TombstonesGoBeforeRecords,
}

/// Whether `$defect` is planted in this node.
macro_rules! planted {
    ($self:ident, $defect:ident) => {{
        #[cfg(all(test, not(loom)))]
        {
            $self.defect == Some($crate::defect::Defect::$defect)
        }
        #[cfg(not(all(test, not(loom))))]
        {
            false
        }
    }};
}
pub(crate) use planted;
