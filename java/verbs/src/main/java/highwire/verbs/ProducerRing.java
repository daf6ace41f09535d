package highwire.verbs;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;

/**
 * The filling end of a ring. One thread at a time.
 *
 * <pre>
 *    0  magic u32 │ version u16 │ kind u16 │ bytes of a slot u32 │ slots u32 │ begin of the slots u32 │ … │ 24 total bytes u64
 *  128  tail u64      slots filled so far    │ 144 in_use u64 (send ring): {@link Claim}    written by this program
 *  256  head u64      slots emptied so far   │ 264 held u64 (receive ring)                  written by the engine
 *  384  arm u64 │ 392 wanted u64 (receive ring)                                             written by both
 *  512  slots: {@link SendRequest}, {@link ReceiveRequest}
 * </pre>
 *
 * <p>The tail is this program's: it is kept here and never read back. The head is the engine's: a cached copy
 * says how much room there is for certain, and the shared one is read only if that is too little.
 */
final class ProducerRing {
    final MemorySegment memory;
    final int slotBytes;
    private final long mask;
    /** The request last written into each slot, and its version. The consumer never writes there. */
    private final Object[] written;
    private final long[] versions;
    private final Runnable unmap;
    private long tail;
    private long headCached;

    /** Fills a ring whose header was checked. {@code unmap} runs when it is closed. */
    ProducerRing(MemorySegment memory, Runnable unmap) {
        this.memory = memory;
        this.unmap = unmap;
        this.slotBytes = Mapped.getInt(memory, Layout.RING_SLOT_BYTES_OFFSET);
        this.mask = Mapped.getInt(memory, Layout.RING_SLOT_COUNT_OFFSET) - 1L;
        this.written = new Object[(int) mask + 1];
        this.versions = new long[(int) mask + 1];
    }

    static ProducerRing map(Context context, int kind, long segment, long bytes) throws IOException {
        Resources resources = context.resources;
        Arena arena = resources.open();
        boolean isMade = false;
        try {
            MemorySegment memory = context.mapSegment(segment, bytes, arena);
            check(memory, kind);
            ProducerRing ring = new ProducerRing(memory, () -> resources.close(arena));
            isMade = true;
            return ring;
        } finally {
            if (!isMade) {
                resources.close(arena);
            }
        }
    }

    /** Validates a header, or says which field is wrong. */
    static void check(MemorySegment memory, int kind) throws IOException {
        if (memory.byteSize() < Layout.RING_HEADER_BYTES
                || Mapped.getIntAcquire(memory, Layout.RING_MAGIC_OFFSET) != Layout.RING_MAGIC) {
            throw new IOException("the file is no ring");
        }
        int version = (short) Mapped.SHORT.get(memory, Layout.RING_VERSION_OFFSET);
        if (version != Layout.RING_VERSION) {
            throw new VersionException("a ring of version " + version + "; this library knows " + Layout.RING_VERSION);
        }
        long slotBytes = Mapped.getInt(memory, Layout.RING_SLOT_BYTES_OFFSET);
        long slots = Mapped.getInt(memory, Layout.RING_SLOT_COUNT_OFFSET);
        boolean isSound = (short) Mapped.SHORT.get(memory, Layout.RING_KIND_OFFSET) == kind
                && slotBytes >= 64 && slotBytes <= 320 && slotBytes % 64 == 0
                && slots > 0 && Long.bitCount(slots) == 1
                && Mapped.getInt(memory, Layout.RING_SLOTS_OFFSET_OFFSET) == Layout.RING_HEADER_BYTES
                && Layout.RING_HEADER_BYTES + slotBytes * slots <= memory.byteSize();
        if (!isSound) {
            throw new IOException("the ring's header contradicts itself");
        }
    }

    int slotCount() {
        return (int) mask + 1;
    }

    /** Whether this many slots are free. */
    boolean hasRoom(int slots) {
        return mask + 1 - (tail - headCached) >= slots || hasRoomNow(slots);
    }

    private boolean hasRoomNow(int slots) {
        // Acquire: the engine's reads of a slot happen before this program overwrites it.
        headCached = Mapped.getLongAcquire(memory, Layout.RING_HEAD_OFFSET);
        return mask + 1 - (tail - headCached) >= slots;
    }

    /** The place of the slot that is {@code ahead} slots behind the last one published. */
    long slot(int ahead) {
        return Layout.RING_HEADER_BYTES + ((tail + ahead) & mask) * slotBytes;
    }

    /** The place of the slot with this number. */
    long slotOf(long number) {
        return Layout.RING_HEADER_BYTES + (number & mask) * slotBytes;
    }

    /** The number of slots published. */
    long published() {
        return tail;
    }

    /** Whether that slot holds this version of a request since the last lap, so that it need not be written again; from now on it does. */
    boolean renew(int ahead, Object request, long version) {
        int index = (int) ((tail + ahead) & mask);
        if (written[index] != request) {
            written[index] = request;
        } else if (versions[index] == version) {
            return true;
        }
        versions[index] = version;
        return false;
    }

    /** Makes slots visible. A full fence: the doorbell is looked at afterwards. */
    void publish(int slots) {
        tail += slots;
        // The slots' contents are visible before the cursor that covers them, and that before this thread
        // looks at the doorbells, in whatever mode.
        Mapped.putLongRelease(memory, Layout.RING_TAIL_OFFSET, tail);
        VarHandle.fullFence();
    }

    void close() {
        unmap.run();
    }
}
