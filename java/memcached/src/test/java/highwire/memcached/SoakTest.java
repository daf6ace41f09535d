package highwire.memcached;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import highwire.memcached.Counters.Counter;
import highwire.memcached.Store.Mode;
import highwire.memcached.Store.Outcome;
import highwire.verbs.Context;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/**
 * SETs, deletes, expiry and evictions under GETs. Every value says of which key it is, which one of its values, and until when, and the rest follows from that; for every key it is known
 * which change was acknowledged before a GET began.
 */
class SoakTest {
    private static final int KEYS = 420;
    private static final int HOT = 3;
    private static Engine engine;

    @BeforeAll
    static void start() throws Exception {
        engine = new Engine();
    }

    @AfterAll
    static void stop() throws Exception {
        if (engine != null) {
            engine.close();
        }
    }

    /** One soak: a store too small for its keys, threads that change it, threads that read it. */
    private static final class Soak implements AutoCloseable {
        final Context there = engine.context();
        final Context here = engine.context();
        final MemcachedServer server = MemcachedServer.open(Engine.ANY, new StoreOptions(1 << 17, 1 << 12, 0), there);
        final AtomicBoolean isOver = new AtomicBoolean();
        final AtomicReference<String> wrong = new AtomicReference<>();
        final AtomicLong found = new AtomicLong();
        final AtomicLong missed = new AtomicLong();
        final AtomicLong retries = new AtomicLong();
        final AtomicLong changesByCall = new AtomicLong();
        /** For each key, the value that a GET which begins now must at least see, if it sees any. */
        final AtomicLongArray floors = new AtomicLongArray(KEYS);
        boolean verifies = true;

        Soak() throws Exception {}

        static byte[] key(int number) {
            return ("soak-" + number).getBytes();
        }

        static byte[] value(int key, long sequence, long until, int length) {
            ByteBuffer value = ByteBuffer.allocate(20 + length).putInt(key).putLong(sequence).putLong(until);
            for (int i = 0; i < length; i++) {
                value.put((byte) (sequence * 31 + key + i));
            }
            return value.array();
        }

        private String judge(int key, long floor, long begun, Value found) {
            ByteBuffer value = ByteBuffer.wrap(found.bytes());
            if (value.remaining() < 20 || value.getInt() != key) {
                return "another key's value, or none";
            }
            long sequence = value.getLong();
            long until = value.getLong();
            for (int i = 0; value.hasRemaining(); i++) {
                if (value.get() != (byte) (sequence * 31 + key + i)) {
                    return "parts of two values";
                }
            }
            if (found.flags() != (int) sequence) {
                return "another value's flags";
            }
            if (sequence < floor) {
                return "value " + sequence + ", after change " + floor + " was acknowledged";
            }
            return until != 0 && until <= begun ? "a value that had expired" : null;
        }

        /** Reads until the soak ends, or a value is wrong. */
        void read(int seed) {
            SplittableRandom random = new SplittableRandom(seed);
            try (MemcachedClient client = MemcachedClient.connect(here, server.address(), Engine.PATIENCE)) {
                client.lookups.verifies = verifies;
                while (!isOver.get()) {
                    int count = random.nextInt(4) == 0 ? 8 : 1;
                    int[] numbers = random.ints(count, 0, KEYS).map(key -> random.nextBoolean() ? key % HOT : key).toArray();
                    byte[][] keys = new byte[count][];
                    long[] before = new long[count];
                    for (int i = 0; i < count; i++) {
                        keys[i] = key(numbers[i]);
                        before[i] = floors.get(numbers[i]);
                    }
                    long begun = System.currentTimeMillis();
                    Value[] values = client.multiGet(keys);
                    for (int i = 0; i < count; i++) {
                        (values[i] == null ? missed : found).incrementAndGet();
                        String verdict = values[i] == null ? null : judge(numbers[i], before[i], begun, values[i]);
                        if (verdict != null) {
                            wrong.compareAndSet(null, "key " + numbers[i] + ": " + verdict);
                        }
                    }
                    retries.set(Math.max(retries.get(), client.retries()));
                }
            } catch (Throwable e) {
                wrong.compareAndSet(null, "a reader ended: " + e);
            }
        }

        /** Changes keys, each of which belongs to one thread: in the server itself, or through a client. */
        void change(int part, int parts, MemcachedClient client) {
            SplittableRandom random = new SplittableRandom(part);
            try {
                for (long sequence = 1; !isOver.get(); sequence++) {
                    int key = random.nextBoolean() ? part : random.nextInt(KEYS / parts) * parts + part;
                    boolean deletes = random.nextInt(16) == 0;
                    boolean expires = random.nextInt(8) == 0;
                    // The server times a client's changes, in seconds.
                    long until = expires && client == null ? System.currentTimeMillis() + random.nextInt(20) : 0;
                    byte[] value = value(key, sequence, until, random.nextInt(600));
                    if (client == null) {
                        if (deletes) {
                            server.store.delete(key(key), null);
                        } else {
                            Outcome outcome = server.store.store(Mode.SET, key(key), (int) sequence, until, value, 0).outcome();
                            assertEquals(Outcome.STORED, outcome);
                        }
                    } else if (deletes) {
                        client.delete("soak-" + key);
                    } else {
                        client.set("soak-" + key, (int) sequence, expires ? 1 : 0, value);
                    }
                    if (client != null) {
                        changesByCall.incrementAndGet();
                    }
                    floors.set(key, deletes ? sequence + 1 : sequence);
                    if (sequence % 64 == 0) {
                        // Readers should find some values, too.
                        Thread.sleep(0, 200_000);
                    }
                }
            } catch (Throwable e) {
                wrong.compareAndSet(null, "a writer ended: " + e);
            }
        }

        /** Runs until enough was seen, a value is wrong, or patience ends. */
        void run(BooleanSupplier isEnough) throws Exception {
            try (MemcachedClient changer = MemcachedClient.connect(here, server.address(), Engine.PATIENCE)) {
                Thread[] threads = {
                    Thread.ofPlatform().start(() -> change(0, 3, null)),
                    Thread.ofPlatform().start(() -> change(1, 3, null)),
                    Thread.ofPlatform().start(() -> change(2, 3, changer)),
                    Thread.ofPlatform().start(() -> read(7)),
                    Thread.ofPlatform().start(() -> read(8)),
                };
                long deadline = System.nanoTime() + Engine.PATIENCE.toNanos();
                while (wrong.get() == null && !isEnough.getAsBoolean() && System.nanoTime() < deadline) {
                    Thread.sleep(20);
                }
                isOver.set(true);
                for (Thread thread : threads) {
                    thread.join();
                }
            }
        }

        @Override
        public void close() throws IOException {
            server.close();
            here.close();
            there.close();
        }
    }

    @Test
    void noGetFindsATornOrAWrongValue() throws Exception {
        try (Soak soak = new Soak()) {
            Counters counters = soak.server.store.counters;
            soak.run(() -> soak.found.get() > 200_000 && soak.retries.get() > 20 && soak.changesByCall.get() > 100
                    && counters.get(Counter.evictions) > 1000);
            assertNull(soak.wrong.get());
            assertTrue(soak.found.get() > 1000 && soak.missed.get() > 100, soak.found + " found, " + soak.missed + " missed");
            assertTrue(soak.retries.get() > 0, "a GET met a SET");
            assertTrue(soak.changesByCall.get() > 0, "a client changed something");
            assertTrue(counters.get(Counter.evictions) > 0 && counters.get(Counter.reclaimed) > 0
                    && counters.get(Counter.chunks_reused_early) > 0, "evictions, expiry and reuse");
        }
    }

    @Test
    void aReaderThatDoesNotVerifyWhatItReadIsFoundOut() throws Exception {
        try (Soak soak = new Soak()) {
            soak.verifies = false;
            soak.run(() -> false);
            assertTrue(soak.wrong.get() != null, "nothing wrong was seen in " + soak.found + " values");
        }
    }

    @Test
    void aServerThatDoesNotEndOldRecordsIsFoundOut() throws Exception {
        try (Soak soak = new Soak()) {
            soak.server.store.shelf.clearsVersions = false;
            soak.run(() -> false);
            assertTrue(soak.wrong.get() != null, "nothing wrong was seen in " + soak.found + " values");
        }
    }
}
