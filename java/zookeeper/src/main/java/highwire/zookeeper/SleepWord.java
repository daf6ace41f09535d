package highwire.zookeeper;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;

/**
 * The word by which a thread tells its peers that it sleeps: odd while it does, and another number for each
 * sleep. The first word of its memory.
 */
final class SleepWord {
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

    private final MemorySegment memory;
    /** How often the thread has lain down and got up. */
    private long turns;

    SleepWord(MemorySegment memory) {
        this.memory = memory;
    }

    /** From now on peers ring. Look once more for messages that they wrote before. */
    void lieDown() {
        LONG.setOpaque(memory, 0L, ++turns);
        // Either this thread sees a message, or its sender, which looks here after writing it, sees that the
        // thread sleeps.
        VarHandle.fullFence();
    }

    void getUp() {
        LONG.setOpaque(memory, 0L, ++turns);
    }
}
