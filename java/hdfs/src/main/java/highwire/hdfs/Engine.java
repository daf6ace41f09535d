package highwire.hdfs;

import highwire.verbs.Context;
import highwire.verbs.EngineTimeoutException;
import highwire.verbs.VerbsException;

/**
 * The engine of this JVM: one session with it, made at its first use, and again after the engine has died.
 */
public final class Engine {
    /** After an engine has not answered, for which no other thread waits in vain: calls go over TCP meanwhile. */
    private static final long PAUSE_NANOS = 10_000_000_000L;

    private static Context current;
    private static EngineTimeoutException silent;
    private static long silentAt;

    private Engine() {}

    /**
     * The session.
     *
     * @return it
     * @throws VerbsException there is no engine
     */
    public static synchronized Context context() throws VerbsException {
        if (current == null || !current.valid()) {
            if (silent != null && System.nanoTime() - silentAt < PAUSE_NANOS) {
                throw silent;
            }
            try {
                close(current);
                current = Context.open();
            } catch (EngineTimeoutException e) {
                silent = e;
                silentAt = System.nanoTime();
                throw e;
            }
        }
        return current;
    }

    /** Sessions that have not noticed yet that their engine has ended keep its context until they are closed and it is collected. */
    private static void close(Context ended) {
        try {
            if (ended != null) {
                ended.close();
            }
        } catch (VerbsException e) {
            current = null;
        }
    }
}
