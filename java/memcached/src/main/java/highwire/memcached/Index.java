package highwire.memcached;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;

/**
 * The published index: buckets of 64 bytes, which a reader fetches with one READ.
 *
 * <pre>
 *  entry  ×7   tag 12 bits │ record's length 15 bits, in 64 bytes │ record's place 37 bits, in 64 bytes; 0: none
 *  missing u64 how many keys of this bucket found no entry: readers ask the server for them
 * </pre>
 *
 * <p>An entry is one word, and a new record of a key takes the entry of the old one, so that no reader misses a key that is there all the time.
 */
final class Index {
    static final int BUCKET_BYTES = 64;
    static final int ENTRIES = 7;
    static final int UNIT = 64;
    static final int MISSING = 8 * ENTRIES;
    private static final int PLACE_BITS = 37;
    private static final int LENGTH_BITS = 15;
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

    private final MemorySegment memory;
    private final long start;
    private final int bits;

    Index(MemorySegment memory, long start, int bits) {
        this.memory = memory;
        this.start = start;
        this.bits = bits;
        memory.asSlice(start, (long) BUCKET_BYTES << bits).fill((byte) 0);
    }

    /** The place of a key's bucket, counted from the first one. */
    static long bucket(long hash, int bits) {
        return (bits == 0 ? 0 : hash >>> 64 - bits) * BUCKET_BYTES;
    }

    static boolean hasTag(long entry, long hash) {
        return entry != 0 && entry >>> LENGTH_BITS + PLACE_BITS == (hash & 0xFFF);
    }

    static boolean isSameTag(long hash, long other) {
        return (hash & 0xFFF) == (other & 0xFFF);
    }

    static long place(long entry) {
        return (entry & (1L << PLACE_BITS) - 1) * UNIT;
    }

    static long length(long entry) {
        return (entry >>> PLACE_BITS & (1L << LENGTH_BITS) - 1) * UNIT;
    }

    private static long entry(long hash, long place, long bytes) {
        return (hash & 0xFFF) << LENGTH_BITS + PLACE_BITS | (bytes + UNIT - 1) / UNIT << PLACE_BITS | place / UNIT;
    }

    /**
     * Publishes an item's record, in the entry of its last one. An item that found no entry stays without:
     * were it to get one later, a reader could look at its entry before and at the count afterwards.
     */
    void publish(Item item, long bytes, boolean isNew) {
        long at = start + bucket(item.hash, bits);
        for (int slot = 0; isNew && slot < ENTRIES && item.slot < 0; slot++) {
            if ((long) LONG.get(memory, at + 8L * slot) == 0) {
                item.slot = slot;
            }
        }
        if (item.slot >= 0) {
            // Release: the record is whole before a reader is sent there.
            LONG.setRelease(memory, at + 8L * item.slot, entry(item.hash, item.at, bytes));
        } else if (isNew) {
            missing(at, 1);
        }
    }

    /** The item has gone. */
    void withdraw(Item item) {
        long at = start + bucket(item.hash, bits);
        if (item.slot >= 0) {
            LONG.setRelease(memory, at + 8L * item.slot, 0L);
            item.slot = -1;
        } else {
            missing(at, -1);
        }
    }

    private void missing(long at, long change) {
        LONG.setRelease(memory, at + MISSING, (long) LONG.get(memory, at + MISSING) + change);
    }
}
