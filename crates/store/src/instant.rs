//! What all members hold at one instant, read page by page while transactions go on: for backups and scans.
//!
//! Whoever reads leads: it freezes all members for a moment, lets each mark it, and thaws them (`freeze` says why that is one instant). It
//! freezes the first member before the others: of several that begin at once, one is first there, and the others wait for it, and for
//! nothing else.

use crate::access::Access;
use crate::client::Conversation;
use crate::error::StoreError;
use crate::message::{Answer, BackupAnswer, BackupOf, BackupStep, Request};
use crate::rows::BackupEntry;
use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _};
use std::time::{Duration, Instant as Moment};

/// The store at one instant.
pub(crate) struct Instant {
    parts: Vec<Part>,
    token: u64,
    of: BackupOf,
    /// The configuration in which it was.
    pub(crate) configuration: u32,
    /// How long commits were held back.
    pub(crate) held: Duration,
    /// Rows at all members.
    pub(crate) rows: u64,
}

/// A member's part.
struct Part {
    node: u16,
    door: String,
    conversation: Conversation,
}

impl Part {
    fn lost(&self, error: impl fmt::Display) -> StoreError {
        StoreError::Unavailable(format!("node {} at {}: {error}", self.node, self.door))
    }

    fn tell(&mut self, token: u64, step: BackupStep, of: BackupOf) -> Result<(), StoreError> {
        self.conversation.tell(&Request::Backup { token, step, of }).map_err(|error| self.lost(error))
    }

    fn hear(&mut self) -> Result<BackupAnswer, StoreError> {
        match self.conversation.hear() {
            Ok(Answer::Backup(answer)) => Ok(answer),
            Ok(Answer::Failed(StoreError::Unavailable(why))) => Err(self.lost(why)),
            Ok(Answer::Failed(error)) => Err(error),
            Ok(Answer::Refused { why }) => Err(self.lost(why)),
            Ok(_) => Err(self.lost("it answered something else than was asked")),
            Err(error) => Err(self.lost(error)),
        }
    }
}

/// One step at several members at once.
fn all(
    parts: &mut [Part],
    token: u64,
    step: BackupStep,
    of: BackupOf,
) -> Result<Vec<BackupAnswer>, StoreError> {
    parts.iter_mut().try_for_each(|part| part.tell(token, step, of))?;
    parts.iter_mut().map(Part::hear).collect()
}

fn changed() -> StoreError {
    StoreError::Unavailable("the members change".into())
}

impl Instant {
    /// Marks one instant at these members, which must be all of them.
    pub(crate) fn mark(
        members: &[u16],
        doors: &[(u16, String)],
        access: &Access,
        token: u64,
        of: BackupOf,
    ) -> Result<Instant, StoreError> {
        let mut parts = Vec::new();
        for &node in members {
            let door = doors.iter().find(|door| door.0 == node).map(|door| door.1.clone());
            let door = door
                .ok_or_else(|| StoreError::Unavailable(format!("no node knows the door of node {node}")))?;
            let conversation = Conversation::enter(&door, access)
                .map_err(|error| StoreError::Unavailable(format!("node {node} at {door}: {error}")))?;
            parts.push(Part { node, door, conversation });
        }
        parts.sort_by_key(|part| part.node);
        let mut expected = None;
        let (first, others) = parts.split_at_mut(1.min(members.len()));
        let mut frozen = all(first, token, BackupStep::Freeze, of)?;
        let began = Moment::now();
        frozen.extend(all(others, token, BackupStep::Freeze, of)?);
        for answer in frozen {
            let BackupAnswer::Frozen { configuration, members: known, regions } = answer else {
                return Err(changed());
            };
            if known != members
                || *expected.get_or_insert((configuration, regions)) != (configuration, regions)
            {
                return Err(changed());
            }
        }
        let Some((configuration, regions)) = expected else { return Err(changed()) };
        let (mut regions_marked, mut rows) = (0, 0);
        for answer in all(&mut parts, token, BackupStep::Mark, of)? {
            let BackupAnswer::Marked { regions, rows: more } = answer else { return Err(changed()) };
            regions_marked += u32::from(regions);
            rows += more;
        }
        for answer in all(&mut parts, token, BackupStep::Thaw, of)? {
            if answer != (BackupAnswer::Thawed { was_frozen: true }) {
                return Err(StoreError::Unavailable(
                    "the nodes were too slow to stand still together".into(),
                ));
            }
        }
        let held = began.elapsed();
        if regions_marked != u32::from(regions) {
            return Err(changed());
        }
        Ok(Instant { parts, token, of, configuration, held, rows })
    }

    /// Reads it, page by page.
    pub(crate) fn read<E: From<StoreError>>(
        mut self,
        mut page: impl FnMut(Vec<BackupEntry>) -> Result<(), E>,
    ) -> Result<(), E> {
        for part in &mut self.parts {
            loop {
                part.tell(self.token, BackupStep::Page, self.of)?;
                let BackupAnswer::Page { cells, is_last } = part.hear()? else {
                    return Err(changed().into());
                };
                page(cells)?;
                if is_last {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// A name that no two readers share: the seeds of std's hash maps are the system's random numbers. 0 is none.
pub(crate) fn token() -> u64 {
    RandomState::new().build_hasher().finish() | 1
}
