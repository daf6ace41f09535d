package highwire.zookeeper;

import highwire.verbs.Access;
import highwire.verbs.CompletionChannel;
import highwire.verbs.MemoryRegion;
import highwire.verbs.RdmaArena;
import highwire.verbs.VerbsException;

/** A thread that may sleep, as its peers see it: a word that is odd while it sleeps, which they READ, and a bell. */
final class Sleeper implements AutoCloseable {
    private final RdmaArena arena;
    private final MemoryRegion memory;
    private final long bell;
    private final SleepWord word;

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
        word = new SleepWord(memory.segment());
    }

    String introduction() {
        return memory.address() + " " + Integer.toUnsignedString(memory.rkey()) + " " + bell;
    }

    /** From now on peers ring. Look once more for messages that they wrote before. */
    void lieDown() {
        word.lieDown();
    }

    void getUp() {
        word.getUp();
    }

    @Override
    public void close() {
        Device.close(memory, arena);
    }
}
