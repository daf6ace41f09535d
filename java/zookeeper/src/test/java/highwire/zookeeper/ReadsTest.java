package highwire.zookeeper;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadInfo;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.jute.InputArchive;
import org.apache.jute.Record;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooDefs.OpCode;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.proto.ExistsRequest;
import org.apache.zookeeper.proto.ExistsResponse;
import org.apache.zookeeper.proto.RequestHeader;
import org.apache.zookeeper.server.Request;
import org.apache.zookeeper.server.RequestThrottler;
import org.apache.zookeeper.server.ZooKeeperServer;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/**
 * Reads that the server's thread answers at once, and answers that a caller takes itself: no client can tell
 * them from others by their results.
 */
@Timeout(value = 300, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class ReadsTest {
    private static final Set<Integer> READS =
            Set.of(OpCode.exists, OpCode.getData, OpCode.getACL, OpCode.getChildren, OpCode.getChildren2, OpCode.getAllChildrenNumber);
    private static final String ENFORCED = "zookeeper.enforce.auth.enabled";
    private static final String SCHEMES = "zookeeper.enforce.auth.schemes";

    /** Reads that went through ZooKeeper's own threads. */
    private final AtomicInteger queued = new AtomicInteger();
    /** An action that runs once while the next request is on its way to its answer. */
    private final AtomicReference<Runnable> meanwhile = new AtomicReference<>();
    private final List<ZooKeeper> clients = new ArrayList<>();
    private Engine engine;
    private Server server;
    private ZooKeeperServer inner;

    private final class Counting extends ZooKeeperServer {
        Counting(File data, int tickMillis) throws IOException {
            super(data, data, tickMillis);
        }

        @Override
        public void submitRequest(Request request) {
            if (READS.contains(request.type)) {
                queued.incrementAndGet();
            }
            super.submitRequest(request);
        }

        @Override
        public void incInProcess() {
            super.incInProcess();
            Runnable once = meanwhile.getAndSet(null);
            if (once != null) {
                once.run();
            }
        }
    }

    @BeforeEach
    void start() throws Exception {
        engine = Engine.start();
        server = Server.start(Server.FACTORY, (data, tickMillis) -> inner = new Counting(data, tickMillis));
    }

    @AfterEach
    void stop() throws Exception {
        for (ZooKeeper client : clients) {
            client.close();
        }
        if (server != null) {
            server.close();
        }
        engine.close();
    }

    private ZooKeeper client() throws Exception {
        ZooKeeper client = server.client(Server.QUEUE_PAIRS);
        clients.add(client);
        return client;
    }

    private static byte[] number(int value) {
        return ByteBuffer.allocate(4).putInt(value).array();
    }

    private static void readEverything(ZooKeeper client) throws Exception {
        assertNotNull(client.exists("/read", false));
        assertNull(client.exists("/none", false));
        assertArrayEquals(number(7), client.getData("/read", false, null));
        assertThrows(KeeperException.NoNodeException.class, () -> client.getData("/none", false, null));
        assertEquals(List.of("child"), client.getChildren("/read", false));
        assertEquals(List.of("child"), client.getChildren("/read", false, new Stat()));
        assertEquals(Ids.OPEN_ACL_UNSAFE, client.getACL("/read", null));
        assertEquals(1, client.getAllChildrenNumber("/read"));
    }

    @Test
    void readsAreAnsweredWithoutZooKeepersThreadsButForTheFirst() throws Exception {
        ZooKeeper writer = client();
        writer.create("/read", number(7), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        writer.create("/read/child", number(8), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        readEverything(writer);
        // On a busy machine the server may still count the write, whose answer the client has, when the first read comes.
        int first = queued.get();
        assertTrue(first <= 1, "after a write that was answered: " + first);
        readEverything(writer);
        assertEquals(first, queued.get(), "a while after a write that was answered");
        ZooKeeper reader = client();
        readEverything(reader);
        readEverything(reader);
        assertEquals(first + 1, queued.get(), "what a session asked over another connection is before the first of this one");
    }

    @Test
    void readsThatAnOperatorLimitsGoThroughZooKeepersThreads() throws Exception {
        ZooKeeper client = client();
        client.create("/read", number(7), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        assertEquals(0, queued.get());
        RequestThrottler.setMaxRequests(1000);
        try {
            assertNotNull(client.exists("/read", false));
            assertEquals(1, queued.get());
        } finally {
            RequestThrottler.setMaxRequests(0);
        }
        inner.setLargeRequestThreshold(4);
        assertNotNull(client.exists("/read", false));
        assertEquals(2, queued.get());
        inner.setLargeRequestThreshold(-1);
        assertNotNull(client.exists("/read", false));
        assertEquals(2, queued.get());
        System.setProperty(Settings.READS, "0");
        try {
            ZooKeeper other = client();
            assertNotNull(other.exists("/read", false));
            assertNotNull(other.exists("/read", false));
            assertEquals(4, queued.get());
        } finally {
            System.clearProperty(Settings.READS);
        }
    }

    @Test
    void whoHasToAuthenticateGoesThroughZooKeepersThreads() throws Exception {
        System.setProperty(ENFORCED, "true");
        System.setProperty(SCHEMES, "digest");
        try {
            server.close();
            server = Server.start(Server.FACTORY, (data, tickMillis) -> inner = new Counting(data, tickMillis));
            ZooKeeper client = client();
            client.addAuthInfo("digest", new byte[] {'a', ':', 'b'});
            assertNotNull(client.exists("/", false));
            assertNotNull(client.exists("/", false));
            assertEquals(2, queued.get());
        } finally {
            System.clearProperty(ENFORCED);
            System.clearProperty(SCHEMES);
        }
    }

    @Test
    void aReadSeesWhatItsClientHasAskedForBefore() throws Exception {
        ZooKeeper client = client();
        client.create("/order", number(-1), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        int count = 500;
        List<String> wrong = Collections.synchronizedList(new ArrayList<>());
        CountDownLatch left = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            client.setData("/order", number(i), -1, null, null);
            client.getData("/order", false, (code, path, context, data, stat) -> {
                if (code != 0 || ByteBuffer.wrap(data).getInt() != (int) context) {
                    wrong.add(context + ": " + (code == 0 ? ByteBuffer.wrap(data).getInt() : "error " + code));
                }
                left.countDown();
            }, i);
        }
        assertTrue(left.await(Server.PATIENCE_SECONDS, TimeUnit.SECONDS));
        assertEquals(List.of(), wrong, "what was read is what was written just before");
    }

    /** Reads until the watched node has another version, and then says whether the event had come. Each read begins when the one before is answered. */
    private static void readUntilChanged(ZooKeeper client, int version, AtomicInteger events, AtomicReference<Integer> found) {
        client.getData("/watched", false, (code, path, context, data, stat) -> {
            if (code != 0) {
                found.set(-1);
            } else if (stat.getVersion() == version) {
                readUntilChanged(client, version, events, found);
            } else {
                found.set(events.get());
            }
        }, null);
    }

    @Test
    void anEventComesBeforeWhatItIsAbout() throws Exception {
        ZooKeeper watcher = client();
        ZooKeeper writer = client();
        writer.create("/watched", number(0), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        for (int version = 0; version < 100; version++) {
            AtomicInteger events = new AtomicInteger();
            AtomicReference<Integer> found = new AtomicReference<>();
            watcher.getData("/watched", event -> {
                if (event.getType() == EventType.NodeDataChanged) {
                    events.incrementAndGet();
                }
            }, null);
            readUntilChanged(watcher, version, events, found);
            writer.setData("/watched", number(version), version, null, null);
            Server.until("the change", () -> found.get() != null);
            assertEquals(1, found.get(), "the event of version " + version + " was there when that was read");
        }
    }

    private long expiry(ZooKeeper client) {
        return inner.getSessionTracker().getSessionExpiryMap().entrySet().stream()
                .filter(bucket -> bucket.getValue().contains(client.getSessionId())).findFirst().orElseThrow().getKey();
    }

    @Test
    void readsKeepTheirSessionAlive() throws Exception {
        ZooKeeper client = client();
        assertNotNull(client.exists("/", false));
        long before = expiry(client);
        // A client with requests under way sends no pings.
        Server.until("more time", () -> {
            try {
                assertNotNull(client.exists("/", false));
            } catch (KeeperException | InterruptedException e) {
                throw new IllegalStateException(e);
            }
            return expiry(client) > before;
        });
        assertEquals(1, queued.get());
    }

    /** A session that has moved to another server is that one's: this one answers no read of it, at once or otherwise. */
    @Test
    void aSessionThatHasMovedIsNotServed() throws Exception {
        ZooKeeper client = client();
        client.create("/read", number(7), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        assertNotNull(client.exists("/read", false));
        int before = queued.get();
        assertNotNull(client.exists("/read", false));
        assertEquals(before, queued.get(), "reads are answered at once");
        inner.getSessionTracker().setOwner(client.getSessionId(), new Object());
        KeeperException thrown = assertThrows(KeeperException.class, () -> client.exists("/read", false));
        assertEquals(before + 1, queued.get(), "it went to ZooKeeper's threads, which know what to say");
        assertTrue(thrown.code() == KeeperException.Code.SESSIONMOVED || thrown.code() == KeeperException.Code.CONNECTIONLOSS, thrown::toString);
    }

    private static boolean waitsFor(Thread thread, Object monitor) {
        ThreadInfo info = ManagementFactory.getThreadMXBean().getThreadInfo(thread.threadId());
        return info != null && info.getLockInfo() != null && info.getLockInfo().getIdentityHashCode() == System.identityHashCode(monitor);
    }

    @Test
    void aServerThatIsClosedAnswersNoReads() throws Exception {
        ZooKeeper client = client();
        client.create("/read", number(7), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        assertNotNull(client.exists("/read", false));
        AtomicReference<Thread> closer = new AtomicReference<>();
        meanwhile.set(() -> {
            closer.set(Thread.ofPlatform().start(() -> inner.shutdown(true)));
            try {
                Server.until("its end, or that it waits for the read", () -> !closer.get().isAlive() || waitsFor(closer.get(), inner));
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
        });
        assertNotNull(client.exists("/read", false), "a tree that is being emptied is not read");
        closer.get().join();
        // The tree is empty from then on; no client may see that.
        assertThrows(KeeperException.ConnectionLossException.class, () -> client.exists("/read", false));
    }

    /** A client that tells which thread has taken an answer. */
    private static final class Telling extends ZooKeeper {
        Telling(String address) throws IOException {
            super(address, Server.SESSION_MILLIS, event -> {}, Server.config(Server.QUEUE_PAIRS));
        }

        Thread takerOfAnAnswer() {
            AtomicReference<Thread> taker = new AtomicReference<>();
            RequestHeader header = new RequestHeader();
            header.setType(OpCode.exists);
            Record answer = new ExistsResponse() {
                @Override
                public void deserialize(InputArchive archive, String tag) throws IOException {
                    taker.set(Thread.currentThread());
                    super.deserialize(archive, tag);
                }
            };
            try {
                assertEquals(0, cnxn.submitRequest(header, new ExistsRequest("/", false), answer, null).getErr());
            } catch (InterruptedException e) {
                throw new IllegalStateException(e);
            }
            return taker.get();
        }
    }

    @Test
    void aCallerTakesItsOwnAnswer() throws Exception {
        Telling client = new Telling(server.address());
        clients.add(client);
        // One that finds its core wanted leaves the answer to the client's thread, so it is not every one.
        Server.until("an answer that its caller takes", () -> client.takerOfAnAnswer() == Thread.currentThread());
    }

    @Test
    void threadsThatShareAClientGetTheirOwnAnswers() throws Exception {
        ZooKeeper client = client();
        client.create("/shared", number(0), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        AtomicReference<Throwable> failure = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 6; i++) {
            String path = "/shared/" + i;
            boolean writes = i % 2 == 0;
            threads.add(Thread.ofPlatform().start(() -> {
                try {
                    client.create(path, number(0), Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                    for (int round = 1; round <= 300; round++) {
                        if (writes) {
                            client.setData(path, number(round), -1);
                        }
                        assertArrayEquals(number(writes ? round : 0), client.getData(path, false, null));
                        assertNull(client.exists(path + "/none", false));
                    }
                } catch (Throwable e) {
                    failure.compareAndSet(null, e);
                }
            }));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        assertNull(failure.get());
    }

    @Test
    void aThreadThatIsInterruptedDisturbsNobodyElse() throws Exception {
        ZooKeeper client = client();
        for (int round = 0; round < 50; round++) {
            Thread.currentThread().interrupt();
            try {
                client.exists("/", false);
            } catch (InterruptedException e) {
                // Or the answer was there already.
            }
            Thread.interrupted();
            assertNotNull(client.exists("/", false));
        }
    }
}
