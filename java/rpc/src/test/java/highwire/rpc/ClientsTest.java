package highwire.rpc;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import highwire.rpc.RpcClient.RpcCall;
import highwire.verbs.Context;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Test;

/** Clients that come and go, say nothing, or lose their engine. */
class ClientsTest {
    private static final Duration PATIENCE = Engine.PATIENCE;
    private static final InetSocketAddress ANY = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    /** What may differ for reasons that have nothing to do with the number of rounds. */
    private static final long SOME = 24;

    private static int echo(int method, MemorySegment arguments, int length, MemorySegment answer) {
        answer.set(ValueLayout.JAVA_LONG, 0, arguments.get(ValueLayout.JAVA_LONG, 0) + 1);
        return Long.BYTES;
    }

    private static RpcOptions options(RpcMode mode) {
        return new RpcOptions(mode, 2, 256);
    }

    private static void call(RpcClient client, Duration patience) throws Exception {
        RpcCall call = client.begin(1);
        call.arguments().set(ValueLayout.JAVA_LONG, 0, 41L);
        int length = call.send(Long.BYTES).await(patience);
        assertEquals(42, call.answer(length).get(ValueLayout.JAVA_LONG, 0));
    }

    /** The time-out of a client that is not delayed may be shorter than the time for which a silent one is heard. */
    @Test
    void silentClientsDelayNobodyAndAreBounded() throws Exception {
        try (Engine engine = new Engine(); Context there = engine.context(PATIENCE); Context here = engine.context(PATIENCE);
                RpcServer server = RpcServer.open(there, ANY, ClientsTest::echo, options(RpcMode.POLLING))) {
            List<Socket> silent = new ArrayList<>();
            try {
                for (int i = 0; i < 3 * RpcServer.GREETINGS_MAX; i++) {
                    silent.add(new Socket());
                    silent.getLast().connect(server.address(), (int) PATIENCE.toMillis());
                    if (i % 2 == 0) {
                        // Not silent, but no line either.
                        silent.getLast().getOutputStream().write('x');
                    }
                }
                Engine.until("their greetings", () -> server.greetings() == RpcServer.GREETINGS_MAX);
                long first = 0;
                for (Socket one : silent.subList(0, RpcServer.GREETINGS_MAX)) {
                    one.setSoTimeout((int) PATIENCE.toMillis());
                    try {
                        first += one.getInputStream().readAllBytes().length;
                    } catch (IOException e) {
                        // Reset, as it had sent something.
                    }
                }
                assertTrue(first >= 0, "those that came first have made room");
                try (RpcClient client = RpcClient.connect(here, server.address(), PATIENCE)) {
                    call(client, PATIENCE);
                    assertTrue(server.greetings() >= RpcServer.GREETINGS_MAX - 2, "the others were not waited for");
                }
                assertTrue(server.greetings() <= RpcServer.GREETINGS_MAX);
            } finally {
                for (Socket one : silent) {
                    one.close();
                }
            }
            Engine.until("the end of the greetings", () -> server.greetings() == 0);
        }
    }

    /** The short form of {@code cargo xtask soak java-connects}. */
    @Test
    void connectionsLeaveNothingBehind() throws Exception {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        try (Engine engine = new Engine()) {
            boolean isFlat = ConnectSoak.run(engine.door, engine.process.pid(), 2000, new PrintStream(said, true));
            assertTrue(isFlat, said::toString);
        }
    }

    /** The short form of {@code cargo xtask soak java-faults}. */
    @Test
    void faultsLeaveNothingBehind() throws Exception {
        ByteArrayOutputStream said = new ByteArrayOutputStream();
        assumeTrue(Files.isExecutable(Path.of(System.getProperty("highwire.program", "highwire"))), "skipped: no highwire: cargo build -p highwire");
        assertTrue(FaultSoak.run(Duration.ofDays(1), 3, 7, new PrintStream(said, true)), said::toString);
    }

    private static void connect(Context here, RpcServer server) throws Exception {
        try (RpcClient client = RpcClient.connect(here, server.address(), PATIENCE)) {
            call(client, PATIENCE);
        }
    }

    /** A session that cannot be made, at any of its steps, leaves none of its objects. */
    @Test
    void aSessionThatCannotBeMadeLeavesNothingBehind() throws Exception {
        try (Engine engine = new Engine(); Context there = engine.context(PATIENCE); Context here = engine.context(PATIENCE);
                RpcServer server = RpcServer.open(there, ANY, ClientsTest::echo, options(RpcMode.BLOCKING))) {
            // The last step fails for want of a queue pair that is deep enough: slots that fit, a queue that does not.
            RpcOptions tooDeep = new RpcOptions(RpcMode.BLOCKING, 1024, 64);
            long files = engine.files();
            long descriptors = Engine.ownDescriptors();
            for (int i = 0; i < 200; i++) {
                try (Socket nonsense = new Socket(server.address().getAddress(), server.address().getPort())) {
                    nonsense.getOutputStream().write("an introduction that is none\n".getBytes());
                    assertTrue(nonsense.getInputStream().readAllBytes().length > 0, "the offer, and then the end");
                }
                Thread.currentThread().interrupt();
                assertThrows(highwire.verbs.CallInterruptedException.class, () -> new Slots(here, tooDeep));
                assertTrue(Thread.interrupted());
            }
            Engine.until("the end of the greetings", () -> server.greetings() == 0);
            assertEquals(files, engine.files());
            assertTrue(Engine.ownDescriptors() <= descriptors + SOME);
            connect(here, server);
        }
    }

    @Test
    void everyTimeoutIsOne() throws Exception {
        Duration forEver = ChronoUnit.FOREVER.getDuration();
        for (RpcMode mode : RpcMode.values()) {
            CountDownLatch answered = new CountDownLatch(1);
            RpcService service = (method, arguments, length, answer) -> {
                if (method == 2) {
                    answered.await();
                }
                return echo(method, arguments, length, answer);
            };
            try (Engine engine = new Engine(); Context there = engine.context(forEver); Context here = engine.context(forEver);
                    RpcServer server = RpcServer.open(there, ANY, service, options(mode))) {
                for (Duration timeout : new Duration[] {Duration.ofDays(30), Duration.ofNanos(Long.MAX_VALUE), Duration.ofMillis(Long.MAX_VALUE), forEver}) {
                    try (RpcClient client = RpcClient.connect(here, server.address(), timeout)) {
                        call(client, timeout);
                    }
                }
                try (RpcClient client = RpcClient.connect(here, server.address(), PATIENCE)) {
                    RpcCall call = client.begin(1);
                    call.send(Long.BYTES);
                    call.await(forEver);
                    // Nobody answers at method 2, so that the time is over at once.
                    RpcCall unanswered = client.begin(2).send(Long.BYTES);
                    for (Duration none : new Duration[] {Duration.ZERO, Duration.ofSeconds(Long.MIN_VALUE), Duration.ofNanos(-1)}) {
                        assertThrows(RpcTimeoutException.class, () -> unanswered.await(none));
                    }
                    answered.countDown();
                    unanswered.await(forEver);
                }
            }
        }
    }

    /** A server by hand, whose first answer has the number of another call. */
    @Test
    void anAnswerOfAnotherCallIsNone() throws Exception {
        try (Engine engine = new Engine(); Context there = engine.context(PATIENCE); Context here = engine.context(PATIENCE);
                ServerSocket listener = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            CompletableFuture<Slots> serving = CompletableFuture.supplyAsync(() -> {
                try {
                    Socket socket = listener.accept();
                    Greeting.say(socket, Greeting.offer(options(RpcMode.POLLING)));
                    Slots slots = new Slots(there, options(RpcMode.POLLING));
                    slots.connect(Greeting.hear(socket, PATIENCE));
                    Greeting.say(socket, slots.introduction());
                    return slots;
                } catch (IOException e) {
                    throw new java.io.UncheckedIOException(e);
                }
            });
            try (RpcClient client = RpcClient.connect(here, (InetSocketAddress) listener.getLocalSocketAddress(), PATIENCE);
                    Slots server = serving.join()) {
                for (int round = 0; round < 2; round++) {
                    RpcCall call = client.begin(1).send(Long.BYTES);
                    int slot = round;
                    Engine.until("the call", () -> server.hasCome(slot, 1));
                    long id = server.callId(slot);
                    server.send(slot, 0, round == 0 ? id : id + 2, Long.BYTES, 1);
                    if (round == 0) {
                        assertEquals(Long.BYTES, call.await(PATIENCE));
                    } else {
                        String said = assertThrows(RpcClosedException.class, () -> call.await(PATIENCE)).getMessage();
                        assertTrue(said.contains("another call"), said);
                    }
                }
            }
        }
    }

    /** The engine is killed, and another one takes its place at the same door: old sessions end in words, new ones begin, over the same server. */
    @Test
    void aServerServesAgainOnceThereIsAnEngineAgain() throws Exception {
        for (RpcMode mode : RpcMode.values()) {
            try (Engine engine = new Engine()) {
                Context there = engine.context(PATIENCE);
                Context here = engine.context(PATIENCE);
                try (RpcServer server = RpcServer.open(there, ANY, ClientsTest::echo, options(mode))) {
                    RpcClient client = RpcClient.connect(here, server.address(), PATIENCE);
                    call(client, PATIENCE);
                    engine.kill();
                    Engine.until("the end of the session", () -> !client.valid() && server.sessions() == 0);
                    IOException thrown = assertThrows(IOException.class, () -> {
                        while (true) {
                            call(client, PATIENCE);
                        }
                    });
                    assertTrue(thrown.getMessage().contains("the engine has ended") || thrown.getMessage().contains("the server has gone"), thrown::toString);
                    assertFalse(String.valueOf(thrown.getMessage()).contains("null"));
                    assertThrows(IOException.class, () -> RpcClient.connect(here, server.address(), PATIENCE));
                    client.close();
                    engine.start();
                    try (Context again = here.reopen()) {
                        RpcClient[] next = new RpcClient[1];
                        Engine.until("a session", () -> {
                            try {
                                next[0] = RpcClient.connect(again, server.address(), PATIENCE);
                                return true;
                            } catch (IOException e) {
                                return false;
                            }
                        });
                        call(next[0], PATIENCE);
                        next[0].close();
                    }
                } finally {
                    here.close();
                    there.close();
                }
            }
        }
    }

    /** An engine that is halted for longer than the time-out: what waits for it fails and says so, and afterwards the server serves again. */
    @Test
    void aServerServesAgainAfterAnEngineThatWasSilent() throws Exception {
        Duration shortly = Duration.ofMillis(300);
        try (Engine engine = new Engine()) {
            Context there = engine.context(shortly);
            Context here = engine.context(shortly);
            try (RpcServer server = RpcServer.open(there, ANY, ClientsTest::echo, options(RpcMode.POLLING))) {
                connect(here, server);
                engine.halt();
                IOException thrown = assertThrows(IOException.class, () -> {
                    while (true) {
                        here.protectionDomain().close();
                    }
                });
                assertTrue(thrown.getMessage().contains("has not answered for 300 ms"), thrown::toString);
                IOException later = assertThrows(IOException.class, here::protectionDomain);
                assertTrue(later.getMessage().contains("has not answered for 300 ms"), later::toString);
                assertThrows(IOException.class, () -> there.arena(64));
                assertFalse(here.valid() || there.valid());
                engine.goOn();
                try (Context again = engine.context(PATIENCE)) {
                    Engine.until("a session", () -> {
                        try {
                            connect(again, server);
                            return true;
                        } catch (Exception e) {
                            return false;
                        }
                    });
                }
            } finally {
                here.close();
                there.close();
            }
        }
    }
}
