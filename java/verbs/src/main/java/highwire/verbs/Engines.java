package highwire.verbs;

import java.io.IOException;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Finds engines. */
public final class Engines {
    /** The property that names a door; the environment variable {@code HIGHWIRE_DOOR} does so, too. */
    public static final String DOOR_PROPERTY = "highwire.door";

    private Engines() {}

    /**
     * The door of the engine to use: the one that is named, or the only one of this user that listens.
     *
     * @return its path
     * @throws NoEngineException there is none, or there are several
     */
    public static Path find() throws NoEngineException {
        String named = System.getProperty(DOOR_PROPERTY, System.getenv("HIGHWIRE_DOOR"));
        if (named != null && !named.isBlank()) {
            return Path.of(named);
        }
        Path registry = ofThisNamespace(registry());
        List<Path> doors = Context.listening(doorsBelow(registry));
        if (doors.isEmpty()) {
            throw new NoEngineException("no engine serves below " + registry + ": start one with `highwire serve`");
        }
        if (doors.size() > 1) {
            throw new NoEngineException("several engines serve; name one by HIGHWIRE_DOOR or -D" + DOOR_PROPERTY + ": " + doors);
        }
        return doors.getFirst();
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
