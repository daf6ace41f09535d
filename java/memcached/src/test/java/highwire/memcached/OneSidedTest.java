package highwire.memcached;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import highwire.memcached.Counters.Counter;
import highwire.verbs.Context;
import java.io.IOException;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.OptionalLong;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** The Java client: it gets values without the server, and the same ones as every other client. */
class OneSidedTest {
    private static Engine engine;

    @BeforeAll
    static void start() throws IOException {
        engine = new Engine();
    }

    @AfterAll
    static void stop() throws Exception {
        if (engine != null) {
            engine.close();
        }
    }

    /** A server and a client of it, each with a context of its own. */
    private static final class Pair implements AutoCloseable {
        final Context there;
        final Context here;
        final MemcachedServer server;
        final MemcachedClient client;

        Pair(StoreOptions options) throws IOException {
            there = engine.context();
            here = engine.context();
            server = MemcachedServer.open(Engine.ANY, options, there);
            client = MemcachedClient.connect(here, server.address(), Engine.PATIENCE);
        }

        @Override
        public void close() throws IOException {
            client.close();
            server.close();
            here.close();
            there.close();
        }
    }

    private static byte[] text(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    @Test
    void whatIsSetIsReadUntilItIsDeleted() throws Exception {
        try (Pair pair = new Pair(StoreOptions.DEFAULT)) {
            MemcachedClient client = pair.client;
            assertNull(client.get("k"));
            client.set("k", 7, 0, text("first"));
            Value first = client.get("k");
            assertEquals("first 7", new String(first.bytes(), StandardCharsets.UTF_8) + " " + first.flags());
            assertFalse(client.add("k", 0, 0, text("other")));
            assertTrue(client.replace("k", 1, 0, text("second")));
            assertTrue(client.append("k", text("!")));
            assertTrue(client.prepend("k", text("<")));
            assertArrayEquals(text("<second!"), client.get("k").bytes());
            assertFalse(client.cas("k", 0, 0, text("third"), first.cas()));
            assertTrue(client.cas("k", 0, 0, text("third"), client.get("k").cas()));
            assertArrayEquals(text("third"), client.get("k").bytes());
            assertTrue(client.delete("k"));
            assertNull(client.get("k"));
            assertFalse(client.delete("k"));
            assertFalse(client.cas("k", 0, 0, text("fourth"), first.cas()));
            client.set("n", 0, 0, text("41"));
            assertEquals(OptionalLong.of(42), client.increment("n", 1));
            assertArrayEquals(text("42"), client.get("n").bytes());
            assertEquals(OptionalLong.of(0), client.decrement("n", 50));
            assertEquals(OptionalLong.empty(), client.increment("nobody", 1));
            long cas = client.get("n").cas();
            assertTrue(client.touch("n", 1000));
            assertEquals(cas, client.get("n").cas());
            assertTrue(client.touch("n", -1));
            assertNull(client.get("n"));
            assertThrows(IllegalArgumentException.class, () -> client.get("a b"));
            assertThrows(IllegalArgumentException.class, () -> client.set("x".repeat(251), 0, 0, text("")));
            assertEquals(0, client.asked());
        }
    }

    @Test
    void valuesOfEveryLengthComeWhole() throws Exception {
        try (Pair pair = new Pair(StoreOptions.DEFAULT)) {
            for (int length : new int[] {0, 1, 7, 8, 9, 63, 64, 65, 1000, 16_000, 16_350, 20_000, 300_000, (1 << 20) - 100}) {
                byte[] value = new byte[length];
                Arrays.fill(value, (byte) length);
                pair.client.set("k" + length, length, 0, value);
                assertArrayEquals(value, pair.client.get("k" + length).bytes(), "length " + length);
            }
            assertThrows(MemcachedException.class, () -> pair.client.set("k", 0, 0, new byte[1 << 20]));
            assertEquals(0, pair.client.asked());
        }
    }

    @Test
    void multiGetFindsWhatIsThereAndWhatHasNoEntryInTheIndex() throws Exception {
        // 32 buckets of 7 entries hold fewer keys than the records' memory does.
        try (Pair pair = new Pair(new StoreOptions(1 << 16, 1 << 12, 0))) {
            byte[][] keys = new byte[400][];
            for (int i = 0; i < keys.length; i++) {
                keys[i] = text("key" + i);
                if (i % 2 == 0) {
                    pair.client.set("key" + i, i, 0, text("value" + i));
                }
            }
            Value[] values = pair.client.multiGet(keys);
            for (int i = 0; i < keys.length; i++) {
                if (i % 2 == 0) {
                    assertArrayEquals(text("value" + i), values[i].bytes(), "key " + i);
                } else {
                    assertNull(values[i], "key " + i);
                }
            }
            assertTrue(pair.client.asked() > 0, "buckets overflow");
            pair.client.flushAll(0);
            assertTrue(Arrays.stream(pair.client.multiGet(keys)).allMatch(value -> value == null));
            long asked = pair.client.asked();
            assertNull(pair.client.get(keys[0]));
            assertEquals(asked, pair.client.asked(), "an empty index sends nobody to the server");
        }
    }

    @Test
    void whatOneProtocolStoresTheOthersFind() throws Exception {
        try (Pair pair = new Pair(StoreOptions.DEFAULT); Socket socket = new Socket()) {
            socket.connect(pair.server.address());
            socket.getOutputStream().write(text("set k 5 0 5\r\nhello\r\n"));
            assertEquals("STORED\r\n", new String(socket.getInputStream().readNBytes(8), StandardCharsets.UTF_8));
            assertArrayEquals(text("hello"), pair.client.get("k").bytes());
            pair.client.set("k", 0, 0, text("there"));
            socket.getOutputStream().write(text("get k\r\n"));
            String expected = "VALUE k 0 5\r\nthere\r\nEND\r\n";
            assertEquals(expected, new String(socket.getInputStream().readNBytes(expected.length()), StandardCharsets.UTF_8));
        }
    }

    @Test
    void aGetCostsTheServerNothing() throws Exception {
        int gets = 200_000;
        try (Pair pair = new Pair(StoreOptions.DEFAULT)) {
            pair.client.set("k", 0, 0, new byte[32]);
            assertNotNull(pair.client.get("k"));
            Store store = pair.server.store;
            long asked = store.counters.get(Counter.cmd_get) + store.counters.get(Counter.rpc_calls);
            long heard = store.counters.get(Counter.bytes_read);
            long reads = pair.client.reads();
            long before = serverNanos();
            for (int i = 0; i < gets; i++) {
                assertNotNull(pair.client.get("k"));
            }
            long spent = serverNanos() - before;
            assertEquals(gets, pair.client.reads() - reads, "one READ each");
            assertEquals(asked, store.counters.get(Counter.cmd_get) + store.counters.get(Counter.rpc_calls));
            assertEquals(heard, store.counters.get(Counter.bytes_read));
            // Its threads check twenty times a second whether their peers live; a thread that answers a
            // request spends microseconds on it.
            assertTrue(spent / gets < 500, spent / gets + " ns of the server's threads per GET");
            before = serverNanos();
            for (int i = 0; i < 1000; i++) {
                pair.client.touch("k", 0);
            }
            long perCall = (serverNanos() - before) / 1000;
            assertTrue(perCall > 500, "the clocks tell: " + perCall + " ns of the server's threads per call");
        }
    }

    /** Time that the server's threads have spent on processors, as the kernel counts it. */
    private static long serverNanos() throws IOException {
        long nanos = 0;
        try (DirectoryStream<Path> threads = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            for (Path thread : threads) {
                String name = Files.readString(thread.resolve("comm"));
                // The kernel keeps fifteen letters of a name.
                if (name.startsWith("highwire-memcac") || name.startsWith("highwire-rpc-")) {
                    nanos += Long.parseLong(Files.readString(thread.resolve("schedstat")).split(" ")[0]);
                }
            }
        }
        assertTrue(nanos > 0, "threads of the server");
        return nanos;
    }

    @Test
    void whoeverGoesAndWhoeverStaysIsNoticed() throws Exception {
        try (Context there = engine.context(); Context here = engine.context()) {
            MemcachedServer server = MemcachedServer.open(Engine.ANY, StoreOptions.DEFAULT, there);
            try (MemcachedClient stays = MemcachedClient.connect(here, server.address(), Engine.PATIENCE)) {
                MemcachedClient.connect(here, server.address(), Engine.PATIENCE).close();
                long deadline = System.nanoTime() + Engine.PATIENCE.toNanos();
                while (server.store.counters.get(Counter.rdma_readers) > 1) {
                    assertTrue(System.nanoTime() < deadline, "the queue pair of a client that has gone");
                    Thread.yield();
                }
                stays.set("k", 0, 0, text("v"));
                assertNotNull(stays.get("k"));
                server.close();
                assertThrows(MemcachedException.class, () -> stays.get("k"));
                assertThrows(MemcachedException.class, () -> stays.get("k"));
                assertThrows(IOException.class, () -> stays.set("k", 0, 0, text("v")));
            }
        }
    }

    @Test
    void aServerWithoutAnEngineSaysSo() throws Exception {
        try (Context here = engine.context(); MemcachedServer server = MemcachedServer.open(Engine.ANY, StoreOptions.DEFAULT)) {
            MemcachedException thrown = assertThrows(
                    MemcachedException.class, () -> MemcachedClient.connect(here, server.address(), Engine.PATIENCE));
            assertTrue(thrown.getMessage().contains("has no engine"), thrown.getMessage());
        }
    }
}
