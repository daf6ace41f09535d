package highwire.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.netty.buffer.ByteBuf;
import io.netty.buffer.Unpooled;
import io.netty.channel.ChannelFuture;
import io.netty.channel.DefaultFileRegion;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.socket.ChannelInputShutdownEvent;
import io.netty.channel.socket.ChannelInputShutdownReadComplete;
import io.netty.channel.socket.SocketChannelConfig;
import java.io.IOException;
import java.lang.reflect.Proxy;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/** What a channel does with bytes, over each way that they can take. */
class StreamsTest {
    /** The two ends have one engine, or one each, or are connected by TCP. */
    enum Way { NEAR, FAR, TCP }

    private static Engine engine;
    private static Engine other;

    @BeforeAll
    static void start() {
        engine = Engine.start();
        other = engine.startBeside();
    }

    @AfterAll
    static void stop() throws Exception {
        other.close();
        engine.close();
    }

    private static Pair pair(Way way) {
        return new Pair(engine.door, way == Way.NEAR ? engine.door : way == Way.FAR ? other.door : null);
    }

    private static byte[] random(int length, long seed) {
        byte[] bytes = new byte[length];
        new Random(seed).nextBytes(bytes);
        return bytes;
    }

    private static void checkWay(Way way, End client, End server) {
        assertEquals(way != Way.TCP, client.isOverQueuePair());
        assertEquals(way != Way.TCP, server.isOverQueuePair());
    }

    @ParameterizedTest
    @EnumSource
    void bytes_arrive_in_order_both_ways_whatever_their_sizes(Way way) throws Exception {
        try (Pair pair = pair(way).listen()) {
            End client = pair.connect();
            End server = pair.accept();
            checkWay(way, client, server);
            byte[] out = random(3_000_001, 1);
            byte[] back = random(2_000_003, 2);
            Random sizes = new Random(3);
            int sent = 0;
            int returned = 0;
            while (sent < out.length || returned < back.length) {
                int next = Math.min(out.length, sent + (sizes.nextBoolean() ? sizes.nextInt(100) : sizes.nextInt(70_000)));
                client.write(Arrays.copyOfRange(out, sent, next));
                sent = next;
                next = Math.min(back.length, returned + (sizes.nextBoolean() ? sizes.nextInt(100) : sizes.nextInt(70_000)));
                server.write(Arrays.copyOfRange(back, returned, next));
                returned = next;
            }
            server.awaitBytes(out.length);
            client.awaitBytes(back.length);
            assertArrayEquals(out, server.bytes());
            assertArrayEquals(back, client.bytes());
            client.channel.close().sync();
            Engine.until("the end", () -> server.isInactive);
            assertTrue(server.exceptions.isEmpty() && client.exceptions.isEmpty(), server.exceptions + " " + client.exceptions);
        }
    }

    @ParameterizedTest
    @EnumSource
    void what_was_written_before_close_arrives(Way way) throws Exception {
        try (Pair pair = pair(way).listen()) {
            for (int i = 0; i < 20; i++) {
                End client = pair.connect();
                End server = pair.accept();
                byte[] out = random(100_000, i);
                client.write(out).sync();
                client.channel.close().sync();
                Engine.until("the end", () -> server.isInactive);
                assertArrayEquals(out, server.bytes());
                assertTrue(server.exceptions.isEmpty(), server.exceptions.toString());
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void half_a_connection_goes_on(Way way) throws Exception {
        try (Pair pair = pair(way).halfClosed().listen()) {
            End client = pair.connect();
            End server = pair.accept();
            client.write(random(5000, 1));
            client.channel.shutdownOutput().sync();
            Engine.until("the end of input", () -> server.events.contains(ChannelInputShutdownEvent.INSTANCE));
            assertEquals(5000, server.size());
            assertTrue(server.channel.isActive() && server.channel.isInputShutdown() && client.channel.isOutputShutdown());
            byte[] back = random(700_000, 2);
            server.write(back);
            client.awaitBytes(back.length);
            assertArrayEquals(back, client.bytes());
            server.channel.close().sync();
            Engine.until("the end of input", () -> client.events.contains(ChannelInputShutdownEvent.INSTANCE));
        }
    }

    @ParameterizedTest
    @EnumSource(names = {"NEAR", "FAR"})
    void the_end_is_told_to_a_program_that_reads_no_more(Way way) throws Exception {
        try (Pair pair = pair(way).autoRead(false).halfClosed().listen()) {
            End client = pair.connect();
            End server = pair.accept();
            client.write(new byte[7]).sync();
            client.channel.shutdownOutput().sync();
            server.channel.read();
            Engine.until("the end of input", () -> server.events.contains(ChannelInputShutdownReadComplete.INSTANCE));
            // Not before all is read.
            assertEquals(7, server.size());
            assertEquals(List.of(ChannelInputShutdownEvent.INSTANCE, ChannelInputShutdownReadComplete.INSTANCE), server.events);
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_reader_that_pauses_holds_the_writer_back(Way way) throws Exception {
        try (Pair pair = pair(way).autoRead(false).listen()) {
            End client = pair.connect();
            End server = pair.accept();
            byte[] out = random(20_000_000, 5);
            ChannelFuture written = client.write(out);
            Engine.until("full buffers", () -> !client.channel.isWritable());
            // One explicit read brings one message and no more.
            server.channel.read();
            Engine.until("a message", () -> server.reads == 1);
            assertFalse(written.isDone());
            server.channel.config().setAutoRead(true);
            server.awaitBytes(out.length);
            written.sync();
            assertArrayEquals(out, server.bytes());
            Engine.until("room", () -> client.channel.isWritable());
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_file_goes_as_a_region(Way way) throws Exception {
        Path path = Files.createTempFile("highwire", "region");
        try (Pair pair = pair(way).listen()) {
            byte[] all = random(1_000_000, 7);
            Files.write(path, all);
            End client = pair.connect();
            End server = pair.accept();
            client.channel.write(Unpooled.wrappedBuffer(new byte[] {1}));
            client.channel.write(new DefaultFileRegion(path.toFile(), 1000, 900_000));
            client.channel.writeAndFlush(Unpooled.wrappedBuffer(new byte[] {2})).sync();
            server.awaitBytes(900_002);
            byte[] got = server.bytes();
            assertArrayEquals(Arrays.copyOfRange(all, 1000, 901_000), Arrays.copyOfRange(got, 1, 900_001));
            assertEquals(2, got[900_001]);
        } finally {
            Files.delete(path);
        }
    }

    @Test
    void bytes_that_a_program_keeps_stay_as_they_are_and_stop_nothing() throws Exception {
        for (Way way : new Way[] {Way.NEAR, Way.FAR}) {
            try (Pair pair = pair(way).listen()) {
                End client = pair.connect();
                End server = pair.accept();
                server.isKeeping = true;
                byte[] out = random(4_000_000, 9);
                client.write(out);
                server.awaitBytes(out.length);
                assertTrue(server.kept.stream().anyMatch(LentByteBuf.class::isInstance), "nothing was lent");
                client.channel.close().sync();
                server.channel.close().sync();
                // The memory is still there, although the channel is not.
                ByteBuf all = Unpooled.wrappedBuffer(server.kept.toArray(ByteBuf[]::new));
                byte[] kept = new byte[all.readableBytes()];
                all.readBytes(kept);
                assertArrayEquals(out, kept);
                all.release();
            }
        }
    }

    @ParameterizedTest
    @EnumSource
    void nothing_is_left_behind(Way way) throws Exception {
        // Stays as long as the engine.
        Device.at(engine.door).join().channel().bell();
        Device.at(other.door).join().channel().bell();
        Set<Path> before = files();
        try (Pair pair = pair(way).listen()) {
            for (int i = 0; i < 6; i++) {
                End client = pair.connect();
                End server = pair.accept();
                client.write(random(300_000, i));
                server.awaitBytes(300_000);
                (i % 2 == 0 ? client : server).channel.close().sync();
                Engine.until("both ends", () -> client.isInactive && server.isInactive);
            }
            Engine.until("all but the two loops' bells to go", () -> files().stream().filter(file -> !before.contains(file)).count() <= 2);
        }
        Engine.until("files to go", () -> before.containsAll(files()));
    }

    private static Set<Path> files() {
        Set<Path> files = new HashSet<>(engine.files());
        files.addAll(other.files());
        return files;
    }

    @Test
    void a_loop_that_has_ended_makes_nothing_at_an_engine() throws Exception {
        Device device = Device.at(engine.door).join();
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(1, HighwireIoHandler.newFactory(engine.door));
        HighwireIoHandler handler = HighwireIoHandler.of(group.next());
        Set<Path> before = files();
        // As the call of a negotiation that is on its way when the loop ends.
        handler.bellAt(device);
        assertFalse(before.containsAll(files()));
        group.shutdownGracefully(0, 1, TimeUnit.SECONDS).sync();
        CompletableFuture<Object> late = new CompletableFuture<>();
        Device.control(() -> {
            try {
                late.complete(handler.bellAt(device));
            } catch (IOException e) {
                late.completeExceptionally(e);
            }
        });
        Throwable refused = assertThrows(ExecutionException.class, () -> late.get(Engine.PATIENCE_SECONDS, TimeUnit.SECONDS)).getCause();
        assertEquals("the event loop has ended", refused.getMessage());
        Engine.until("files to go", () -> before.containsAll(files()));
    }

    /** A client's channel beside which something else happens once, in the middle of a turn. */
    private static final class Interrupted extends HighwireSocketChannel {
        private final AtomicReference<Runnable> once = new AtomicReference<>();
        private final SocketChannelConfig watched = (SocketChannelConfig) Proxy.newProxyInstance(
                getClass().getClassLoader(), new Class<?>[] {SocketChannelConfig.class}, (proxy, method, arguments) -> {
                    if (method.getName().equals("isAutoRead") && StackWalker.getInstance().walk(frames -> frames.anyMatch(at -> at.getMethodName().equals("turn")))) {
                        Runnable beside = once.getAndSet(null);
                        if (beside != null) {
                            beside.run();
                        }
                    }
                    return method.invoke(super.config(), arguments);
                });

        @Override
        public SocketChannelConfig config() {
            return watched == null ? super.config() : watched;
        }
    }

    @Test
    void a_peer_that_closes_in_the_middle_of_a_turn_breaks_nothing() throws Exception {
        try (Pair pair = pair(Way.NEAR).listen()) {
            pair.clients = Interrupted::new;
            End client = pair.connect();
            End server = pair.accept();
            Interrupted channel = (Interrupted) client.channel;
            channel.once.set(() -> server.channel.close().syncUninterruptibly());
            client.channel.eventLoop().submit(() -> { }).sync();
            Engine.until("the end", () -> client.isInactive);
            assertNull(channel.once.get());
            assertTrue(client.exceptions.isEmpty(), client.exceptions.toString());
        }
    }

    @ParameterizedTest
    @EnumSource
    void cancelled_writes_do_not_arrive(Way way) throws Exception {
        try (Pair pair = pair(way).listen()) {
            End client = pair.connect();
            End server = pair.accept();
            for (byte i = 0; i < 5; i++) {
                ChannelFuture written = client.channel.write(Unpooled.wrappedBuffer(new byte[] {i, i}));
                assertTrue(i % 2 == 1 || written.cancel(false));
            }
            client.channel.flush();
            server.awaitBytes(4);
            assertArrayEquals(new byte[] {1, 1, 3, 3}, server.bytes());
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_peer_that_does_not_linger_resets_the_connection(Way way) throws Exception {
        try (Pair pair = pair(way).listen()) {
            End client = pair.connect();
            End server = pair.accept();
            client.channel.config().setSoLinger(0);
            client.channel.close().sync();
            Engine.until("the end", () -> server.isInactive);
            assertTrue(server.exceptions.toString().contains("Connection reset"), server.exceptions.toString());
            assertFalse(server.exceptions.toString().contains("ended without closing"), server.exceptions.toString());
        }
    }

    @ParameterizedTest
    @EnumSource
    void a_peer_that_has_closed_breaks_the_pipe(Way way) throws Exception {
        try (Pair pair = pair(way).autoRead(false).listen()) {
            End client = pair.connect();
            End server = pair.accept();
            server.channel.close().sync();
            Throwable[] cause = new Throwable[1];
            Engine.until("a broken pipe", () -> {
                ChannelFuture written = client.write(new byte[100_000]);
                assertTrue(written.awaitUninterruptibly(Engine.PATIENCE_SECONDS, TimeUnit.SECONDS));
                cause[0] = written.cause();
                return cause[0] != null;
            });
            assertInstanceOf(IOException.class, cause[0]);
        }
    }
}
