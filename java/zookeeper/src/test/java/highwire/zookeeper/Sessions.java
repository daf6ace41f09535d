package highwire.zookeeper;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collections;
import java.util.List;
import java.util.Random;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher.Event.EventType;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A client's view of ZooKeeper: the same over queue pairs and over TCP. */
@Timeout(value = 300, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
abstract class Sessions {
    private static Engine engine;
    private final String socket;
    private Server server;
    private final List<ZooKeeper> clients = new ArrayList<>();

    Sessions(String socket) {
        this.socket = socket;
    }

    @BeforeAll
    static void startEngine() throws IOException {
        engine = Engine.start();
    }

    @AfterAll
    static void stopEngine() throws IOException {
        if (engine != null) {
            engine.close();
        }
    }

    @BeforeEach
    void startServer() throws Exception {
        server = Server.start(Server.FACTORY);
    }

    @AfterEach
    void stopServer() throws Exception {
        for (ZooKeeper client : clients) {
            client.close();
        }
        server.close();
    }

    private ZooKeeper client() throws Exception {
        ZooKeeper client = server.client(socket);
        clients.add(client);
        return client;
    }

    private static byte[] bytes(String text) {
        return text.getBytes();
    }

    private static String create(ZooKeeper client, String path, String data, CreateMode mode) throws Exception {
        return client.create(path, bytes(data), Ids.OPEN_ACL_UNSAFE, mode);
    }

    @Test
    void whatIsWrittenIsRead() throws Exception {
        ZooKeeper writer = client();
        ZooKeeper reader = client();
        assertEquals("/a", create(writer, "/a", "first", CreateMode.PERSISTENT));
        assertArrayEquals(bytes("first"), reader.getData("/a", false, null));
        assertEquals(1, writer.setData("/a", bytes("second"), 0).getVersion());
        assertArrayEquals(bytes("second"), reader.getData("/a", false, null));
        assertThrows(KeeperException.BadVersionException.class, () -> writer.setData("/a", bytes("third"), 0));
        assertThrows(KeeperException.NodeExistsException.class, () -> create(reader, "/a", "", CreateMode.PERSISTENT));
        assertEquals("/a/n0000000000", create(writer, "/a/n", "", CreateMode.PERSISTENT_SEQUENTIAL));
        assertEquals(List.of("n0000000000"), reader.getChildren("/a", false));
        reader.delete("/a/n0000000000", -1);
        writer.delete("/a", -1);
        assertNull(reader.exists("/a", false));
    }

    @Test
    void framesOfEverySizeArriveWhole() throws Exception {
        ZooKeeper client = client();
        byte[] largest = new byte[900_000];
        new Random(1).nextBytes(largest);
        client.create("/large", new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        // Around every border of segments, and far beyond what is in flight at one time.
        for (int length : new int[] {0, 1, 3900, 4000, 4020, 4040, 4060, 4091, 4092, 4093, 4096, 8192, 65_536, 65_537, 300_000, 900_000}) {
            byte[] data = Arrays.copyOf(largest, length);
            client.setData("/large", data, -1);
            assertArrayEquals(data, client.getData("/large", false, null), length + " bytes");
        }
    }

    @Test
    void requestsInFlightAreAnsweredInOrder() throws Exception {
        ZooKeeper client = client();
        create(client, "/order", "", CreateMode.PERSISTENT);
        List<Integer> answered = Collections.synchronizedList(new ArrayList<>());
        int count = 2000;
        CountDownLatch left = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            client.setData("/order", new byte[i], -1, (code, path, context, stat) -> {
                if (code == 0) {
                    answered.add((Integer) context);
                }
                left.countDown();
            }, i);
        }
        assertTrue(left.await(Server.PATIENCE_SECONDS, TimeUnit.SECONDS));
        List<Integer> sorted = new ArrayList<>(answered);
        Collections.sort(sorted);
        assertEquals(count, answered.size());
        assertEquals(sorted, answered);
    }

    @Test
    void whatWasAskedBeforeTheEndIsAnswered() throws Exception {
        ZooKeeper client = server.client(socket);
        byte[] large = new byte[900_000];
        client.create("/large", large, Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        int count = 8;
        AtomicInteger right = new AtomicInteger();
        CountDownLatch left = new CountDownLatch(count);
        for (int i = 0; i < count; i++) {
            client.getData("/large", false, (code, path, context, data, stat) -> {
                if (code == 0 && data.length == large.length) {
                    right.incrementAndGet();
                }
                left.countDown();
            }, null);
        }
        client.close();
        assertTrue(left.await(Server.PATIENCE_SECONDS, TimeUnit.SECONDS));
        assertEquals(count, right.get());
    }

    @Test
    void watchesFire() throws Exception {
        ZooKeeper watcher = client();
        ZooKeeper writer = client();
        BlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();
        create(writer, "/watched", "", CreateMode.PERSISTENT);
        watcher.getData("/watched", events::add, null);
        watcher.getChildren("/watched", events::add);
        watcher.exists("/none", events::add);
        writer.setData("/watched", bytes("x"), -1);
        assertEquals(EventType.NodeDataChanged, events.poll(Server.PATIENCE_SECONDS, TimeUnit.SECONDS).getType());
        create(writer, "/watched/child", "", CreateMode.PERSISTENT);
        assertEquals(EventType.NodeChildrenChanged, events.poll(Server.PATIENCE_SECONDS, TimeUnit.SECONDS).getType());
        create(writer, "/none", "", CreateMode.PERSISTENT);
        assertEquals(EventType.NodeCreated, events.poll(Server.PATIENCE_SECONDS, TimeUnit.SECONDS).getType());
    }

    @Test
    void aTransactionIsAllOrNothing() throws Exception {
        ZooKeeper client = client();
        byte[] none = new byte[0];
        client.multi(List.of(Op.create("/m", none, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT),
                Op.create("/m/1", none, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT), Op.setData("/m", bytes("set"), 0)));
        assertEquals(List.of("1"), client.getChildren("/m", false));
        assertThrows(KeeperException.NoNodeException.class, () -> client.multi(List.of(
                Op.create("/m/2", none, Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT), Op.delete("/nowhere", -1))));
        assertNull(client.exists("/m/2", false));
    }

    @Test
    void whoeverIsNotAuthenticatedIsRefused() throws Exception {
        ZooKeeper owner = client();
        owner.addAuthInfo("digest", bytes("owner:secret"));
        owner.create("/private", bytes("mine"), Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
        ZooKeeper other = client();
        assertThrows(KeeperException.NoAuthException.class, () -> other.getData("/private", false, null));
        other.addAuthInfo("digest", bytes("owner:wrong"));
        assertThrows(KeeperException.NoAuthException.class, () -> other.getData("/private", false, null));
        ZooKeeper again = client();
        again.addAuthInfo("digest", bytes("owner:secret"));
        assertArrayEquals(bytes("mine"), again.getData("/private", false, null));
    }

    @Test
    void ephemeralNodesGoWithTheirSession() throws Exception {
        ZooKeeper observer = client();
        ZooKeeper owner = server.client(socket);
        create(owner, "/ephemeral", "", CreateMode.EPHEMERAL);
        assertNotNull(observer.exists("/ephemeral", false));
        owner.close();
        assertNull(observer.exists("/ephemeral", false));
        Server.until("the end of its connection", () -> server.connections() == 1);
    }

    @Test
    void fiftyClientsWorkAtOnce() throws Exception {
        ZooKeeper first = client();
        create(first, "/many", "", CreateMode.PERSISTENT);
        List<Thread> threads = new ArrayList<>();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int i = 0; i < 50; i++) {
            String path = "/many/" + i;
            threads.add(Thread.ofPlatform().start(() -> {
                try (ZooKeeper client = server.client(socket)) {
                    create(client, path, "", CreateMode.PERSISTENT);
                    for (int round = 0; round < 20; round++) {
                        client.setData(path, bytes(path + round), round);
                        assertArrayEquals(bytes(path + round), client.getData(path, false, null));
                    }
                } catch (Throwable e) {
                    failure.set(e);
                }
            }));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        assertDoesNotThrow(() -> {
            if (failure.get() != null) {
                throw failure.get();
            }
        });
        assertEquals(50, first.getChildren("/many", false).size());
    }

    @Test
    void aSessionOutlivesTheRestartOfItsServer() throws Exception {
        ZooKeeper client = client();
        BlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();
        create(client, "/kept", "", CreateMode.EPHEMERAL);
        client.exists("/kept", events::add);
        long session = client.getSessionId();
        server.stop();
        KeeperException lost = assertThrows(KeeperException.class, () -> {
            while (true) {
                client.exists("/kept", false);
            }
        });
        assertEquals(KeeperException.Code.CONNECTIONLOSS, lost.code());
        server.start();
        Server.until("its return", () -> client.getState().isConnected());
        assertNotNull(client.exists("/kept", false));
        assertEquals(session, client.getSessionId());
        ZooKeeper other = client();
        other.setData("/kept", bytes("changed"), -1);
        Server.until("the watch that was set before", () -> events.stream().anyMatch(e -> e.getType() == EventType.NodeDataChanged));
    }

    @Test
    void aSessionMovesToAnotherHandle() throws Exception {
        ZooKeeper first = client();
        create(first, "/moved", "", CreateMode.EPHEMERAL);
        ZooKeeper second = new ZooKeeper(server.address(), Server.SESSION_MILLIS, event -> {}, first.getSessionId(),
                first.getSessionPasswd(), false, new org.apache.zookeeper.client.StaticHostProvider(
                        List.of(new java.net.InetSocketAddress("127.0.0.1", server.port()))), Server.config(socket));
        clients.add(second);
        Server.until("its session", () -> second.getState().isConnected());
        assertEquals(first.getSessionId(), second.getSessionId());
        assertNotNull(second.exists("/moved", false));
        second.close();
        ZooKeeper observer = client();
        assertNull(observer.exists("/moved", false));
    }

    /** A JVM with an ephemeral node and nothing else to do. {@code java Victim ADDRESS SOCKET}. */
    static final class Victim {
        private Victim() {}

        public static void main(String[] args) throws Exception {
            ZooKeeper client = Server.client(args[0], args[1], 2000);
            create(client, "/victim", "", CreateMode.EPHEMERAL);
            System.out.println("ready");
            Thread.sleep(Long.MAX_VALUE);
        }
    }

    @Test
    void aKilledClientLosesItsSession() throws Exception {
        ZooKeeper observer = client();
        Process victim = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-XX:TieredStopAtLevel=1", "-Dhighwire.door=" + engine.door,
                "-cp", System.getProperty("surefire.test.class.path", System.getProperty("java.class.path"))
                        + File.pathSeparator + "target/test-classes",
                Victim.class.getName(), server.address(), socket).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try {
            assertEquals("ready", victim.inputReader().readLine());
            assertNotNull(observer.exists("/victim", false));
        } finally {
            victim.destroyForcibly().waitFor();
        }
        Server.until("the end of its connection", () -> server.connections() == 1);
        Server.until("the end of its session", () -> assertDoesNotThrow(() -> observer.exists("/victim", false)) == null);
    }
}
