package highwire.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.channel.ChannelFuture;
import io.netty.channel.ConnectTimeoutException;
import io.netty.channel.ChannelOption;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.DatagramChannel;
import java.nio.file.Path;
import java.util.Random;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Peers that are reached over TCP, and connections that come to nothing. */
class FallbackTest {
    private static final Path NOWHERE = Path.of("/dev/shm/no-engine/door");
    private static Engine engine;

    @BeforeAll
    static void start() {
        engine = Engine.start();
    }

    @AfterAll
    static void stop() throws Exception {
        engine.close();
    }

    private static void exchange(Pair pair, boolean isOverQueuePair) throws Exception {
        End client = pair.connect();
        End server = pair.accept();
        assertEquals(isOverQueuePair, client.isOverQueuePair());
        assertEquals(isOverQueuePair, server.isOverQueuePair());
        client.write("question".getBytes());
        server.awaitBytes(8);
        server.write("answer".getBytes());
        client.awaitBytes(6);
        assertArrayEquals("question".getBytes(), server.bytes());
        assertArrayEquals("answer".getBytes(), client.bytes());
    }

    @Test
    void a_server_without_highwire_is_reached_over_tcp() throws Exception {
        try (Pair pair = new Pair(null, engine.door).listen()) {
            exchange(pair, false);
            HighwireSocketChannel channel = pair.connect().highwire();
            assertEquals("it has no Highwire", channel.fallbackReason());
        }
    }

    @Test
    void a_client_without_highwire_is_served_over_tcp() throws Exception {
        try (Pair pair = new Pair(engine.door, null).listen()) {
            exchange(pair, false);
        }
    }

    @Test
    void a_client_without_an_engine_takes_tcp() throws Exception {
        try (Pair pair = new Pair(engine.door, NOWHERE).listen()) {
            exchange(pair, false);
            assertTrue(pair.connect().highwire().fallbackReason().contains("no engine"));
        }
    }

    @Test
    void a_server_without_an_engine_serves_tcp() throws Exception {
        try (Pair pair = new Pair(NOWHERE, engine.door).listen()) {
            exchange(pair, false);
            assertEquals("it has no engine", pair.connect().highwire().fallbackReason());
        }
    }

    /** Over TCP the kernel accepts, so a program may connect to itself before it accepts. */
    @Test
    void a_server_that_is_suspended_is_reached_over_tcp_and_later_over_queue_pairs() throws Exception {
        try (Pair pair = new Pair(engine.door, engine.door).listen()) {
            pair.listener.config().setAutoRead(false);
            pair.serverGroup.submit(() -> { }).sync();
            End early = pair.connect();
            assertEquals("it accepts no connections at this moment", early.highwire().fallbackReason());
            early.write("question".getBytes());
            pair.listener.config().setAutoRead(true);
            End server = pair.accept();
            server.awaitBytes(8);
            assertFalse(server.isOverQueuePair());
            pair.serverGroup.submit(() -> { }).sync();
            exchange(pair, true);
        }
    }

    @Test
    void a_plain_server_sees_nothing_but_the_clients_bytes() throws Exception {
        try (ServerSocket plain = new ServerSocket(0, 5, InetAddress.getLoopbackAddress()); Pair pair = new Pair(null, engine.door)) {
            ChannelFuture connected = pair.client().connect(plain.getLocalSocketAddress());
            try (Socket accepted = plain.accept()) {
                connected.sync();
                connected.channel().pipeline().get(End.class).write("abc".getBytes()).sync();
                connected.channel().close().sync();
                assertArrayEquals("abc".getBytes(), accepted.getInputStream().readAllBytes());
            }
        }
    }

    @Test
    void a_server_whose_udp_port_is_taken_serves_tcp() throws Exception {
        try (Pair pair = new Pair(engine.door, engine.door); DatagramChannel taken = DatagramChannel.open()) {
            taken.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            int port = ((InetSocketAddress) taken.getLocalAddress()).getPort();
            System.setProperty(Settings.PROBE, "40");
            try {
                pair.listenAt(port);
                exchange(pair, false);
            } finally {
                System.clearProperty(Settings.PROBE);
            }
        }
    }

    @Test
    void an_engine_that_ends_breaks_connections_with_the_reason_and_the_next_is_tcp() throws Exception {
        Engine mortal = Engine.start();
        try (Pair pair = new Pair(mortal.door, mortal.door).listen()) {
            End client = pair.connect();
            End server = pair.accept();
            assertTrue(client.isOverQueuePair());
            mortal.kill();
            Engine.until("the end", () -> client.isInactive && server.isInactive);
            assertTrue(client.exceptions.toString().contains("engine has ended"), client.exceptions.toString());
            exchange(pair, false);
        } finally {
            mortal.close();
        }
    }

    @Test
    void a_refused_connection_says_so() throws Exception {
        int port;
        try (ServerSocket closed = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            port = closed.getLocalPort();
        }
        try (Pair pair = new Pair(null, engine.door)) {
            ChannelFuture refused = pair.client().connect(InetAddress.getLoopbackAddress(), port).await();
            assertInstanceOf(ConnectException.class, refused.cause());
            assertFalse(refused.channel().isOpen());
        }
    }

    @Test
    void a_server_that_never_introduces_itself_is_a_connect_timeout() throws Exception {
        // Says that it has Highwire, and then nothing.
        try (ServerSocket silent = new ServerSocket(0, 5, InetAddress.getLoopbackAddress());
                DatagramChannel udp = DatagramChannel.open();
                Pair pair = new Pair(null, engine.door)) {
            udp.bind(silent.getLocalSocketAddress());
            ChannelFuture connected = pair.client().option(ChannelOption.CONNECT_TIMEOUT_MILLIS, 700).connect(silent.getLocalSocketAddress());
            ByteBuffer datagram = ByteBuffer.allocate(100);
            InetSocketAddress from = (InetSocketAddress) udp.receive(datagram);
            Probe question = Probe.parse(datagram.flip());
            assertNotNull(question);
            udp.send(new Probe(Probe.YES, question.nonce, question.port).bytes(), from);
            connected.await();
            assertInstanceOf(ConnectTimeoutException.class, connected.cause());
            connected.channel().closeFuture().sync();
        }
    }

    @Test
    void a_greeting_that_is_none_fails_the_connection() throws Exception {
        try (ServerSocket liar = new ServerSocket(0, 5, InetAddress.getLoopbackAddress());
                DatagramChannel udp = DatagramChannel.open();
                Pair pair = new Pair(null, engine.door)) {
            udp.bind(liar.getLocalSocketAddress());
            ChannelFuture connected = pair.client().connect(liar.getLocalSocketAddress());
            ByteBuffer datagram = ByteBuffer.allocate(100);
            InetSocketAddress from = (InetSocketAddress) udp.receive(datagram);
            Probe question = Probe.parse(datagram.flip());
            udp.send(new Probe(Probe.YES, question.nonce, question.port).bytes(), from);
            try (Socket accepted = liar.accept()) {
                accepted.getOutputStream().write(new byte[100]);
                connected.await();
                assertEquals("the peer's greeting is none", connected.cause().getMessage());
            }
        }
    }

    @Test
    void datagrams_that_are_none_are_ignored() throws Exception {
        try (Pair pair = new Pair(engine.door, engine.door).listen(); DatagramChannel udp = DatagramChannel.open()) {
            Random random = new Random(1);
            for (int i = 0; i < 200; i++) {
                byte[] bytes = new byte[random.nextInt(60)];
                random.nextBytes(bytes);
                ByteBuffer datagram = ByteBuffer.wrap(bytes);
                if (bytes.length >= 8 && i % 2 == 0) {
                    datagram.putInt(0, 0x48774E74).putShort(4, (short) random.nextInt(3)).putShort(6, (short) random.nextInt(5));
                }
                udp.send(datagram, pair.listener.localAddress());
            }
            exchange(pair, true);
        }
    }

    @Test
    void questions_are_read_as_they_are_written() {
        byte[] nonce = new byte[Greeting.NONCE_BYTES];
        nonce[3] = 7;
        Probe read = Probe.parse(new Probe(Probe.QUESTION, nonce, 65_000).bytes());
        assertEquals(65_000, read.port);
        assertArrayEquals(nonce, read.nonce);
        assertNull(Probe.parse(ByteBuffer.allocate(Probe.BYTES)));
    }
}
