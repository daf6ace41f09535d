package highwire.ffm;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_SHORT;

import highwire.verbs.Timeouts;
import highwire.verbs.VerbsException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.time.Duration;

/**
 * A channel on which threads sleep until an armed queue has a completion. The thread sleeps in the kernel,
 * within a native call: interrupting it does not wake it.
 */
public final class CompletionChannel extends NativeObject {
    private static final short POLLIN = 1;
    private static final int EINTR = 4;

    private final int fd;

    CompletionChannel(Device device, MemorySegment pointer) {
        super(device.library, pointer, "completion channel", "ibv_destroy_comp_channel", device);
        fd = pointer.get(JAVA_INT, Layout.CHANNEL_FD);
    }

    /**
     * Sleeps until an armed queue has a completion.
     *
     * @param patience how long at most
     * @return whether one has
     * @throws VerbsException the library fails
     */
    public boolean await(Duration patience) throws VerbsException {
        checkOpen();
        long deadline = System.nanoTime() + Timeouts.nanos(patience);
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment pollfd = arena.allocate(8, 4);
            pollfd.set(JAVA_INT, 0, fd);
            pollfd.set(JAVA_SHORT, 4, POLLIN);
            int ready = -EINTR;
            long left = 1;
            // One call waits for 24 days at most.
            while (ready == -EINTR || ready == 0 && left > 0) {
                left = Math.max(0, deadline - System.nanoTime());
                ready = library.number("poll", pollfd, 1L, (int) Math.min(Integer.MAX_VALUE, (left + 999_999) / 1_000_000));
            }
            if (ready < 0) {
                throw new NativeVerbsException("poll", -ready);
            }
            if (ready == 0) {
                return false;
            }
            MemorySegment found = arena.allocate(16, 8);
            library.run("ibv_get_cq_event", pointer, found, found.asSlice(8));
            library.tell("ibv_ack_cq_events", found.get(ADDRESS, 0), 1);
            return true;
        }
    }
}
