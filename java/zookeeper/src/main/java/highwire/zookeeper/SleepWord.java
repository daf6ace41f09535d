package highwire.zookeeper;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;

/** The word by which a thread tells its peers that it sleeps: odd while it does, and another one for each sleep. The first of its memory. */
final class SleepWord {
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

    private final MemorySegment memory;
    /** How often the thread has lain down and got up. */
    private long turns;

    SleepWord(MemorySegment memory) {
        this.memory = memory;
    }

    /** From now on peers ring. What they wrote before is to be looked for once more. */
    void lieDown() {
        LONG.setOpaque(memory, 0L, ++turns);
        // Either we see a message, or its sender, who looks here after it, sees that we sleep.
        VarHandle.fullFence();
    }

    void getUp() {
        LONG.setOpaque(memory, 0L, ++turns);
    }
}
