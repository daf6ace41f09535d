package highwire.hdfs;

import highwire.verbs.Context;
import highwire.verbs.VerbsException;

/**
 * The engine of this JVM: one session with it, made at its first use, and again after the engine has died.
 */
public final class Engine {
    private static Context current;

    private Engine() {}

    /**
     * The session.
     *
     * @return it
     * @throws VerbsException there is no engine
     */
    public static synchronized Context context() throws VerbsException {
        if (current == null || !current.valid()) {
            current = Context.open();
        }
        return current;
    }
}
