package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.FileInputStream;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SelectableChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** How programs wake each other, and the engine. No wait here ends by itself. */
class BellsTest extends WithEngine {
    private static final Duration FOR_EVER = Duration.ofDays(1);
    /** More than any socket or pipe holds. */
    private static final int MANY = 300_000;

    private static Path file(long bell) {
        return Bell.path(engine.door.getParent(), bell);
    }

    private static int connections(Context context) {
        return context.resources.ringer.connections();
    }

    /** A thread that sleeps on a channel and counts how often it was rung for. */
    private static final class Sleeper implements AutoCloseable {
        final CompletionChannel channel;
        final AtomicInteger rings = new AtomicInteger();
        private final Thread thread;
        private volatile boolean isOver;

        Sleeper(Context context) throws VerbsException {
            channel = context.completionChannel();
            thread = Thread.ofPlatform().start(() -> {
                try {
                    while (!isOver) {
                        channel.await(FOR_EVER);
                        rings.incrementAndGet();
                    }
                } catch (EngineGoneException | InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            });
        }

        @Override
        public void close() throws VerbsException {
            isOver = true;
            channel.wakeup();
            Engine.until("its end", () -> !thread.isAlive());
            channel.close();
        }
    }

    @Test
    void whoeverHasEndedIsNotRungForAndLeavesNothingBehind() throws Exception {
        try (Context owner = engine.context(); Context ringer = engine.context()) {
            long files = engine.files();
            CompletionChannel first = owner.completionChannel();
            CompletionChannel second = owner.completionChannel();
            long rung = first.bell();
            assertEquals(rung, first.bell(), "a channel has one");
            assertTrue(ringer.ring(rung) && ringer.ring(second.bell()));
            assertNull(first.await(FOR_EVER));
            assertEquals(2, connections(ringer));
            first.close();
            assertFalse(ringer.ring(rung), "over the connection that there was");
            assertFalse(ringer.ring(rung), "and over none");
            assertEquals(1, connections(ringer));
            assertTrue(ringer.ring(second.bell()), "the other one is still there");
            second.close();
            assertEquals(files, engine.files());
            assertFalse(ringer.ring(0) || ringer.ring(-1) || ringer.ring(rung + 1000));
        }
    }

    @Test
    void aProgramThatEndsTakesItsBellsAlong() throws Exception {
        Context owner = engine.context();
        CompletionChannel channel = owner.completionChannel();
        long bell = channel.bell();
        assertTrue(Files.exists(file(bell)));
        // As a killed program: its connection ends, and it asks for nothing.
        owner.resources.closeAll();
        Engine.until("the end of the file", () -> !Files.exists(file(bell)));
        try (Context ringer = engine.context()) {
            assertFalse(ringer.ring(bell));
        }
        channel.close();
        owner.close();
    }

    @Test
    void connectingIsTheFirstRingAndEachFurtherOneIsAByte() throws Exception {
        try (Context owner = engine.context(); Context ringer = engine.context(); Bell bell = owner.bell()) {
            assertTrue(ringer.ring(bell.number()));
            SelectableChannel connection = bell.accept();
            assertNotNull(connection);
            assertFalse(bell.take(connection), "a byte behind the connection would wake the listener twice");
            assertTrue(ringer.ring(bell.number()));
            assertNull(bell.accept());
            assertTrue(bell.take(connection));
        }
    }

    @Test
    void connectionsToThoseThatHaveEndedGoWithoutBeingUsed() throws Exception {
        try (Context owner = engine.context(); Context ringer = engine.context()) {
            for (int i = 0; i < 200; i++) {
                try (CompletionChannel channel = owner.completionChannel()) {
                    assertTrue(ringer.ring(channel.bell()));
                }
                assertTrue(connections(ringer) <= 20, () -> connections(ringer) + " connections to one program");
            }
        }
    }

    @Test
    void whatIsNoBellIsNotRung() throws Exception {
        try (Context ringer = engine.context()) {
            Path file = file(4_000_000_000L);
            Files.writeString(file, "text");
            assertFalse(ringer.ring(4_000_000_000L));
            assertEquals("text", Files.readString(file));
            Files.delete(file);
        }
    }

    @Test
    void ringsThatNobodyHearsHoldUpNobody() throws Exception {
        try (Context owner = engine.context(); Context ringer = engine.context(); CompletionChannel channel = owner.completionChannel()) {
            long bell = channel.bell();
            for (int i = 0; i < MANY; i++) {
                assertTrue(ringer.ring(bell));
            }
            assertNull(channel.await(FOR_EVER));
        }
    }

    @Test
    void aProgramThatConnectsTooOftenKeepsNobodyFromRinging() throws Exception {
        List<SocketChannel> connections = new ArrayList<>();
        try (Context owner = engine.context(); Context ringer = engine.context(); Sleeper sleeper = new Sleeper(owner)) {
            long bell = sleeper.channel.bell();
            for (int i = 0; i < Bell.RINGERS_MAX; i++) {
                connections.add(SocketChannel.open(UnixDomainSocketAddress.of(file(bell))));
            }
            SocketChannel last = SocketChannel.open(UnixDomainSocketAddress.of(file(bell)));
            connections.add(last);
            assertEquals(-1, last.read(ByteBuffer.allocate(1)), "one too many is hung up on");
            for (int i = 0; i < 20; i++) {
                int before = sleeper.rings.get();
                assertTrue(ringer.ring(bell));
                Engine.until("ring " + i, () -> sleeper.rings.get() > before);
            }
        } finally {
            for (SocketChannel connection : connections) {
                connection.close();
            }
        }
    }

    @Test
    void anEngineThatStandsStillIsRungWithoutAWaitAndEmptiesItsPipe() throws Exception {
        Path path = engine.door.resolveSibling(EngineWaker.PIPE);
        try (Context context = engine.context();
                RandomAccessFile pipe = new RandomAccessFile(path.toFile(), "rw");
                FileInputStream rings = new FileInputStream(pipe.getFD())) {
            engine.halt();
            try {
                int before = rings.available();
                Thread.currentThread().interrupt();
                context.board.wake();
                assertTrue(Thread.interrupted(), "the data path knows no interrupts");
                context.board.wake();
                assertEquals(before + 2, rings.available(), "a byte for each");
                for (int i = 0; i < MANY; i++) {
                    context.board.wake();
                }
            } finally {
                engine.goOn();
            }
            Engine.until("an empty pipe", () -> isEmpty(rings));
        }
    }

    private static boolean isEmpty(FileInputStream rings) {
        try {
            return rings.available() == 0;
        } catch (IOException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void whatIsNoPipeIsNotWrittenTo(@TempDir Path folder) throws Exception {
        Path path = folder.resolve(EngineWaker.PIPE);
        InetSocketAddress engine = new InetSocketAddress(InetAddress.getLoopbackAddress(), 9);
        for (boolean isLink : new boolean[] {false, true}) {
            Path target = isLink ? Files.createSymbolicLink(path, Files.writeString(folder.resolve("other"), "text")) : Files.writeString(path, "text");
            EngineWaker waker = EngineWaker.open(folder, engine);
            waker.wake();
            waker.close();
            assertEquals("text", Files.readString(target));
            Files.delete(path);
        }
        EngineWaker none = EngineWaker.open(folder, engine);
        none.wake();
        none.close();
        assertFalse(Files.exists(path), "and none is made");
    }
}
