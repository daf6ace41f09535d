package highwire.zookeeper;

import highwire.verbs.Context;
import highwire.verbs.EngineTimeoutException;
import highwire.verbs.ProtectionDomain;
import highwire.verbs.VerbsException;

/** The engine of this JVM: one session for all its connections, for as long as there are any. After the engine has died the next connection looks for another. */
public final class Device {
    /** After an engine has not answered, for which nobody else waits in vain. */
    private static final long PAUSE_NANOS = 5_000_000_000L;

    private static Device current;
    private static EngineTimeoutException silent;
    private static long silentAt;

    private final Context context;
    private final ProtectionDomain domain;
    private int users;

    private Device(Context context) throws VerbsException {
        this.context = context;
        this.domain = context.protectionDomain();
    }

    /**
     * Takes hold of the engine that {@code highwire.door} names, or of the only one.
     *
     * @return it
     * @throws VerbsException there is none
     */
    public static synchronized Device acquire() throws VerbsException {
        if (current == null || !current.context.valid()) {
            if (silent != null && System.nanoTime() - silentAt < PAUSE_NANOS) {
                throw silent;
            }
            try {
                current = open();
            } catch (EngineTimeoutException e) {
                silent = e;
                silentAt = System.nanoTime();
                throw e;
            }
        }
        current.users++;
        return current;
    }

    private static Device open() throws VerbsException {
        Context context = Context.open();
        try {
            return new Device(context);
        } catch (VerbsException e) {
            context.close();
            throw e;
        }
    }

    /** Releases the engine. Objects made from it must be closed. */
    public void release() {
        synchronized (Device.class) {
            if (--users > 0) {
                return;
            }
            if (current == this) {
                current = null;
            }
            try {
                domain.close();
                context.close();
            } catch (VerbsException e) {
                // The engine takes back the rest when this JVM ends.
            }
        }
    }

    /** {@return the session} */
    public Context context() {
        return context;
    }

    ProtectionDomain domain() {
        return domain;
    }

    /** Closes the objects that exist, in order. A failure must not keep the rest open. */
    static void close(AutoCloseable... parts) {
        for (AutoCloseable part : parts) {
            try {
                if (part != null) {
                    part.close();
                }
            } catch (Exception e) {
                // An object of an engine that is silent or gone, which ends all of them.
            }
        }
    }
}
