package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.util.concurrent.atomic.AtomicLong;
import org.junit.jupiter.api.Test;

/** Entries of the engine's tables, read while the engine writes. */
class TablesTest {
    private static final int QPN = 77;
    private static final int READS = 300_000;
    private final MemorySegment memory =
            MemorySegment.ofArray(new long[(int) (Layout.ENGINE_LANE_TABLE_OFFSET + 2 * Layout.ENTRY_BYTES) / 8]);
    private final long at = Layout.ENGINE_LANE_TABLE_OFFSET;

    private EngineTables tables() throws Exception {
        Mapped.putLong(memory, 0, Layout.ENGINE_MAGIC);
        Mapped.putInt(memory, Layout.ENGINE_VERSION_OFFSET, Layout.ENGINE_VERSION);
        Mapped.putInt(memory, Layout.ENGINE_QP_SLOTS_OFFSET, 1);
        Mapped.putInt(memory, Layout.ENGINE_MR_SLOTS_OFFSET, 1);
        Mapped.putLong(memory, at + 8, QPN | (long) Layout.ENTRY_LIVE << 32);
        return new EngineTables(memory);
    }

    private void fill(long value) {
        for (int word = 0; word < 6; word++) {
            Mapped.putLongOpaque(memory, at + 16 + 8L * word, value);
        }
    }

    /** As the engine changes an entry: an odd number, the words, the next even one. */
    private void change(long number) {
        Mapped.putLongOpaque(memory, at, 2 * number - 1);
        VarHandle.releaseFence();
        fill(number);
        Mapped.putLongRelease(memory, at, 2 * number);
    }

    @Test
    void anEntryThatChangesIsReadAsOneOrNotAtAll() throws Exception {
        EngineTables tables = tables();
        AtomicLong changes = new AtomicLong();
        Thread engine = Thread.ofPlatform().start(() -> {
            for (long number = 1; !Thread.currentThread().isInterrupted(); number++) {
                change(number);
                changes.set(number);
                if (number % 64 == 0) {
                    Thread.onSpinWait();
                }
            }
        });
        EngineTables.Entry entry = new EngineTables.Entry();
        try {
            for (int read = 0, found = 0; found < READS || changes.get() < READS; read++) {
                if (tables.findQueuePair(entry, QPN)) {
                    found++;
                    for (long word : entry.words) {
                        assertEquals(entry.words[0], word, "words of two entries");
                    }
                    assertEquals(2 * entry.words[0], entry.sequence, "the number that goes with the words");
                }
            }
        } finally {
            engine.interrupt();
            engine.join();
        }
    }

    @Test
    void anEntryThatIsBeingWrittenIsNone() throws Exception {
        EngineTables tables = tables();
        EngineTables.Entry entry = new EngineTables.Entry();
        change(3);
        assertTrue(tables.findQueuePair(entry, QPN));
        assertTrue(tables.isCurrent(entry, QPN));
        Mapped.putLongRelease(memory, at, 7);
        assertFalse(tables.isCurrent(entry, QPN));
        assertFalse(tables.findQueuePair(entry, QPN));
    }
}
