package highwire.engine;

import java.io.IOException;
import java.nio.channels.ClosedByInterruptException;
import java.nio.channels.FileChannel;
import java.nio.channels.OverlappingFileLockException;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Set;
import java.util.concurrent.TimeUnit;

/**
 * Held by a program that looks for an engine and starts one if there is none, so that programs that start together share one.
 *
 * <p>It is a lock on one byte of the registry's lock file ({@code docs/uapi-neighbours.md}). The kernel drops it with its process.
 */
public final class StartLock implements AutoCloseable {
    /** Behind the bytes for the brokers of all IPv4 addresses, and before those for IPv6. */
    private static final long BYTE = 1L << 33;
    private static final long PAUSE_MILLIS = 10;

    private final FileChannel file;

    private StartLock(FileChannel file) {
        this.file = file;
    }

    /**
     * Waits for the lock.
     *
     * @param registry the directory in which engines of this user find each other; it is made if it is missing
     * @param patienceNanos how long to wait
     * @return the lock
     * @throws IOException it cannot be had, or not in time
     */
    public static StartLock acquire(Path registry, long patienceNanos) throws IOException {
        try {
            Files.createDirectory(registry, PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")));
        } catch (FileAlreadyExistsException e) {
            // The engine refuses to use it if it is not this user's own.
        }
        FileChannel file = FileChannel.open(
                registry.resolve("lock"),
                Set.of(StandardOpenOption.CREATE, StandardOpenOption.READ, StandardOpenOption.WRITE, LinkOption.NOFOLLOW_LINKS),
                PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------")));
        boolean isHeld = false;
        try {
            long deadline = System.nanoTime() + patienceNanos;
            while (!tryLock(file)) {
                if (deadline - System.nanoTime() <= 0) {
                    throw new IOException("another program has been starting an engine for " + TimeUnit.NANOSECONDS.toSeconds(patienceNanos)
                            + " s: it may be stopped");
                }
                Thread.sleep(PAUSE_MILLIS);
            }
            isHeld = true;
            return new StartLock(file);
        } catch (InterruptedException | ClosedByInterruptException e) {
            throw EngineStarter.interrupted();
        } finally {
            if (!isHeld) {
                file.close();
            }
        }
    }

    private static boolean tryLock(FileChannel file) throws IOException {
        try {
            return file.tryLock(BYTE, 1, false) != null;
        } catch (OverlappingFileLockException e) {
            // Another thread of this JVM has it, which may be one of another class loader.
            return false;
        }
    }

    @Override
    public void close() throws IOException {
        file.close();
    }
}
