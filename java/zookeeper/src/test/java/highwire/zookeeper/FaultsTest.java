package highwire.zookeeper;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import highwire.verbs.CompletionChannel;
import highwire.verbs.CompletionQueue;
import highwire.verbs.NoEngineException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.Random;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/**
 * Servers, engines and peers that are gone, full, or impostors: exceptions as over TCP, and nothing hangs.
 */
@Timeout(value = 300, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class FaultsTest {
    private static final String SESSIONLESS = "zookeeper.nio.sessionlessCnxnTimeout";
    private static final String OUTSTANDING = "zookeeper.globalOutstandingLimit";

    private static FrameReader anyFrames() {
        return new FrameReader(length -> { });
    }

    @Test
    void bothKindsOfClientsShareAPort() throws Exception {
        try (Engine engine = Engine.start(); Server server = Server.start(Server.FACTORY)) {
            ZooKeeper fast = server.client(Server.QUEUE_PAIRS);
            ZooKeeper plain = server.client(Server.TCP);
            fast.create("/both", new byte[] {1}, Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
            CountDownLatch changed = new CountDownLatch(1);
            assertArrayEquals(new byte[] {1}, plain.getData("/both", event -> changed.countDown(), null));
            fast.setData("/both", new byte[] {2}, -1);
            assertTrue(changed.await(Server.PATIENCE_SECONDS, TimeUnit.SECONDS));
            assertEquals(1, fast.exists("/both", false).getVersion());
            assertTrue(command(server.port(), "srvr").contains("Connections: 3"), "commands of four letters are answered");
            fast.close();
            assertEquals(null, plain.exists("/both", false));
            plain.close();
        }
    }

    private static String command(int port, String letters) throws IOException {
        try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), port)) {
            socket.getOutputStream().write(letters.getBytes(StandardCharsets.US_ASCII));
            return new String(socket.getInputStream().readAllBytes(), StandardCharsets.US_ASCII);
        }
    }

    @Test
    void aKilledEngineIsALostConnectionAndTheNextOneIsFound() throws Exception {
        Engine first = Engine.start();
        try (Server server = Server.start(Server.FACTORY)) {
            ZooKeeper client = server.client(Server.QUEUE_PAIRS);
            ZooKeeper plain = server.client(Server.TCP);
            client.create("/kept", new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
            first.process.destroyForcibly().waitFor();
            KeeperException lost = assertThrows(KeeperException.class, () -> {
                while (true) {
                    client.exists("/kept", false);
                }
            });
            assertEquals(KeeperException.Code.CONNECTIONLOSS, lost.code());
            assertNotNull(plain.exists("/kept", false), "clients over TCP need no engine");
            Server.until("its return over TCP", () -> client.getState().isConnected() && server.connections() == 2);
            assertNotNull(client.exists("/kept", false));
            try (Engine second = Engine.start()) {
                Server.until("its return", () -> client.getState().isConnected());
                assertNotNull(client.exists("/kept", false));
                client.close();
                plain.close();
            }
        } finally {
            first.close();
        }
    }

    @Test
    void withoutAnEngineTheReasonIsSaidAndNobodyHangs() throws Exception {
        System.setProperty("highwire.door", "/nowhere/door");
        try (Server server = Server.start(Server.FACTORY);
                ClientLink link = ClientLink.connect(new InetSocketAddress("127.0.0.1", server.port()), anyFrames())) {
            NoEngineException why = assertThrows(NoEngineException.class, () -> {
                while (!link.greet(100)) { }
            });
            assertTrue(why.getMessage().contains("highwire serve"), why.getMessage());
            ZooKeeper client = server.client(Server.QUEUE_PAIRS);
            assertNotNull(client.exists("/", false), "it has taken TCP");
            client.close();
            server.client(Server.TCP).close();
            assertLost(server);
        }
    }

    /** A client that is to have queue pairs or nothing has nothing. */
    private static void assertLost(Server server) throws Exception {
        System.setProperty(Settings.FALLBACK, "0");
        try {
            ZooKeeper client = Server.unconnected(server.address(), Server.QUEUE_PAIRS, Server.SESSION_MILLIS, event -> {});
            assertThrows(KeeperException.ConnectionLossException.class, () -> client.exists("/", false));
            client.close();
        } finally {
            System.clearProperty(Settings.FALLBACK);
        }
    }

    @Test
    void aServerWithoutHighwireIsALostConnectionForWhoeverWantsNoTcp() throws Exception {
        try (Engine engine = Engine.start(); Server server = Server.start(Server.STOCK_FACTORY)) {
            try (ClientLink link = ClientLink.connect(new InetSocketAddress("127.0.0.1", server.port()), anyFrames())) {
                assertThrows(IOException.class, () -> {
                    while (!link.greet(100)) { }
                });
            }
            assertLost(server);
            ZooKeeper client = server.client(Server.QUEUE_PAIRS);
            assertNotNull(client.exists("/", false), "others take TCP");
            client.close();
            server.client(Server.TCP).close();
        }
    }

    /** A server that sends nothing at all, and then these bytes. */
    private static IOException answered(ByteBuffer answer) throws Exception {
        try (ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress());
                ClientLink link = ClientLink.connect((InetSocketAddress) listener.getLocalSocketAddress(), anyFrames())) {
            Thread impostor = Thread.ofPlatform().start(() -> {
                try (Socket socket = listener.accept()) {
                    socket.getInputStream().read(new byte[64]);
                    socket.getOutputStream().write(answer.array());
                    socket.getInputStream().read(new byte[64]);
                } catch (IOException e) {
                    // The client has hung up.
                }
            });
            GreetingException why = assertThrows(GreetingException.class, () -> {
                while (!link.greet(100)) { }
            });
            link.close();
            impostor.join();
            return why;
        }
    }

    /** A server's end of a connection, made by hand. */
    private static Link answer(SocketChannel socket, Device device, CompletionChannel channel, CompletionQueue received) throws IOException {
        socket.configureBlocking(false);
        Greeting greeting = new Greeting();
        String said = greeting.read(socket);
        while (said == null) {
            Thread.yield();
            said = greeting.read(socket);
        }
        Link link = new Link(device, channel, received, 1, null);
        link.connect(said);
        Greeting.introduce(socket, link.introduction());
        return link;
    }

    @Test
    void aServerThatHangsUpIsNoticedThoughItsQueuePairLives() throws Exception {
        try (Engine engine = Engine.start(); ServerSocketChannel listener = ServerSocketChannel.open()) {
            listener.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            Device device = Device.acquire();
            try (CompletionChannel channel = device.context().completionChannel();
                    CompletionQueue received = device.context().completionQueue(64, channel);
                    ClientLink client = ClientLink.connect((InetSocketAddress) listener.getLocalAddress(), anyFrames());
                    SocketChannel socket = listener.accept()) {
                boolean isThere = client.greet(100);
                try (Link link = answer(socket, device, channel, received)) {
                    while (!isThere) {
                        isThere = client.greet(100);
                    }
                    socket.close();
                    long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(Server.PATIENCE_SECONDS);
                    while (client.await(100, () -> false)) {
                        assertTrue(System.nanoTime() < deadline, "the end was not noticed");
                    }
                }
            } finally {
                device.release();
            }
        }
    }

    @Test
    void aClientThatHangsUpIsNoticedBeforeItsTimeIsUp() throws Exception {
        System.setProperty(SESSIONLESS, "6000000");
        try (Engine engine = Engine.start(); Server server = Server.start(Server.FACTORY);
                ClientLink client = ClientLink.connect(new InetSocketAddress("127.0.0.1", server.port()), anyFrames())) {
            while (!client.greet(100)) { }
            assertEquals(1, server.connections());
            client.hangUp();
            Server.until("the end of its connection", () -> server.connections() == 0);
        } finally {
            System.clearProperty(SESSIONLESS);
        }
    }

    private static ByteBuffer greeting(int magic, int version, int kind, int length, String text) {
        return ByteBuffer.allocate(12 + text.length()).putInt(magic).putShort((short) version).putShort((short) kind).putInt(length)
                .put(text.getBytes(StandardCharsets.UTF_8));
    }

    @Test
    void whateverAnswersInsteadOfAServerIsNotBelieved() throws Exception {
        try (Engine engine = Engine.start()) {
            assertTrue(answered(greeting(Greeting.MAGIC, 2, 1, 0, "")).getMessage().contains("version 2"));
            assertTrue(answered(greeting(Greeting.MAGIC, 2, 2, 4, "full")).getMessage().endsWith("full"));
            assertTrue(answered(greeting(0x20202020, 1, 1, 0, "")).getMessage().contains("does not speak"));
            assertTrue(answered(greeting(Greeting.MAGIC, 1, 3, 0, "")).getMessage().contains("kind 3"));
            assertTrue(answered(greeting(Greeting.MAGIC, 1, 1, 1 << 20, "")).getMessage().contains("none"));
            assertTrue(answered(greeting(Greeting.MAGIC, 1, 1, 3, "a b")).getMessage().contains("`a b`"));
            assertTrue(answered(greeting(Greeting.MAGIC, 1, 1, 28, "00abcd-123456@127.83.20.7 -1")).getMessage().contains("-1"));
        }
    }

    @Test
    void aServerSurvivesAnyGreeting() throws Exception {
        try (Engine engine = Engine.start(); Server server = Server.start(Server.FACTORY)) {
            Random random = new Random(7);
            for (int round = 0; round < 100; round++) {
                byte[] bytes = new byte[random.nextInt(80)];
                random.nextBytes(bytes);
                ByteBuffer message = ByteBuffer.wrap(bytes);
                if (bytes.length >= 12) {
                    // Some messages are valid further in than others.
                    message.putInt(0, Greeting.MAGIC);
                    if (round % 2 == 0) {
                        message.putShort(4, (short) 1).putShort(6, (short) 1).putInt(8, bytes.length - 12);
                    }
                }
                try (Socket socket = new Socket(InetAddress.getLoopbackAddress(), server.port())) {
                    socket.getOutputStream().write(bytes);
                    if (round % 3 == 0) {
                        socket.shutdownOutput();
                        socket.getInputStream().readAllBytes();
                    }
                } catch (IOException e) {
                    // The server has hung up.
                }
            }
            Server.until("the end of them all", () -> server.connections() == 0);
            ZooKeeper client = server.client(Server.QUEUE_PAIRS);
            assertNotNull(client.exists("/", false));
            client.close();
        }
    }

    @Test
    void aFullServerRefusesAndGoesOn() throws Exception {
        System.setProperty(Settings.CONNECTIONS, "1");
        try (Engine engine = Engine.start(); Server server = Server.start(Server.FACTORY)) {
            ZooKeeper first = server.client(Server.QUEUE_PAIRS);
            try (ClientLink link = ClientLink.connect(new InetSocketAddress("127.0.0.1", server.port()), anyFrames())) {
                GreetingException why = assertThrows(GreetingException.class, () -> {
                    while (!link.greet(100)) { }
                });
                assertTrue(why.getMessage().contains(Settings.CONNECTIONS), why.getMessage());
            }
            assertNotNull(first.exists("/", false));
            first.close();
            Server.until("room", () -> server.connections() == 0);
            ZooKeeper second = server.client(Server.QUEUE_PAIRS);
            assertNotNull(second.exists("/", false));
            second.close();
        } finally {
            System.clearProperty(Settings.CONNECTIONS);
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"0", "256"})
    void whoeverSendsMoreThanIsTakenWaits(String mailboxes) throws Exception {
        System.setProperty(Settings.MAILBOXES, mailboxes);
        // Two receives of 256 bytes at either end: every answer and every request waits for room.
        System.setProperty(Settings.SEGMENT, "256");
        System.setProperty(Settings.DEPTH, "2");
        // More than one request is at work, and the server takes no more from a client.
        System.setProperty(OUTSTANDING, "1");
        try (Engine engine = Engine.start(); Server server = Server.start(Server.FACTORY)) {
            ZooKeeper client = server.client(Server.QUEUE_PAIRS);
            client.create("/node", new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            int count = 40;
            AtomicInteger right = new AtomicInteger();
            CountDownLatch left = new CountDownLatch(count);
            for (int i = 0; i < count; i++) {
                byte[] data = new byte[5000 + 100 * i];
                client.setData("/node", data, -1, (code, path, context, stat) -> { }, null);
                client.getData("/node", false, (code, path, context, got, stat) -> {
                    if (code == 0 && got.length == data.length) {
                        right.incrementAndGet();
                    }
                    left.countDown();
                }, null);
            }
            assertTrue(left.await(Server.PATIENCE_SECONDS, TimeUnit.SECONDS));
            assertEquals(count, right.get());
            client.close();
        } finally {
            System.clearProperty(Settings.MAILBOXES);
            System.clearProperty(Settings.SEGMENT);
            System.clearProperty(Settings.DEPTH);
            System.clearProperty(OUTSTANDING);
        }
    }

    /** A call that follows at once may be lost with the same connection. */
    private static boolean isAbsent(ZooKeeper client, String path) {
        try {
            return client.exists(path, false) == null;
        } catch (KeeperException.ConnectionLossException e) {
            return false;
        } catch (KeeperException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void aFrameThatIsTooLongEndsTheConnection() throws Exception {
        try (Engine engine = Engine.start(); Server server = Server.start(Server.FACTORY)) {
            ZooKeeper client = server.client(Server.QUEUE_PAIRS);
            assertThrows(KeeperException.ConnectionLossException.class,
                    () -> client.create("/long", new byte[2_000_000], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
            Server.until("its return", () -> isAbsent(client, "/long"));
            client.close();
        }
    }
}
