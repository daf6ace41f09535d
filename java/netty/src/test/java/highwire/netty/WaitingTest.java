package highwire.netty;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import highwire.verbs.IdleStrategy;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.handler.timeout.IdleStateEvent;
import io.netty.handler.timeout.IdleStateHandler;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Event loops that have nothing to do. */
class WaitingTest {
    private static Engine engine;

    @BeforeAll
    static void start() {
        engine = Engine.start();
    }

    @AfterAll
    static void stop() throws Exception {
        engine.close();
    }

    @Test
    void a_loop_sleeps_without_turning_and_a_peer_wakes_it() throws Exception {
        try (Pair pair = new Pair(engine.door, engine.door).listen()) {
            End client = pair.connect();
            End server = pair.accept();
            HighwireIoHandler loop = HighwireIoHandler.of(server.channel.eventLoop());
            for (int i = 1; i <= 50; i++) {
                Engine.until("sleep", loop::isAsleep);
                long turns = loop.turns();
                LockSupport.parkNanos(1_000_000);
                assertEquals(turns, loop.turns(), "a loop that sleeps does not turn");
                client.write(new byte[1]);
                server.awaitBytes(i);
            }
            // Netty's selector looks again after a second by itself; that must not be what brings the bytes.
            assertTrue(loop.rings() >= 45, loop.rings() + " rings for 50 sleeps");
        }
    }

    /** A loop that never sleeps is not rung for, and takes what comes all the same. */
    @Test
    void a_loop_waits_as_it_was_told() throws Exception {
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(1, HighwireIoHandler.newFactory(engine.door, IdleStrategy::spinning));
        try (Pair pair = new Pair(engine.door, engine.door, group).listen()) {
            End client = pair.connect();
            End server = pair.accept();
            HighwireIoHandler loop = HighwireIoHandler.of(server.channel.eventLoop());
            client.write(new byte[1]);
            server.awaitBytes(1);
            long rings = loop.rings();
            for (int i = 2; i <= 50; i++) {
                client.write(new byte[1]);
                server.awaitBytes(i);
                assertFalse(loop.isAsleep());
            }
            assertEquals(rings, loop.rings());
        }
    }

    @Test
    void one_loop_serves_many_channels() throws Exception {
        try (Pair pair = new Pair(engine.door, engine.door).listen()) {
            List<End> clients = new ArrayList<>();
            List<End> servers = new ArrayList<>();
            for (int i = 0; i < 40; i++) {
                clients.add(pair.connect());
                servers.add(pair.accept());
            }
            for (int round = 1; round <= 5; round++) {
                for (int i = 0; i < clients.size(); i++) {
                    clients.get(i).write(new byte[] {(byte) i});
                }
                for (int i = 0; i < servers.size(); i++) {
                    servers.get(i).awaitBytes(round);
                    assertEquals(i, servers.get(i).bytes()[round - 1]);
                }
            }
            long threads = Thread.getAllStackTraces().keySet().stream().filter(thread -> thread.getName().startsWith("highwire-netty")).count();
            assertTrue(threads <= 8, threads + " threads of the transport");
        }
    }

    @Test
    void idle_channels_are_told_so() throws Exception {
        try (Pair pair = new Pair(engine.door, engine.door).listen()) {
            End client = pair.connect();
            pair.accept();
            client.channel.pipeline().addFirst(new IdleStateHandler(50, 0, 0, TimeUnit.MILLISECONDS));
            Engine.until("idleness", () -> client.events.contains(IdleStateEvent.FIRST_READER_IDLE_STATE_EVENT));
        }
    }
}
