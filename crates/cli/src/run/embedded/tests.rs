//! Caches that are new, shared, broken, somebody else's, or of no use.

use super::*;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::sync::Barrier;

const NAMES: [&str; 3] = ["libibverbs.so.1", "librdmacm.so.1", "libhighwire-paths.so"];
const HASH_OF_TEST: &str = "00112233445566778899aabbccddeeff";

/// A folder that goes with the test, and three large files for it.
struct Place {
    root: PathBuf,
    contents: Vec<Vec<u8>>,
}

impl Place {
    fn new(name: &str) -> Place {
        let root = std::env::temp_dir().join(format!("highwire-cache-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&root).expect("a folder");
        std::fs::set_permissions(&root, std::fs::Permissions::from_mode(0o700)).expect("it is ours");
        let contents =
            (1..=3u8).map(|seed| (0..400_000u32).map(|at| (at as u8).wrapping_mul(seed)).collect());
        Place { root, contents: contents.collect() }
    }

    fn files(&self) -> Vec<(&str, &[u8])> {
        NAMES.iter().copied().zip(self.contents.iter().map(Vec::as_slice)).collect()
    }

    fn cache(&self) -> PathBuf {
        self.root.join("cache/highwire")
    }

    fn unpack(&self) -> Result<PathBuf> {
        unpack(&self.cache(), HASH_OF_TEST, &self.files())
    }

    /// Every file is there with the right bytes, and nothing else is.
    fn check(&self, folder: &Path) {
        for (name, bytes) in self.files() {
            assert!(std::fs::read(folder.join(name)).expect("it is there") == bytes, "{name}");
        }
        assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), NAMES.len(), "nothing unfinished");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

fn refused(result: Result<PathBuf>, reason: &str) {
    let error = format!("{:#}", result.expect_err("it is refused"));
    assert!(error.contains(reason), "{error}");
}

#[test]
fn a_first_run_unpacks_and_a_second_touches_nothing() {
    let place = Place::new("first");
    let folder = place.unpack().expect("a new cache");
    assert!(folder.ends_with(HASH_OF_TEST), "{}", folder.display());
    place.check(&folder);
    let inodes = || NAMES.map(|name| folder.join(name).metadata().expect("it is there").ino());
    let before = inodes();
    assert_eq!(place.unpack().expect("the same"), folder);
    assert_eq!(inodes(), before, "whole files stay");
}

/// Readers look at each file all the time: what has its name is always whole.
#[test]
fn first_runs_at_once_never_show_half_a_file() {
    let place = Place::new("at-once");
    let (users, readers) = (8, 2);
    let start = Barrier::new(users + readers);
    let left = AtomicU32::new(users as u32);
    std::thread::scope(|scope| {
        for _ in 0..users {
            scope.spawn(|| {
                start.wait();
                let folder = place.unpack();
                left.fetch_sub(1, Ordering::SeqCst);
                for (name, bytes) in place.files() {
                    let found = std::fs::read(folder.as_ref().expect("a cache").join(name)).expect(name);
                    assert!(found == bytes, "{name}");
                }
            });
        }
        for _ in 0..readers {
            scope.spawn(|| {
                start.wait();
                while left.load(Ordering::SeqCst) > 0 {
                    for (name, bytes) in place.files() {
                        let file = place.cache().join(HASH_OF_TEST).join(name);
                        // Before it is there, it is not; then it is whole.
                        if let Ok(found) = std::fs::read(file) {
                            assert!(found == bytes, "{name}: {} bytes", found.len());
                        }
                    }
                }
            });
        }
    });
    place.check(&place.cache().join(HASH_OF_TEST));
}

/// Another user that tidies up takes no file away that is still being written.
#[test]
fn tidying_up_disturbs_no_writer() {
    let place = Place::new("tidy");
    let folder = place.unpack().expect("a new cache");
    let left = AtomicU32::new(4);
    let open = || own_folder(fs::CWD, &folder).expect("it is ours");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let folder = open();
            while left.load(Ordering::SeqCst) > 0 {
                remove_unfinished(&folder, SystemTime::now());
            }
        });
        for _ in 0..4 {
            scope.spawn(|| {
                let folder = open();
                let all_written = (0..40).all(|_| put(&folder, NAMES[0], &place.contents[0]).is_ok());
                left.fetch_sub(1, Ordering::SeqCst);
                assert!(all_written, "a file was taken away while it was written");
            });
        }
    });
    place.check(&folder);
}

#[test]
fn a_damaged_file_is_replaced_and_not_written_over() {
    let place = Place::new("damaged");
    let folder = place.unpack().expect("a new cache");
    let file = folder.join(NAMES[0]);
    let whole = place.contents[0].clone();
    let (mut flipped, mut longer) = (whole.clone(), whole.clone());
    flipped[200_000] ^= 1;
    longer.push(0);
    for damaged in [&flipped[..], &whole[..1000], &[], &longer] {
        std::fs::write(&file, damaged).expect("it is ours");
        // A program that has it mapped must keep what it has.
        let mapped = File::open(&file).expect("it is there");
        place.unpack().expect("it is mended");
        place.check(&folder);
        let mut kept = Vec::new();
        (&mapped).read_to_end(&mut kept).expect("the old file");
        assert!(kept == damaged, "the old file was written over");
    }
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).expect("it is ours");
    place.unpack().expect("it is mended");
    assert_eq!(file.metadata().expect("it is there").mode() & 0o777, 0o755);
}

#[test]
fn what_a_killed_run_left_unfinished_goes() {
    let place = Place::new("killed");
    let folder = place.unpack().expect("a new cache");
    let unfinished = |number: u32, age: Duration| {
        let path = folder.join(format!(".new-{number}-0-{}", NAMES[0]));
        std::fs::write(&path, "half").expect("a file");
        let file = File::options().write(true).open(&path).expect("it is there");
        file.set_modified(SystemTime::now() - age).expect("it is ours");
        path
    };
    let _given_up = unfinished(1, GIVEN_UP_AFTER);
    let being_written = unfinished(2, GIVEN_UP_AFTER / 2);
    std::fs::remove_file(folder.join(NAMES[1])).expect("it is there");
    place.unpack().expect("it is mended");
    std::fs::remove_file(being_written).expect("another user's stays");
    place.check(&folder);
}

#[test]
fn links_lead_nowhere() {
    let place = Place::new("links");
    let folder = place.unpack().expect("a new cache");
    let elsewhere = place.root.join("elsewhere");
    std::fs::write(&elsewhere, &place.contents[0]).expect("a file");
    std::fs::remove_file(folder.join(NAMES[0])).expect("it is there");
    symlink(&elsewhere, folder.join(NAMES[0])).expect("a link");
    place.unpack().expect("it is mended");
    let meta = folder.join(NAMES[0]).symlink_metadata().expect("it is there");
    assert!(meta.is_file(), "a link, even to the right bytes, is replaced");
    std::fs::remove_dir_all(place.cache()).expect("it is ours");
    std::fs::create_dir(place.root.join("other")).expect("a folder");
    symlink(place.root.join("other"), place.cache()).expect("a link");
    refused(place.unpack(), "no folder of ours");
}

#[test]
fn a_folder_that_others_may_write_to_is_refused() {
    let place = Place::new("open");
    let folder = place.unpack().expect("a new cache");
    let set = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    for (path, safe) in [(place.cache(), 0o700), (folder.clone(), 0o755)] {
        for mode in [0o770, 0o707] {
            set(&path, mode);
            refused(place.unpack(), "others may write to it");
        }
        set(&path, safe);
        place.unpack().expect("it is safe again");
    }
    let parent = place.root.join("cache");
    set(&parent, 0o777);
    refused(place.unpack(), "not sticky");
    set(&parent, 0o1777);
    place.unpack().expect("as /tmp is");
}

#[test]
fn a_folder_of_another_user_is_refused() {
    let place = Place::new("foreign");
    let folder = place.unpack().expect("a new cache");
    if chown(&folder, Some(65_534), None).is_err() {
        println!("skipped: only root can give a folder away");
        return;
    }
    refused(place.unpack(), "user 65534 owns it");
    chown(&folder, Some(0), None).expect("root may");
    chown(folder.join(NAMES[0]), Some(65_534), None).expect("root may");
    place.unpack().expect("the file is replaced");
    assert_eq!(folder.join(NAMES[0]).metadata().expect("it is there").uid(), 0);
    chown(place.cache(), Some(65_534), None).expect("root may");
    refused(place.unpack(), "user 65534 owns it");
}

#[test]
fn the_next_cache_is_taken_and_the_way_out_is_named() {
    let place = Place::new("next");
    // A file where the folder should be: as little of use as a home that is read-only, for root too.
    std::fs::write(place.root.join("home"), "").expect("a file");
    let useless = place.root.join("home/.cache/highwire");
    let caches = [useless.clone(), place.cache()];
    let folder = unpack_into_one(&caches, HASH_OF_TEST, &place.files()).expect("the second is of use");
    assert_eq!(folder, place.cache().join(HASH_OF_TEST));
    let none = unpack_into_one(std::slice::from_ref(&useless), HASH_OF_TEST, &place.files());
    let error = format!("{:#}", none.expect_err("there is no other"));
    for part in [useless.to_str().unwrap_or_default(), "XDG_CACHE_HOME", "--libs"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn old_versions_go_and_the_current_one_stays() {
    let place = Place::new("versions");
    let name = |number: usize| format!("{number:032x}");
    for number in 0..VERSIONS_MAX + 4 {
        unpack(&place.cache(), &name(number), &[("a", b"1")]).expect("a version");
    }
    std::fs::create_dir(place.cache().join("other")).expect("a folder that is no version");
    let current = name(VERSIONS_MAX + 4);
    unpack(&place.cache(), &current, &[("a", b"1")]).expect("a version");
    assert!(place.cache().join(&current).is_dir() && place.cache().join("other").is_dir());
    assert_eq!(std::fs::read_dir(place.cache()).expect("a folder").count(), VERSIONS_MAX + 1);
}

/// In a namespace of its own, where this test mounts such a file system and runs itself again.
#[test]
fn a_cache_that_runs_nothing_is_refused() {
    const MOUNTED: &str = "HIGHWIRE_TEST_NOEXEC";
    const CANNOT: i32 = 77;
    if let Some(folder) = std::env::var_os(MOUNTED) {
        return refused(
            unpack(&PathBuf::from(folder).join("highwire"), HASH_OF_TEST, &[("a", b"1")]),
            "noexec",
        );
    }
    let place = Place::new("noexec");
    let script = format!(
        "mount -t tmpfs -o noexec,mode=700 none \"$1\" || exit {CANNOT}\nexec \"$0\" --exact run::embedded::tests::a_cache_that_runs_nothing_is_refused"
    );
    let status = std::process::Command::new("unshare")
        .args(["--map-root-user", "--mount", "sh", "-c", &script])
        .arg(std::env::current_exe().expect("this program"))
        .arg(&place.root)
        .env(MOUNTED, &place.root)
        .status();
    match status.map(|status| status.code()) {
        Ok(Some(0)) => {}
        Ok(Some(1 | CANNOT)) | Err(_) => println!("skipped: no namespace to mount in"),
        other => panic!("{other:?}"),
    }
}
