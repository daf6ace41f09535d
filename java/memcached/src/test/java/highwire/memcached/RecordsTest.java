package highwire.memcached;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** What readers may believe of the server's memory, looked at from beside the server. */
class RecordsTest {
    private static final byte[] KEY = "a key".getBytes();
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

    private static MemorySegment record(byte[] value, long version) {
        MemorySegment memory = Arena.ofAuto().allocate(512, 8);
        Item item = new Item(KEY);
        item.flags = 7;
        item.cas = 8;
        Record.write(memory, 0, version, item, value);
        return memory;
    }

    @Test
    void aRecordWithAnyOtherByteIsNotBelieved() {
        byte[] value = "the value of it".getBytes();
        long bytes = Record.bytes(KEY.length, value.length);
        MemorySegment whole = record(value, 0x1234_5678_9ABC_DEF1L);
        assertEquals(Record.Verdict.GOOD, Record.judge(whole, 0, bytes, 0, KEY));
        long padding = Record.KEY + KEY.length + value.length;
        for (long at = 0; at < bytes; at++) {
            MemorySegment changed = record(value, 0x1234_5678_9ABC_DEF1L);
            changed.set(ValueLayout.JAVA_BYTE, at, (byte) (changed.get(ValueLayout.JAVA_BYTE, at) ^ 0x10));
            if (at < padding || at >= bytes - Record.TAIL_BYTES) {
                assertEquals(Record.Verdict.TORN, Record.judge(changed, 0, bytes, 0, KEY), "byte " + at);
            }
        }
        // The beginning of one record and the end of the next one in the same chunk, which differ in their versions alone.
        MemorySegment mixed = record(value, 0x1234_5678_9ABC_DEF1L);
        mixed.set(ValueLayout.JAVA_LONG, bytes - Record.TAIL_BYTES, 0x1234_5678_9ABC_DEF3L);
        assertEquals(Record.Verdict.TORN, Record.judge(mixed, 0, bytes, 0, KEY));
        assertEquals(Record.Verdict.TORN, Record.judge(whole, 0, bytes - 8, 0, KEY), "a part of it");
        assertEquals(Record.Verdict.OTHER_KEY, Record.judge(whole, 0, bytes, 0, "other".getBytes()));
        Record.clear(whole, 0);
        assertEquals(Record.Verdict.GONE, Record.judge(whole, 0, bytes, 0, KEY));
    }

    /** A store, its memory, and the one entry that it publishes. */
    private static final class Observed {
        final StoreOptions options = new StoreOptions(8 << 20, 1024, 10);
        final MemorySegment memory = Arena.ofAuto().allocate(options.bytes(), 64);
        final AtomicLong clock = new AtomicLong(1_000_000);
        final Store store = new Store(options, memory, clock::get);

        void set(byte[] value) {
            assertEquals(Store.Outcome.STORED, store.store(Store.Mode.SET, KEY, 0, 0, value, 0).outcome());
        }

        long entry() {
            long bucket = Index.bucket(Record.hash(KEY), options.bucketBits());
            return (long) LONG.getAcquire(memory, bucket);
        }
    }

    /** A chunk that was given back is not used again before its rest is over, as long as there is other memory; then it is. */
    @Test
    void aChunkRestsWhileThereIsAnother() {
        Observed observed = new Observed();
        Set<Long> places = new HashSet<>();
        int count = 12_000;
        for (int i = 0; i < count; i++) {
            observed.set(new byte[100]);
            assertTrue(places.add(Index.place(observed.entry())), "a chunk was used again without a rest, after " + i);
        }
        observed.clock.addAndGet(observed.options.restMillis());
        for (int i = 0; i < count; i++) {
            observed.set(new byte[100]);
            places.add(Index.place(observed.entry()));
        }
        assertTrue(places.size() < 2 * count, "chunks whose rest is over are used again");
    }

    /** A reader that finds an ended record finds another entry as well: the new record is published before the old one ends. */
    @Test
    void aRecordEndsAfterTheNextOneIsPublished() throws Exception {
        Observed observed = new Observed();
        observed.set(new byte[8]);
        AtomicReference<String> wrong = new AtomicReference<>();
        AtomicLong looks = new AtomicLong();
        AtomicLong sets = new AtomicLong();
        Thread reader = Thread.ofPlatform().start(() -> {
            while (!Thread.currentThread().isInterrupted() && wrong.get() == null) {
                long before = sets.get();
                long entry = observed.entry();
                boolean hasEnded = Record.version(observed.memory, Index.place(entry)) == 0 && observed.entry() == entry;
                // After its rest the chunk may hold the next record, and end again.
                if (hasEnded && sets.get() - before < observed.options.restMillis() - 2) {
                    wrong.set("the entry leads to a record that has ended");
                }
                looks.incrementAndGet();
            }
        });
        long before = looks.get();
        for (int i = 0; wrong.get() == null && (i < 200_000 || looks.get() < before + 200_000); i++) {
            sets.incrementAndGet();
            observed.set(new byte[8]);
            observed.clock.incrementAndGet();
        }
        reader.interrupt();
        reader.join();
        assertNull(wrong.get());
        assertNotEquals(0, Record.version(observed.memory, Index.place(observed.entry())));
    }
}
