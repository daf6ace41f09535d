package highwire.netty;

import highwire.verbs.Access;
import highwire.verbs.MemoryRegion;
import highwire.verbs.RdmaArena;
import highwire.verbs.VerbsException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * The memory of one end of a link.
 *
 * <pre>
 *      0 | tail u64     written by the peer: bytes that it has written so far × 4, + 1 it writes no more, + 2 it is closed; 2 alone is a reset
 *     64 | alarm u64    0 while this end's event loop is awake, or turn × 2^33, + bell × 2, + 1 it wants room. The peer READs it
 *    128 | what was READ of the peer's alarm u64
 *    256 | credits u64 × blocks: written by the peer. Block number k of the stream to it goes into (k + 1) × 2^16 + block
 *   4096 | blocks, into which the peer WRITEs
 *        | as many bytes to send from
 * </pre>
 *
 * <p>The first blocks of a stream go to 0, 1, 2, …; each later one needs a credit. Received bytes may be lent to the pipeline, so the memory is given back when the link is closed
 * and all that was lent has come back.
 */
final class Memory {
    static final int BLOCKS_MAX = 256;
    static final int ACCESS = Access.REMOTE_WRITE | Access.REMOTE_READ;

    static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();
    static final long TAIL = 0;
    static final long ALARM = 64;
    static final long PEER_ALARM = 128;
    static final long CREDITS = 256;
    static final int DATA = 4096;
    /** Of a tail. */
    static final long FINISHED = 1;
    static final long CLOSED = 2;
    /** Of an alarm. */
    static final long WANTS_ROOM = 1;

    final int block;
    final int blocks;
    final MemoryRegion region;
    private final RdmaArena arena;
    private final MemorySegment segment;
    private final ByteBuffer received;
    private final ByteBuffer staging;
    private final AtomicInteger users = new AtomicInteger(1);

    Memory(Device device) throws VerbsException {
        block = Settings.block();
        blocks = Settings.blocks();
        arena = device.context().arena(DATA + 2L * bytes());
        MemoryRegion made = null;
        try {
            made = device.domain().register(arena.segment(), Access.LOCAL_WRITE | ACCESS);
        } finally {
            if (made == null) {
                Device.close(arena);
            }
        }
        region = made;
        segment = region.segment();
        received = segment.asSlice(DATA, bytes()).asByteBuffer();
        staging = segment.asSlice(DATA + (long) bytes(), bytes()).asByteBuffer();
    }

    int bytes() {
        return block * blocks;
    }

    long tail() {
        return (long) LONG.getAcquire(segment, TAIL);
    }

    void alarm(long value) {
        LONG.setOpaque(segment, ALARM, value);
    }

    long peerAlarm() {
        return (long) LONG.get(segment, PEER_ALARM);
    }

    long credit(int slot) {
        return (long) LONG.getAcquire(segment, CREDITS + 8L * slot);
    }

    ByteBuffer received(int at, int length) {
        return received.slice(at, length);
    }

    ByteBuffer staging(int at, int length) {
        return staging.slice(at, length);
    }

    /** Where in the region a byte to send lies. */
    long stagingOffset(int at) {
        return DATA + (long) bytes() + at;
    }

    /** Part of it is lent. */
    void retain() {
        users.incrementAndGet();
    }

    /** What was lent came back, or the link is closed. */
    void release() {
        if (users.decrementAndGet() == 0) {
            Device.control(() -> Device.close(region, arena));
        }
    }
}
