//! Every object that C holds a pointer to.
//!
//! Control calls look their objects up here, so that a null, stale or foreign pointer is an errno and not a crash. The data
//! path does not: it reaches objects only through the functions that their own context has handed out.
//!
//! A child of `fork` has copies of its parent's objects, but not the device behind them. So the registry does
//! not know them in the child, and never drops them, because the memory that they share with the engine is
//! the parent's.

use crate::refusal::{because, refused};
use highwire_host::Process;
use libc::c_int;
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// An object that C knows by a pointer.
pub(crate) trait Object: Any + Send + Sync {
    /// The structure that C sees.
    type C;
    /// Where C finds it; the same for as long as the object lives.
    fn as_c(&self) -> *mut Self::C;
    /// How many of them a process may have, as `ibv_query_device` reports it.
    const LIMIT: usize = usize::MAX;
    /// The errno for an object whose handle has been changed: that of a kernel which does not find the
    /// handle.
    const GARBLED: c_int = libc::ENOENT;
    /// The number by which a kernel would know it, as C's structure has it now.
    fn handle(&self) -> u32 {
        0
    }
}

/// An object, the process that made it, and its handle.
struct Entry {
    owner: Process,
    handle: u32,
    object: Arc<dyn Any + Send + Sync>,
}

#[derive(Default)]
struct Objects {
    entries: HashMap<usize, Entry>,
    /// How many of each kind the process has that `counted` names.
    counts: HashMap<TypeId, usize>,
    counted: Option<Process>,
}

impl Objects {
    /// The count of a kind; a child of `fork` begins at zero.
    fn count(&mut self, kind: TypeId) -> &mut usize {
        let process = Some(Process::this());
        if self.counted != process {
            self.counted = process;
            self.counts.clear();
        }
        self.counts.entry(kind).or_default()
    }
}

static OBJECTS: LazyLock<RwLock<Objects>> = LazyLock::new(RwLock::default);

fn read() -> RwLockReadGuard<'static, Objects> {
    OBJECTS.read().unwrap_or_else(PoisonError::into_inner)
}

fn write() -> RwLockWriteGuard<'static, Objects> {
    OBJECTS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Hands an object to C.
///
/// # Errors
/// ENOMEM if the process has as many of them as the device announces.
pub(crate) fn publish<T: Object>(object: Arc<T>) -> Result<*mut T::C, c_int> {
    let pointer = object.as_c();
    let entry = Entry { owner: Process::this(), handle: object.handle(), object };
    let mut objects = write();
    let count = objects.count(TypeId::of::<T>());
    if *count >= T::LIMIT {
        // The object is dropped with its entry, and dropping it may look other objects up.
        drop(objects);
        because(|| format!("the process has {} objects of this kind, which is the limit", T::LIMIT));
        return Err(libc::ENOMEM);
    }
    *count += 1;
    let before = objects.entries.insert(pointer as usize, entry);
    // Only a parent's object can have had the address, and a child must not drop it.
    std::mem::forget(before);
    Ok(pointer)
}

/// The object behind a pointer.
///
/// # Errors
/// EINVAL if there is no such object; [`Object`]'s errno if its handle was garbled.
pub(crate) fn find<T: Object>(pointer: *const T::C) -> Result<Arc<T>, c_int> {
    let (owner, object) = find_inherited(pointer)?;
    let inherited =
        || "the object was made before fork() in the parent process, which alone may use it".to_string();
    if owner.is_this() { Ok(object) } else { Err(refused(libc::EINVAL, inherited)) }
}

/// The same for an object that this process or its parent has made. Also returns which of them.
pub(crate) fn find_inherited<T: Object>(pointer: *const T::C) -> Result<(Process, Arc<T>), c_int> {
    let objects = read();
    let kind = std::any::type_name::<T::C>().rsplit("::").next().unwrap_or_default();
    let entry = objects.entries.get(&(pointer as usize)).ok_or_else(|| {
        refused(libc::EINVAL, || match pointer.is_null() {
            true => format!("the pointer to {kind} is null: the call that should have made it failed"),
            false => format!("the pointer is no {kind} of this library: it was destroyed, or never made"),
        })
    })?;
    let Entry { owner, handle, object } = entry;
    let other_kind =
        |_| refused(libc::EINVAL, || format!("the pointer is an object of another kind, no {kind}"));
    let object: Arc<T> = Arc::clone(object).downcast().map_err(other_kind)?;
    if object.handle() == *handle {
        return Ok((*owner, object));
    }
    Err(refused(T::GARBLED, || format!("the program has changed the handle in its {kind}")))
}

/// Whether an address is that of any object.
pub(crate) fn knows(address: usize) -> bool {
    read().entries.contains_key(&address)
}

/// Calls a function with the object behind a pointer, which cannot be withdrawn meanwhile.
pub(crate) fn with<T: Object, R>(pointer: *const T::C, run: impl FnOnce(&T) -> R) -> Option<R> {
    let objects = read();
    let Entry { owner, object, .. } = objects.entries.get(&(pointer as usize))?;
    object.downcast_ref().filter(|_| owner.is_this()).map(run)
}

/// Takes a pointer back: from now on it is unknown.
pub(crate) fn withdraw<T: Object>(pointer: *const T::C) {
    let is_done = withdraw_if::<T>(pointer, || true);
    debug_assert!(is_done, "nothing was asked");
}

/// Takes a pointer back if `may_go` returns true; no other thread looks it up meanwhile. Returns whether it
/// is unknown now.
pub(crate) fn withdraw_if<T: Object>(pointer: *const T::C, may_go: impl FnOnce() -> bool) -> bool {
    let mut objects = write();
    let is_ours = objects.entries.get(&(pointer as usize)).is_some_and(|entry| entry.owner.is_this());
    if is_ours && !may_go() {
        return false;
    }
    let object = if is_ours { objects.entries.remove(&(pointer as usize)) } else { None };
    if let Some(entry) = &object {
        let kind = (*entry.object).type_id();
        let count = objects.count(kind);
        *count = count.saturating_sub(1);
    }
    // This may drop the object, and dropping it may look other objects up.
    drop(objects);
    drop(object);
    true
}

/// The first object of a kind for which `chosen` returns true.
pub(crate) fn first<T: Object>(chosen: impl Fn(&T) -> bool) -> Option<Arc<T>> {
    let objects = read();
    let is_it = |entry: &&Entry| entry.owner.is_this() && entry.object.downcast_ref().is_some_and(&chosen);
    let found = objects.entries.values().find(is_it)?;
    Arc::clone(&found.object).downcast().ok()
}

/// All objects of a kind for which `chosen` returns true.
pub(crate) fn every<T: Object>(chosen: impl Fn(&T) -> bool) -> Vec<Arc<T>> {
    let objects = read();
    let is_it = |entry: &&Entry| entry.owner.is_this() && entry.object.downcast_ref().is_some_and(&chosen);
    let found = objects.entries.values().filter(is_it);
    found.filter_map(|entry| Arc::clone(&entry.object).downcast().ok()).collect()
}

/// How many others depend on an object; while any do, it cannot be destroyed.
#[derive(Debug, Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    /// # Errors
    /// EBUSY while there are any.
    pub(crate) fn none(&self) -> Result<(), c_int> {
        match self.0.load(Ordering::SeqCst) {
            0 => Ok(()),
            users => Err(refused(libc::EBUSY, || {
                format!("{users} other objects still use it: destroy those first")
            })),
        }
    }
}

/// An object that others depend on.
pub(crate) trait Used: Object {
    /// The count of the object's users.
    fn users(&self) -> &Users;
}

/// An object, and the fact that it is in use.
pub(crate) struct Use<T: Used>(Arc<T>);

impl<T: Used> Use<T> {
    pub(crate) fn of(object: &Arc<T>) -> Use<T> {
        object.users().0.fetch_add(1, Ordering::SeqCst);
        Use(Arc::clone(object))
    }

    pub(crate) fn find(pointer: *const T::C) -> Result<Use<T>, c_int> {
        Ok(Use::of(&find(pointer)?))
    }
}

impl<T: Used> Deref for Use<T> {
    type Target = Arc<T>;
    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: Used> Drop for Use<T> {
    fn drop(&mut self) {
        self.0.users().0.fetch_sub(1, Ordering::SeqCst);
    }
}
