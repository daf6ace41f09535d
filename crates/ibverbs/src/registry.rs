//! Every object that C holds a pointer to.
//!
//! Control calls look their objects up here, so that a null, stale or foreign pointer is an errno and not a crash. The data
//! path does not: it reaches objects only through the functions that their own context has handed out.
//!
//! A child of `fork` has copies of its parent's objects, but not the device behind them: to it they are unknown, and it
//! never drops them, because what they share with the engine is the parent's.

use libc::c_int;
use std::any::Any;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// Something that C knows by a pointer.
pub(crate) trait Object: Any + Send + Sync {
    /// The structure that C sees.
    type C;
    /// Where C finds it; the same for as long as the object lives.
    fn as_c(&self) -> *mut Self::C;
}

/// An object, and the process that made it.
type Entry = (u32, Arc<dyn Any + Send + Sync>);
type Objects = HashMap<usize, Entry>;

static OBJECTS: LazyLock<RwLock<Objects>> = LazyLock::new(RwLock::default);

/// Hands an object to C.
pub(crate) fn publish<T: Object>(object: Arc<T>) -> *mut T::C {
    let pointer = object.as_c();
    let entry: Entry = (std::process::id(), object);
    let before = OBJECTS.write().unwrap_or_else(PoisonError::into_inner).insert(pointer as usize, entry);
    // Only a parent's object can have had the address, and that is not ours to end.
    std::mem::forget(before);
    pointer
}

/// The object behind a pointer.
///
/// # Errors
/// EINVAL for everything that is not such an object.
pub(crate) fn find<T: Object>(pointer: *const T::C) -> Result<Arc<T>, c_int> {
    let (owner, object) = find_inherited(pointer)?;
    if owner == std::process::id() { Ok(object) } else { Err(libc::EINVAL) }
}

/// The same, if this process or the one that it was forked from has made it, and which has.
pub(crate) fn find_inherited<T: Object>(pointer: *const T::C) -> Result<(u32, Arc<T>), c_int> {
    let objects = OBJECTS.read().unwrap_or_else(PoisonError::into_inner);
    let (owner, object) = objects.get(&(pointer as usize)).ok_or(libc::EINVAL)?;
    Ok((*owner, Arc::clone(object).downcast().map_err(|_| libc::EINVAL)?))
}

/// Whether an address is that of any object.
pub(crate) fn knows(address: usize) -> bool {
    OBJECTS.read().unwrap_or_else(PoisonError::into_inner).contains_key(&address)
}

/// Does something with the object behind a pointer, which cannot be withdrawn meanwhile.
pub(crate) fn with<T: Object, R>(pointer: *const T::C, run: impl FnOnce(&T) -> R) -> Option<R> {
    let objects = OBJECTS.read().unwrap_or_else(PoisonError::into_inner);
    let (owner, object) = objects.get(&(pointer as usize))?;
    object.downcast_ref().filter(|_| *owner == std::process::id()).map(run)
}

/// Takes a pointer back: from now on it is unknown.
pub(crate) fn withdraw<T: Object>(pointer: *const T::C) {
    let is_done = withdraw_if::<T>(pointer, || true);
    debug_assert!(is_done, "nothing was asked");
}

/// Takes a pointer back if `may_go` says so while nobody looks it up, and whether it is unknown now.
pub(crate) fn withdraw_if<T: Object>(pointer: *const T::C, may_go: impl FnOnce() -> bool) -> bool {
    let mut objects = OBJECTS.write().unwrap_or_else(PoisonError::into_inner);
    let is_ours = objects.get(&(pointer as usize)).is_some_and(|(owner, _)| *owner == std::process::id());
    if is_ours && !may_go() {
        return false;
    }
    let object = if is_ours { objects.remove(&(pointer as usize)) } else { None };
    // The object may go with this, and its end may look others up.
    drop(objects);
    drop(object);
    true
}

/// Every object of a kind that `chosen` takes.
pub(crate) fn first<T: Object>(chosen: impl Fn(&T) -> bool) -> Option<Arc<T>> {
    let objects = OBJECTS.read().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    let is_it = |(owner, object): &&Entry| *owner == process && object.downcast_ref().is_some_and(&chosen);
    let (_, found) = objects.values().find(is_it)?;
    Arc::clone(found).downcast().ok()
}

/// How many others depend on an object; while any do, it cannot be destroyed.
#[derive(Debug, Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    /// # Errors
    /// EBUSY while there are any.
    pub(crate) fn none(&self) -> Result<(), c_int> {
        if self.0.load(Ordering::SeqCst) == 0 { Ok(()) } else { Err(libc::EBUSY) }
    }
}

/// An object that others depend on.
pub(crate) trait Used: Object {
    /// Who does.
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
