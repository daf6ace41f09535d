package highwire.verbs;

import highwire.engine.EngineStarter;
import highwire.engine.StartLock;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** Finds engines, and starts one where none serves. */
public final class Engines {
    /** The property that names a door; the environment variable {@code HIGHWIRE_DOOR} does so, too. */
    public static final String DOOR_PROPERTY = "highwire.door";

    private static final boolean HAS_STARTER = hasStarter();

    private Engines() {}

    /**
     * The door of the engine to use: the one that is named, or the only one of this user that listens.
     *
     * @return its path
     * @throws NoEngineException there is none, or there are several
     */
    public static Path find() throws NoEngineException {
        if (isNamed()) {
            return named();
        }
        Path registry = registry();
        Path found = theOnlyOneBelow(registry);
        if (found == null) {
            String starter = HAS_STARTER ? "" : ", or add highwire-engine to the class path";
            throw new NoEngineException("no engine serves below " + registry + ": start one with `highwire serve`" + starter);
        }
        return found;
    }

    /**
     * The same, and an engine is started if none is named and none listens. It ends when no program has been connected for a while. Programs
     * that come at the same time share one.
     *
     * @param timeout how long all of that may take
     * @return the path of a door
     * @throws NoEngineException there is none and none could be started, or there are several
     * @throws CallInterruptedException the thread was interrupted
     */
    public static Path findOrStart(Duration timeout) throws VerbsException {
        if (!startsOne()) {
            return find();
        }
        Path registry = registry();
        Path found = theOnlyOneBelow(registry);
        if (found != null) {
            return found;
        }
        long patience = Timeouts.nanos(timeout);
        try (StartLock _ = StartLock.acquire(registry, patience)) {
            // The one that had the lock before may have started one.
            found = theOnlyOneBelow(registry);
            return found != null ? found : EngineStarter.start(registry, patience);
        } catch (NoEngineException e) {
            throw e;
        } catch (InterruptedIOException e) {
            throw new CallInterruptedException(e.getMessage());
        } catch (IOException e) {
            throw new NoEngineException("no engine serves below " + registry + ", and none could be started: " + e.getMessage());
        }
    }

    /** Whether an engine is started if there is none: none is named, and the program does not run its own. */
    static boolean startsOne() {
        return HAS_STARTER && !isNamed() && !EngineStarter.isExternal();
    }

    /** Class paths that were put together by hand may lack the artifact that starts engines. */
    private static boolean hasStarter() {
        try {
            EngineStarter.isExternal();
            return true;
        } catch (NoClassDefFoundError e) {
            return false;
        }
    }

    private static boolean isNamed() {
        return named() != null;
    }

    private static Path named() {
        String named = System.getProperty(DOOR_PROPERTY, System.getenv("HIGHWIRE_DOOR"));
        return named == null || named.isBlank() ? null : Path.of(named);
    }

    /** Null if there is none. */
    private static Path theOnlyOneBelow(Path registry) throws NoEngineException {
        List<Path> doors = Context.listening(doorsBelow(ofThisNamespace(registry)));
        if (doors.size() > 1) {
            throw new NoEngineException("several engines serve; name one by HIGHWIRE_DOOR or -D" + DOOR_PROPERTY + ": " + doors);
        }
        return doors.isEmpty() ? null : doors.getFirst();
    }

    private static Path registry() throws NoEngineException {
        String named = System.getenv("HIGHWIRE_SHM_DIR");
        if (named != null && !named.isBlank()) {
            return Path.of(named);
        }
        try {
            return Path.of("/dev/shm/highwire-" + Files.getAttribute(Path.of("/proc/self"), "unix:uid"));
        } catch (IOException | UnsupportedOperationException e) {
            throw new NoEngineException("cannot tell which user this is (" + e.getMessage() + "): set HIGHWIRE_DOOR");
        }
    }

    /** Engines of another network namespace are no neighbours: those of all but the first have a folder of their own. */
    private static Path ofThisNamespace(Path registry) {
        try {
            String own = "net-" + Files.getAttribute(Path.of("/proc/self/ns/net"), "unix:ino");
            Path first = Files.readSymbolicLink(registry.resolve("net"));
            return first.toString().equals(own) ? registry : registry.resolve(own);
        } catch (IOException | UnsupportedOperationException e) {
            return registry;
        }
    }

    private static List<Path> doorsBelow(Path registry) {
        List<Path> doors = new ArrayList<>();
        try (DirectoryStream<Path> devices = Files.newDirectoryStream(registry)) {
            for (Path device : devices) {
                Path door = device.resolve("door");
                if (Files.exists(door)) {
                    doors.add(door);
                }
            }
        } catch (IOException e) {
            // No program of this user has ever opened a device here.
        }
        doors.sort(null);
        return doors;
    }
}
