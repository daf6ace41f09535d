package highwire.verbs;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/** What one queue has done. Its one thread counts, and others may look at any time. */
final class Counters {
    private static final VarHandle FIRST;
    private static final VarHandle SECOND;

    static {
        try {
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            FIRST = lookup.findVarHandle(Counters.class, "first", long.class);
            SECOND = lookup.findVarHandle(Counters.class, "second", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    /** Whether it counts requests: those that a posting thread executed, and those that it left to the engine. Otherwise completions: all, and failures. */
    final boolean isOfRequests;
    private long first;
    private long second;

    Counters(boolean isOfRequests) {
        this.isOfRequests = isOfRequests;
    }

    void addFirst(int count) {
        FIRST.setOpaque(this, first + count);
    }

    void addSecond(int count) {
        SECOND.setOpaque(this, second + count);
    }

    long first() {
        return (long) FIRST.getOpaque(this);
    }

    long second() {
        return (long) SECOND.getOpaque(this);
    }
}
