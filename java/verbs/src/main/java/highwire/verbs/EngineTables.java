package highwire.verbs;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;

/**
 * The tables in which the engine publishes queue pairs and regions. Entries are read without a lock: an even number before and after, the same
 * both times, means that the engine did not write meanwhile. Since the number only grows, an entry whose number is still the same is still the same.
 *
 * <pre>
 *  an entry:  0 sequence u64 │ 8 key u32, state u32 │ six words u64
 *    queue pair   PD, access │ peer's QPN, ready │ peer's GID (two words) │ receive ring, completion ring │ …
 *    region       PD, access │ address │ length │ segment, queue pair to which it is bound │ offset │ bytes missing before, behind
 * </pre>
 */
final class EngineTables {
    private static final int READ_ATTEMPTS = 64;

    final MemorySegment memory;
    private final long queuePairs;
    private final int queuePairSlots;
    private final long regions;
    private final int regionSlots;

    /** An entry as it was read, and when. */
    static final class Entry {
        int key;
        long at = -1;
        long sequence = -1;
        final long[] words = new long[6];

        int low(int word) {
            return (int) words[word];
        }

        int high(int word) {
            return (int) (words[word] >>> 32);
        }
    }

    EngineTables(MemorySegment memory) throws IOException {
        if (memory.byteSize() < Layout.ENGINE_LANE_TABLE_OFFSET
                || Mapped.getLongAcquire(memory, 0) != Layout.ENGINE_MAGIC
                || Mapped.getInt(memory, Layout.ENGINE_VERSION_OFFSET) != Layout.ENGINE_VERSION) {
            throw new VersionException("the engine's tables are not of a version that this library knows");
        }
        long lanes = Mapped.getInt(memory, Layout.ENGINE_LANES_OFFSET);
        long channels = Mapped.getInt(memory, Layout.ENGINE_CHANNELS_OFFSET);
        this.memory = memory;
        this.queuePairSlots = Mapped.getInt(memory, Layout.ENGINE_QP_SLOTS_OFFSET);
        this.regionSlots = Mapped.getInt(memory, Layout.ENGINE_MR_SLOTS_OFFSET);
        this.queuePairs = Layout.ENGINE_LANE_TABLE_OFFSET
                + lanes * Layout.ENGINE_LANE_BYTES
                + channels * Layout.ENGINE_CHANNEL_BYTES;
        this.regions = queuePairs + queuePairSlots * Layout.ENTRY_BYTES;
        if (Integer.bitCount(queuePairSlots) != 1
                || Integer.bitCount(regionSlots) != 1
                || regions + regionSlots * Layout.ENTRY_BYTES > memory.byteSize()) {
            throw new IOException("the engine's segment contradicts itself");
        }
    }

    /** Whether the engine's entry is still the same. */
    boolean isCurrent(Entry entry, int key) {
        return entry.key == key && entry.at >= 0 && Mapped.getLongAcquire(memory, entry.at) == entry.sequence;
    }

    /** Reads a queue pair's entry; false if there is none. */
    boolean findQueuePair(Entry entry, int qpn) {
        return find(entry, queuePairs, queuePairSlots, qpn);
    }

    /** Reads a region's entry; false if there is none. */
    boolean findRegion(Entry entry, int rkey) {
        return find(entry, regions, regionSlots, rkey);
    }

    private boolean find(Entry entry, long table, int slots, int key) {
        entry.at = -1;
        long wanted = Integer.toUnsignedLong(key) | (long) Layout.ENTRY_LIVE << 32;
        int home = (int) (Integer.toUnsignedLong(key * Layout.ENTRY_HASH) * slots >>> 32);
        for (int probe = 0; probe < Math.min(Layout.ENTRY_PROBES, slots); probe++) {
            long at = table + (home + probe & slots - 1) * Layout.ENTRY_BYTES;
            long found = Mapped.getLongOpaque(memory, at + 8);
            if (found == wanted) {
                return read(entry, at, key, wanted);
            }
            if (found >>> 32 == 0) {
                return false;
            }
        }
        return false;
    }

    private boolean read(Entry entry, long at, int key, long wanted) {
        for (int attempt = 0; attempt < READ_ATTEMPTS; attempt++) {
            long before = Mapped.getLongAcquire(memory, at);
            long found = Mapped.getLongOpaque(memory, at + 8);
            for (int word = 0; word < entry.words.length; word++) {
                entry.words[word] = Mapped.getLongOpaque(memory, at + 16 + 8L * word);
            }
            // The loads above stay above: pairs with the engine's Release fence and store.
            VarHandle.acquireFence();
            if ((before & 1) == 0 && Mapped.getLongOpaque(memory, at) == before) {
                if (found != wanted) {
                    return false;
                }
                entry.key = key;
                entry.sequence = before;
                entry.at = at;
                return true;
            }
            Thread.onSpinWait();
        }
        return false;
    }
}
