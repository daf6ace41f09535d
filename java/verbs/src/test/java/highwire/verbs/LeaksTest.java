package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.logging.Handler;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.Test;

/** What connections, failures and forgotten objects leave behind: nothing. */
class LeaksTest extends WithEngine {
    private static final int ROUNDS = 300;
    /** What may differ for reasons that have nothing to do with the number of rounds. */
    private static final long SOME = 24;

    /** Everything that an end of a conversation has, once, with a WRITE and a message to the peer. */
    private static void converse(End server) throws VerbsException {
        try (End client = new End(engine, Service.RC); CompletionQueue cq = server.context.completionQueue(16);
                QueuePair qp = server.pd.queuePair(QueuePairConfig.of(Service.RC, cq).withDepth(4, 4))) {
            qp.prepare(Access.ALL);
            client.qp.prepare(Access.ALL);
            client.qp.connect(qp.endpoint(), ConnectOptions.DEFAULT);
            qp.connect(client.qp.endpoint(), ConnectOptions.DEFAULT);
            client.receive(1, 0, 8);
            qp.postSend(new SendRequest(Opcode.WRITE).remote(client.memory.address(), client.memory.rkey()).sge(server.memory, 0, 8)).exec();
            qp.postSend(new SendRequest(Opcode.SEND).sge(server.memory, 0, 8)).exec();
            assertEquals(0, qp.postedToEngine(), "both were carried out here");
            assertTrue(client.success().isReceive());
            client.qp.postSend(client.to(server, Opcode.WRITE, 0).sge(client.memory, 0, 8)).exec();
            client.success();
        }
    }

    @Test
    void connectionsThatHaveEndedHoldNothing() throws Exception {
        try (End server = new End(engine, Service.RC)) {
            converse(server);
            Held before = Held.now(engine);
            for (int round = 0; round < ROUNDS; round++) {
                converse(server);
                assertEquals(0, server.context.resources.peers.count(), "mappings of peers that have gone");
            }
            Engine.until("the end of its files", () -> settled(before));
            Held.now(engine).assertNoMoreThan(before, SOME);
        }
    }

    private static boolean settled(Held before) {
        try {
            return engine.files() <= before.files() && Held.now(engine).engineDescriptors() <= before.engineDescriptors() + SOME;
        } catch (java.io.IOException e) {
            return false;
        }
    }

    /** A queue pair that stays, to a peer that registers one arena after the other. */
    @Test
    void memoryThatAPeerTakesBackIsLetGo() throws Exception {
        try (End server = new End(engine, Service.RC); End client = new End(engine, Service.RC)) {
            End.connect(server, client);
            for (int round = 0; round < 3 * Peer.HELD_MAX; round++) {
                try (RdmaArena arena = client.context.arena(4096);
                        MemoryRegion memory = client.pd.register(arena.segment(), Access.ALL)) {
                    PostSend write = server.qp.postSend(new SendRequest(Opcode.WRITE).remote(memory.address(), memory.rkey()).sge(server.memory, 0, 8));
                    server.setWord(0, round + 1);
                    write.exec();
                    server.success();
                    assertEquals(round + 1, Mapped.getLongAcquire(memory.segment(), 0));
                    // A target that was let go meanwhile is looked up again.
                    write.exec();
                    server.success();
                }
                assertTrue(server.context.resources.peers.count() <= Peer.HELD_MAX + 2);
            }
            assertEquals(0, server.qp.postedToEngine());
        }
    }

    /** One call for many regions, in turns: what was let go is found again, and nothing is written elsewhere. */
    @Test
    void moreMemoryThanIsKeptMappedIsReachedAllTheSame() throws Exception {
        int count = Peer.HELD_MAX + 16;
        try (End server = new End(engine, Service.RC); End client = new End(engine, Service.RC)) {
            End.connect(server, client);
            RdmaArena[] arenas = new RdmaArena[count];
            MemoryRegion[] memory = new MemoryRegion[count];
            PostSend[] writes = new PostSend[count];
            for (int i = 0; i < count; i++) {
                arenas[i] = client.context.arena(4096);
                memory[i] = client.pd.register(arenas[i].segment(), Access.ALL);
                writes[i] = server.qp.postSend(new SendRequest(Opcode.WRITE).remote(memory[i].address(), memory[i].rkey()).sge(server.memory, 0, 8));
            }
            for (int round = 1; round <= 4; round++) {
                for (int i = 0; i < count; i++) {
                    server.setWord(0, 1000L * round + i);
                    writes[i].exec();
                    server.success();
                }
                for (int i = 0; i < count; i++) {
                    assertEquals(1000L * round + i, Mapped.getLongAcquire(memory[i].segment(), 0));
                }
            }
            for (int i = 0; i < count; i++) {
                memory[i].close();
                arenas[i].close();
            }
        }
    }

    @Test
    void whatCannotBeMadeLeavesNothingBehind() throws Exception {
        Path nowhere = Files.createTempDirectory("door").resolve("door");
        try (End end = new End(engine, Service.RC)) {
            Runnable failures = () -> {
                assertThrows(NoEngineException.class, () -> Context.open(nowhere, Duration.ofSeconds(1)));
                assertThrows(VerbsException.class, () -> end.context.arena(1L << 60));
                assertThrows(VerbsException.class, () -> end.context.completionQueue(Integer.MAX_VALUE));
                assertThrows(VerbsException.class, () -> end.pd.queuePair(QueuePairConfig.of(Service.RC, end.cq).withDepth(1 << 30, 1)));
                Thread.currentThread().interrupt();
                assertThrows(CallInterruptedException.class, () -> engine.context());
                assertThrows(CallInterruptedException.class, end.context::completionChannel);
                assertThrows(CallInterruptedException.class, end.context::protectionDomain);
                assertTrue(Thread.interrupted());
            };
            failures.run();
            Held before = Held.now(engine);
            for (int round = 0; round < ROUNDS; round++) {
                failures.run();
            }
            Engine.until("the end of its files", () -> settled(before));
            Held.now(engine).assertNoMoreThan(before, SOME);
        } finally {
            Files.delete(nowhere.getParent());
        }
    }

    /** Keeps the logger, which is collected otherwise. */
    private static final Logger LOGGER = Logger.getLogger(LeakDetector.LOGGER);

    private static void forget(boolean asWell) throws VerbsException {
        Context context = engine.context();
        context.arena(1 << 20);
        if (asWell) {
            context.completionChannel();
        }
    }

    @Test
    void aContextThatIsForgottenIsReportedAndGivenBack() throws Exception {
        ConcurrentLinkedQueue<LogRecord> reports = new ConcurrentLinkedQueue<>();
        Handler handler = new Handler() {
            @Override
            public void publish(LogRecord record) {
                reports.add(record);
            }

            @Override
            public void flush() {}

            @Override
            public void close() {}
        };
        LOGGER.addHandler(handler);
        LOGGER.setUseParentHandlers(false);
        LeakDetector.Level was = LeakDetector.level();
        try {
            LeakDetector.setLevel(LeakDetector.Level.PARANOID);
            forget(true);
            Held before = Held.now(engine);
            long contexts = LeakDetector.leakedContexts();
            long all = LeakDetector.leaked();
            for (int i = 0; i < 8; i++) {
                forget(true);
            }
            Engine.until("the reports", () -> {
                System.gc();
                return LeakDetector.leakedContexts() >= contexts + 8 && LeakDetector.leaked() >= all + 24;
            });
            Engine.until("what they held", () -> settled(before));
            Held.now(engine).assertNoMoreThan(before, 4);
            LogRecord report = reports.stream().filter(record -> record.getMessage().contains("a context")).findFirst().orElseThrow();
            assertTrue(report.getMessage().startsWith("LEAK: "), report.getMessage());
            boolean isNamed = false;
            for (StackTraceElement frame : report.getThrown().getStackTrace()) {
                isNamed |= frame.getMethodName().equals("forget");
            }
            assertTrue(isNamed, "the report says where it was made");
            LeakDetector.setLevel(LeakDetector.Level.SIMPLE);
            reports.clear();
            forget(false);
            Engine.until("the report", () -> {
                System.gc();
                return reports.stream().anyMatch(record -> record.getMessage().contains("a context") && record.getThrown() == null);
            });
            LeakDetector.setLevel(LeakDetector.Level.DISABLED);
            Engine.until("the report of the arena", () -> {
                System.gc();
                return LeakDetector.leaked() >= all + 26;
            });
            long said = LeakDetector.leaked();
            long found = LeakDetector.leakedContexts();
            forget(true);
            Engine.until("its end", () -> {
                System.gc();
                return LeakDetector.leakedContexts() > found;
            });
            assertEquals(said, LeakDetector.leaked(), "nothing is reported, but it is given back");
        } finally {
            LeakDetector.setLevel(was);
            LOGGER.removeHandler(handler);
            LOGGER.setUseParentHandlers(true);
        }
    }

    @Test
    void whatIsClosedIsNoLeak() throws Exception {
        long before = LeakDetector.leaked();
        for (int i = 0; i < 16; i++) {
            new End(engine, Service.RC).close();
        }
        Object witness = new Object();
        java.lang.ref.WeakReference<Object> gone = new java.lang.ref.WeakReference<>(witness);
        witness = null;
        Engine.until("a collection", () -> {
            System.gc();
            return gone.get() == null;
        });
        assertFalse(LeakDetector.leaked() > before);
    }
}
