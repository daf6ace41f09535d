package highwire.memcached;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import highwire.memcached.Counters.Counter;
import highwire.memcached.Store.Mode;
import highwire.memcached.Store.Outcome;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.SplittableRandom;
import org.junit.jupiter.api.Test;

/** Memory goes where it is needed, and no value is lost or mixed up on the way. */
class MemoryTest {
    private static final StoreOptions SMALL = new StoreOptions(4 << 20, 1 << 16, 0);

    private long now = 1_700_000_000_000L;
    private final MemorySegment memory = Arena.ofAuto().allocate(SMALL.bytes(), 64);
    private final Store store = new Store(SMALL, memory, () -> now);

    private static byte[] key(int number) {
        return Session.bytes("key" + number);
    }

    private static byte[] value(int length, int seed) {
        byte[] value = new byte[length];
        Arrays.fill(value, (byte) seed);
        return value;
    }

    private Outcome set(int number, int length) {
        return store.store(Mode.SET, key(number), 0, 0, value(length, number), 0).outcome();
    }

    private void fill(int length) {
        long before = store.counters.get(Counter.evictions);
        for (int i = 0; store.counters.get(Counter.evictions) == before; i++) {
            assertEquals(Outcome.STORED, set(i, length));
        }
    }

    @Test
    void aCacheThatIsFullOfOneSizeTakesEveryOther() {
        fill(100);
        for (int length = 60_000; length > 0; length = length * 3 / 4) {
            assertEquals(Outcome.STORED, set(1_000_000 + length, length), length + " bytes");
            assertArrayEquals(value(length, 1_000_000 + length), store.value(store.get(key(1_000_000 + length))));
        }
        fill(60_000);
        for (int length = 1; length < 60_000; length = length * 3 / 2 + 1) {
            assertEquals(Outcome.STORED, set(2_000_000 + length, length), length + " bytes");
        }
    }

    @Test
    void aShorterValueNeverCostsTheKey() {
        fill(60_000);
        Item last = store.get(key(3));
        assertNotNull(last);
        for (int length = 50_000; length >= 0; length = length * 2 / 3 - 1) {
            assertEquals(Outcome.STORED, set(3, length));
            assertArrayEquals(value(length, 3), store.value(store.get(key(3))));
        }
    }

    @Test
    void afterAFlushAllMemoryIsForAnySizeAgainAndNothingIsEvicted() {
        fill(100);
        store.flush(now);
        long evictions = store.counters.get(Counter.evictions);
        for (int i = 0; i < 45; i++) {
            assertEquals(Outcome.STORED, set(i, 60_000));
        }
        assertEquals(evictions, store.counters.get(Counter.evictions));
        for (int i = 0; i < 45; i++) {
            assertArrayEquals(value(60_000, i), store.value(store.get(key(i))));
        }
    }

    @Test
    void sparePagesGoToThePoolWithoutLosingAnItem() {
        fill(1000);
        List<Integer> kept = new ArrayList<>();
        for (int i = 1; store.peek(key(i)) != null; i++) {
            if (i % 4 == 0) {
                kept.add(i);
            } else {
                store.delete(key(i), null);
            }
        }
        long evictions = store.counters.get(Counter.evictions);
        for (int i = 0; i < 20; i++) {
            store.sweep();
        }
        assertTrue(figure("slab_global_page_pool") > 30, "pages in the pool: " + figure("slab_global_page_pool"));
        assertTrue(store.counters.get(Counter.slab_reassign_rescues) > 0);
        assertEquals(evictions, store.counters.get(Counter.evictions));
        for (int i : kept) {
            assertArrayEquals(value(1000, i), store.value(store.get(key(i))));
        }
    }

    private long figure(String name) {
        Map<String, Long> figures = new HashMap<>();
        store.stats((figure, value) -> figures.put(figure, ((Number) value).longValue()));
        return figures.get(name);
    }

    @Test
    void aFreshClassGetsMemoryOfAStaleOne() {
        fill(1000);
        now += 3_600_000;
        for (int i = 0; i < 2000; i++) {
            now += 10;
            assertEquals(Outcome.STORED, set(1_000_000 + i % 30, 60_000));
        }
        for (int i = 0; i < 30; i++) {
            assertNotNull(store.get(key(1_000_000 + i)), "the working set fits");
        }
    }

    @Test
    void whateverIsDoneTheStoreHasWhatAModelHasUnlessItWasEvicted() {
        SplittableRandom random = new SplittableRandom(7);
        Map<Integer, byte[]> model = new HashMap<>();
        for (int round = 0; round < 60_000; round++) {
            int number = random.nextInt(3000);
            int length = 1 << random.nextInt(16);
            switch (random.nextInt(8)) {
                case 0 -> {
                    store.delete(key(number), null);
                    model.remove(number);
                }
                case 1 -> {
                    Item item = store.get(key(number));
                    byte[] expected = model.get(number);
                    if (item != null) {
                        assertNotNull(expected, "a value that was deleted");
                        assertArrayEquals(expected, store.value(item));
                    }
                }
                case 2 -> store.sweep();
                case 3 -> store.reassign(random.nextInt(34) - 1, random.nextInt(34));
                default -> {
                    int seed = random.nextInt(256);
                    int size = length + random.nextInt(length) - 1;
                    byte[] value = value(Math.min(size, 65_000), seed);
                    assertEquals(Outcome.STORED, store.store(Mode.SET, key(number), 0, 0, value, 0).outcome());
                    model.put(number, value);
                }
            }
        }
        // Chunks are neither lost nor given out twice.
        Map<Long, Integer> places = new HashMap<>();
        long items = 0;
        for (int number = 0; number < 3000; number++) {
            Item item = store.peek(key(number));
            if (item != null) {
                items++;
                assertNull(places.put(item.at, number), "one chunk for one item");
                assertArrayEquals(model.get(number), store.value(item));
            }
        }
        Map<String, Long> figures = new HashMap<>();
        store.slabStats(false, (name, value) -> figures.merge(name.replaceAll("^\\d+:", ""), ((Number) value).longValue(), Long::sum));
        assertEquals(items, figures.get("used_chunks"));
        assertEquals(figures.get("total_chunks"), figures.get("used_chunks") + figures.get("free_chunks"));
        assertTrue(store.counters.get(Counter.slabs_moved) > 100);
    }

    @Test
    void theBytesOfARecordAreNoneInAnotherPlace() {
        Item item = new Item(key(1));
        item.length = 100;
        Record.write(memory, 0, 77, item, value(100, 1));
        long bytes = Record.bytes(item.key.length, 100);
        assertEquals(Record.Verdict.GOOD, Record.judge(memory, 0, bytes, 0, item.key));
        MemorySegment.copy(memory, 0, memory, 4096, bytes);
        assertEquals(Record.Verdict.TORN, Record.judge(memory, 4096, bytes, 4096, item.key));
    }

    @Test
    void aPageThatMovesBeginsWithoutARecord() {
        fill(1000);
        Item item = store.peek(key(5));
        long at = item.at;
        byte[] remembered = item.key;
        store.flush(now);
        for (int i = 0; i < 20; i++) {
            store.sweep();
        }
        assertTrue(figure("slab_global_page_pool") > 0);
        assertEquals(0, Record.version(memory, at));
        fill(60_000);
        assertTrue(Record.judge(memory, at, 1088, at, remembered) != Record.Verdict.GOOD);
    }
}
