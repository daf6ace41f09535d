package highwire.engine;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/**
 * A folder of this user's where programs are unpacked, each in a folder that is named by its hash.
 *
 * <pre>
 *   engine/
 *     6f1c…/highwire          complete, and never changed
 *     6f1c…/part-….tmp        being written; one whose writer was killed goes when it is an hour old
 *     09ab…/highwire          of another version; goes when it was not used for thirty days
 * </pre>
 */
final class ProgramCache {
    /** The property that names the folder. */
    static final String PROPERTY = "highwire.engine.cache";
    static final String PART = "part-";

    private static final Duration PART_AGE_MAX = Duration.ofHours(1);
    private static final Duration VERSION_AGE_MAX = Duration.ofDays(30);
    private static final int OTHERS_MAY_WRITE = 0022;

    private final Path root;

    ProgramCache(Path root) {
        this.root = root;
    }

    /** The folder that is named, or else those to try one after the other. */
    static List<ProgramCache> candidates() {
        String named = System.getProperty(PROPERTY);
        if (named != null && !named.isBlank()) {
            return List.of(new ProgramCache(Path.of(named).toAbsolutePath()));
        }
        List<ProgramCache> candidates = new ArrayList<>();
        String caches = System.getenv("XDG_CACHE_HOME");
        if (caches != null && caches.startsWith("/")) {
            candidates.add(new ProgramCache(Path.of(caches, "highwire")));
        } else {
            // A user without a home has "?" here.
            Path home = Path.of(System.getProperty("user.home", "?"));
            if (home.isAbsolute()) {
                candidates.add(new ProgramCache(home.resolve(".cache/highwire")));
            }
        }
        candidates.add(new ProgramCache(Path.of(System.getProperty("java.io.tmpdir", "/tmp"), "highwire-" + System.getProperty("user.name", "user")).toAbsolutePath()));
        return candidates;
    }

    /** The folder of one program, which exists then; others that nobody uses are removed. */
    Path folderOf(String hash) throws UnusableException {
        try {
            Files.createDirectories(root, PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
            // What another user could exchange must not be executed.
            int mode = (int) Files.getAttribute(root, "unix:mode", LinkOption.NOFOLLOW_LINKS);
            if (!Files.getAttribute(root, "unix:uid", LinkOption.NOFOLLOW_LINKS).equals(Files.getAttribute(Path.of("/proc/self"), "unix:uid"))) {
                throw new UnusableException(root + " belongs to another user");
            }
            if ((mode & OTHERS_MAY_WRITE) != 0 || !Files.isDirectory(root, LinkOption.NOFOLLOW_LINKS)) {
                throw new UnusableException(root + " is not a folder that only its owner can change");
            }
            Path engines = root.resolve("engine");
            Path own = engines.resolve(hash);
            Files.createDirectories(own);
            Files.setLastModifiedTime(own, FileTime.from(Instant.now()));
            tidy(engines, own);
            return own;
        } catch (IOException | UnsupportedOperationException e) {
            throw UnusableException.of(root, e);
        }
    }

    private static void tidy(Path engines, Path own) throws IOException {
        try (DirectoryStream<Path> versions = Files.newDirectoryStream(engines)) {
            for (Path version : versions) {
                if (!version.equals(own) && isOlder(version, VERSION_AGE_MAX)) {
                    try (Stream<Path> files = Files.walk(version)) {
                        files.sorted(Comparator.reverseOrder()).forEach(ProgramCache::remove);
                    }
                }
            }
        }
        try (DirectoryStream<Path> parts = Files.newDirectoryStream(own, PART + "*")) {
            for (Path part : parts) {
                if (isOlder(part, PART_AGE_MAX)) {
                    remove(part);
                }
            }
        }
    }

    private static boolean isOlder(Path path, Duration age) {
        try {
            return Files.getLastModifiedTime(path, LinkOption.NOFOLLOW_LINKS).toInstant().isBefore(Instant.now().minus(age));
        } catch (IOException e) {
            // Another program has removed it.
            return false;
        }
    }

    private static void remove(Path path) {
        try {
            Files.deleteIfExists(path);
        } catch (IOException e) {
            // The next program tries again.
        }
    }

    /** Why a folder cannot hold the program; another folder may. */
    static final class UnusableException extends IOException {
        private static final long serialVersionUID = 1;

        UnusableException(String message) {
            super(message);
        }

        static UnusableException of(Path folder, Exception cause) {
            if (cause instanceof UnusableException already) {
                return already;
            }
            return new UnusableException("the program cannot be unpacked to " + folder + " (" + cause + ")");
        }
    }
}
