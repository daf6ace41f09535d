package highwire.zookeeper;

import highwire.verbs.Access;
import highwire.verbs.CompletionChannel;
import highwire.verbs.MemoryRegion;
import highwire.verbs.RdmaArena;
import highwire.verbs.VerbsException;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.net.InetSocketAddress;

/** A thread that may sleep, as its peers see it: a word that is odd while it sleeps, which they READ, and a bell. */
final class Sleeper implements AutoCloseable {
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

    private final RdmaArena arena;
    private final MemoryRegion memory;
    private final InetSocketAddress bell;
    /** How often the thread has lain down and got up. */
    private long turns;

    Sleeper(Device device, CompletionChannel channel) throws VerbsException {
        bell = channel.bell();
        arena = device.context().arena(64);
        MemoryRegion region = null;
        try {
            region = device.domain().register(arena.segment(), Access.LOCAL_WRITE | Access.REMOTE_READ);
        } finally {
            if (region == null) {
                Device.close(arena);
            }
        }
        memory = region;
    }

    String introduction() {
        return memory.address() + " " + Integer.toUnsignedString(memory.rkey()) + " " + bell.getPort();
    }

    /** From now on peers ring. What they wrote before is to be looked for once more. */
    void lieDown() {
        LONG.setOpaque(memory.segment(), 0L, ++turns);
        // Either we see a message, or its sender, who looks here after it, sees that we sleep.
        VarHandle.fullFence();
    }

    void getUp() {
        LONG.setOpaque(memory.segment(), 0L, ++turns);
    }

    @Override
    public void close() {
        Device.close(memory, arena);
    }
}
