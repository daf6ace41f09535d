package highwire.disni;

import highwire.verbs.Context;
import highwire.verbs.Engines;
import highwire.verbs.VerbsException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;

/**
 * The engines that this program uses. DiSNI has one device context for all endpoints of a device and never closes it; so it is here: one for each
 * door, until the JVM ends.
 */
public final class Device {
    /** How long a call waits for the engine's answer; DiSNI's calls have no parameter for it. */
    private static final Duration PATIENCE = Duration.ofSeconds(30);

    private static final Map<Path, Context> OPEN = new HashMap<>();

    private Device() {}

    /**
     * The context of the engine that is found now; it replaces one whose engine has ended.
     *
     * @return the context
     * @throws VerbsException there is no engine
     */
    public static Context context() throws VerbsException {
        Path door = Engines.findOrStart(PATIENCE);
        synchronized (OPEN) {
            Context open = OPEN.get(door);
            if (open == null || !open.valid()) {
                close(open);
                open = Context.open(door, PATIENCE);
                OPEN.put(door, open);
            }
            return open;
        }
    }

    /** What endpoints still have of a context whose engine has ended keeps it open until they are closed and it is collected. */
    private static void close(Context ended) {
        try {
            if (ended != null) {
                ended.close();
            }
        } catch (VerbsException e) {
            OPEN.values().remove(ended);
        }
    }
}
