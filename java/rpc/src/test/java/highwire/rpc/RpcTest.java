package highwire.rpc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import highwire.rpc.RpcClient.RpcCall;
import highwire.verbs.Context;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Calls in both modes, and the fate of calls without an answer. */
class RpcTest {
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final InetSocketAddress ANY = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    private static Process engine;
    private static Path folder;
    private static Path door;

    @BeforeAll
    static void start() throws IOException {
        Path program = Path.of(System.getProperty("highwire.program", "highwire"));
        assumeTrue(Files.isExecutable(program), "skipped: " + program + " is not there: cargo build -p highwire");
        folder = Files.createTempDirectory(Path.of("/dev/shm"), "highwire-java-");
        ProcessBuilder builder = new ProcessBuilder(program.toString(), "serve");
        builder.redirectError(ProcessBuilder.Redirect.INHERIT);
        builder.environment().put("HIGHWIRE_SHM_DIR", folder.toString());
        builder.environment().remove("HIGHWIRE_ADDR");
        engine = builder.start();
        String line = new BufferedReader(new InputStreamReader(engine.getInputStream())).readLine();
        door = Path.of(line.substring(line.lastIndexOf(' ') + 1));
    }

    @AfterAll
    static void stop() throws Exception {
        if (engine == null) {
            return;
        }
        engine.destroy();
        assertTrue(engine.waitFor(60, TimeUnit.SECONDS));
        try (Stream<Path> left = Files.walk(folder)) {
            left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }

    private static Context context() throws IOException {
        return Context.open(door, Duration.ofSeconds(30));
    }

    private static RpcOptions options(RpcMode mode) {
        return new RpcOptions(mode, 8, 1024);
    }

    /** Answers with the arguments in reverse; method 9 throws, method 8 answers with nothing. */
    private static int reverse(int method, MemorySegment arguments, int length, MemorySegment answer)
            throws IOException {
        if (method == 9) {
            throw new IOException("no such luck");
        }
        if (method == 10) {
            throw new AssertionError("not even an exception");
        }
        if (method == 8) {
            return 0;
        }
        for (int i = 0; i < length; i++) {
            answer.set(ValueLayout.JAVA_BYTE, i, arguments.get(ValueLayout.JAVA_BYTE, length - 1 - i));
        }
        return length;
    }

    private static void fill(RpcCall call, int length, int seed) {
        for (int i = 0; i < length; i++) {
            call.arguments().set(ValueLayout.JAVA_BYTE, i, (byte) (seed + i));
        }
    }

    private static void check(RpcCall call, int length, int seed) throws Exception {
        assertEquals(length, call.await(PATIENCE));
        MemorySegment answer = call.answer(length);
        for (int i = 0; i < length; i++) {
            assertEquals((byte) (seed + length - 1 - i), answer.get(ValueLayout.JAVA_BYTE, i), "byte " + i);
        }
    }

    @Test
    void callsOfEveryLengthAreAnsweredInBothModes() throws Exception {
        for (RpcMode mode : RpcMode.values()) {
            try (Context there = context();
                    Context here = context();
                    RpcServer server = RpcServer.open(there, ANY, RpcTest::reverse, options(mode));
                    RpcClient client = RpcClient.connect(here, server.address(), PATIENCE)) {
                for (int round = 0; round < 300; round++) {
                    int length = round < 40 ? round : round * 37 % (client.maxBytes() + 1);
                    RpcCall call = client.begin(1);
                    fill(call, length, round);
                    check(call.send(length), length, round);
                }
                RpcCall longest = client.begin(1);
                fill(longest, client.maxBytes(), 5);
                check(longest.send(client.maxBytes()), client.maxBytes(), 5);
                assertThrows(IllegalArgumentException.class, () -> client.begin(1).send(client.maxBytes() + 1));
                RpcCall next = client.begin(1);
                fill(next, 3, 9);
                check(next.send(3), 3, 9);
            }
        }
    }

    @Test
    void severalCallsAreInFlightAndNoMoreThanThereAreSlots() throws Exception {
        for (RpcMode mode : RpcMode.values()) {
            try (Context there = context();
                    Context here = context();
                    RpcServer server = RpcServer.open(there, ANY, RpcTest::reverse, options(mode));
                    RpcClient client = RpcClient.connect(here, server.address(), PATIENCE)) {
                RpcCall[] calls = new RpcCall[8];
                for (int round = 0; round < 50; round++) {
                    for (int i = 0; i < calls.length; i++) {
                        calls[i] = client.begin(1);
                        fill(calls[i], 33, round + i);
                        calls[i].send(33);
                    }
                    assertThrows(IllegalStateException.class, () -> client.begin(1));
                    for (int i = 0; i < calls.length; i++) {
                        check(calls[i], 33, round + i);
                    }
                }
            }
        }
    }

    @Test
    void whatTheServiceThrowsIsHeardAndTheSessionGoesOn() throws Exception {
        for (RpcMode mode : RpcMode.values()) {
            try (Context there = context();
                    Context here = context();
                    RpcServer server = RpcServer.open(there, ANY, RpcTest::reverse, options(mode));
                    RpcClient client = RpcClient.connect(here, server.address(), PATIENCE)) {
                for (int method : new int[] {9, 10}) {
                    RpcCall call = client.begin(method).send(0);
                    RpcException thrown = assertThrows(RpcException.class, () -> call.await(PATIENCE));
                    assertEquals(RpcException.class, thrown.getClass(), "the service's, not the connection's");
                    assertEquals(method == 9 ? "no such luck" : "not even an exception", thrown.getMessage());
                    assertEquals(0, client.begin(8).send(0).await(PATIENCE));
                }
            }
        }
    }

    @Test
    void aLateAnswerIsATimeoutAndCanBeAwaitedAgain() throws Exception {
        for (RpcMode mode : RpcMode.values()) {
            CountDownLatch gate = new CountDownLatch(1);
            RpcService slow = (method, arguments, length, answer) -> {
                gate.await();
                return 0;
            };
            try (Context there = context();
                    Context here = context();
                    RpcServer server = RpcServer.open(there, ANY, slow, options(mode));
                    RpcClient client = RpcClient.connect(here, server.address(), PATIENCE)) {
                RpcCall call = client.begin(1).send(0);
                assertThrows(RpcTimeoutException.class, () -> call.await(Duration.ofMillis(30)));
                gate.countDown();
                assertEquals(0, call.await(PATIENCE));
            }
        }
    }

    @Test
    void aServerThatClosesIsNoticedByItsClients() throws Exception {
        for (RpcMode mode : RpcMode.values()) {
            try (Context there = context(); Context here = context()) {
                RpcServer server = RpcServer.open(there, ANY, RpcTest::reverse, options(mode));
                try (RpcClient client = RpcClient.connect(here, server.address(), PATIENCE)) {
                    assertEquals(0, client.begin(8).send(0).await(PATIENCE));
                    assertTrue(client.valid());
                    server.close();
                    assertFalse(client.valid());
                    assertThrows(RpcClosedException.class, () -> client.begin(8).send(0).await(PATIENCE));
                }
            }
        }
    }

    @Test
    void aClientThatGoesIsForgotten() throws Exception {
        for (RpcMode mode : RpcMode.values()) {
            try (Context there = context();
                    Context here = context();
                    RpcServer server = RpcServer.open(there, ANY, RpcTest::reverse, options(mode))) {
                for (int i = 0; i < 3; i++) {
                    RpcClient client = RpcClient.connect(here, server.address(), PATIENCE);
                    assertEquals(0, client.begin(8).send(0).await(PATIENCE));
                    client.close();
                }
                long deadline = System.nanoTime() + PATIENCE.toNanos();
                while (server.sessions() > 0) {
                    assertTrue(System.nanoTime() < deadline, "sessions of clients that are gone");
                    Thread.yield();
                }
            }
        }
    }

    @Test
    void whateverListensInsteadIsNotBelieved() throws Exception {
        try (Context here = context(); ServerSocket impostor = new ServerSocket()) {
            impostor.bind(ANY);
            InetSocketAddress address = (InetSocketAddress) impostor.getLocalSocketAddress();
            String[] says = {
                "HTTP/1.1 400 Bad Request\n", "jvrpc 2 POLLING 16 4096\n", "jvrpc 1 POLLING 3 4096\n",
                "jvrpc 1 POLLING 16 4096\nnonsense\n", "x".repeat(600), ""
            };
            for (String line : says) {
                Thread thread = Thread.ofPlatform().start(() -> {
                    try (Socket visitor = impostor.accept()) {
                        visitor.getOutputStream().write(line.getBytes());
                        visitor.getInputStream().read();
                    } catch (IOException e) {
                        // The visitor has left without sending anything else.
                    }
                });
                Class<? extends RpcException> expected =
                        line.isEmpty() ? RpcTimeoutException.class : RpcClosedException.class;
                assertThrows(expected, () -> RpcClient.connect(here, address, Duration.ofMillis(500)), line);
                thread.join();
            }
        }
    }
}
