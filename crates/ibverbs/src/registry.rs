//! Every object that C holds a pointer to.
//!
//! Control calls look their objects up here, so that a null, stale or foreign pointer is an errno and not a crash. The data
//! path does not: it reaches objects only through the functions that their own context has handed out.

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

type Objects = HashMap<usize, Arc<dyn Any + Send + Sync>>;

static OBJECTS: LazyLock<RwLock<Objects>> = LazyLock::new(RwLock::default);

/// Hands an object to C.
pub(crate) fn publish<T: Object>(object: Arc<T>) -> *mut T::C {
    let pointer = object.as_c();
    OBJECTS.write().unwrap_or_else(PoisonError::into_inner).insert(pointer as usize, object);
    pointer
}

/// The object behind a pointer.
///
/// # Errors
/// EINVAL for everything that is not such an object.
pub(crate) fn find<T: Object>(pointer: *const T::C) -> Result<Arc<T>, c_int> {
    let objects = OBJECTS.read().unwrap_or_else(PoisonError::into_inner);
    let object = objects.get(&(pointer as usize)).ok_or(libc::EINVAL)?;
    Arc::clone(object).downcast().map_err(|_| libc::EINVAL)
}

/// Does something with the object behind a pointer, which cannot be withdrawn meanwhile.
pub(crate) fn with<T: Object, R>(pointer: *const T::C, run: impl FnOnce(&T) -> R) -> Option<R> {
    let objects = OBJECTS.read().unwrap_or_else(PoisonError::into_inner);
    objects.get(&(pointer as usize))?.downcast_ref().map(run)
}

/// Takes a pointer back: from now on it is unknown.
pub(crate) fn withdraw<T: Object>(pointer: *const T::C) {
    // The object may go with this, and its end may look others up.
    let object = OBJECTS.write().unwrap_or_else(PoisonError::into_inner).remove(&(pointer as usize));
    drop(object);
}

/// Every object of a kind that `chosen` takes.
pub(crate) fn first<T: Object>(chosen: impl Fn(&T) -> bool) -> Option<Arc<T>> {
    let objects = OBJECTS.read().unwrap_or_else(PoisonError::into_inner);
    let found = objects.values().find(|object| object.downcast_ref().is_some_and(&chosen))?;
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
