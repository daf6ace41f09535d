package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.util.Arrays;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** Every operation once, between two programs of one engine and of two. */
class OperationsTest extends WithEngine {
    @Test
    void aMessageArrivesWithItsFourBytes() throws Exception {
        for (Service service : new Service[] {Service.RC, Service.UC}) {
            End[] ends = End.pair(engine, service);
            try (End a = ends[0]; End b = ends[1]) {
                b.receive(7, 100, 64);
                a.put(0, "hello, engine");
                PostSend call = a.qp.postSend(new SendRequest(Opcode.SEND_WITH_IMM).wrId(8).sge(a.memory, 0, 5)
                        .sge(a.memory, 7, 6).imm(0x01020304));
                assertEquals(1, call.exec().result());
                Completion received = b.success();
                assertEquals(7, received.wrId());
                assertTrue(received.isReceive() && received.hasImm());
                assertEquals(0x01020304, received.imm());
                assertEquals(11, received.byteLen());
                assertEquals("helloengine", b.text(100, 11));
                assertEquals(8, a.success().wrId());
            }
        }
    }

    @Test
    void oneSidedOperationsAreCarriedOutByThePoster() throws Exception {
        End[] ends = End.pair(engine, Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            oneSided(a, b);
            assertEquals(0, a.qp.postedToEngine(), "the engine had no part in it");
        }
    }

    @Test
    void oneSidedOperationsGoThroughTheEngineToAnotherOne() throws Exception {
        try (Engine other = engine.startBeside(); End a = new End(engine, Service.RC); End b = new End(other, Service.RC)) {
            End.connect(a, b);
            oneSided(a, b);
            assertEquals(14, a.qp.postedToEngine());
        }
    }

    private static void oneSided(End a, End b) {
        a.put(0, "one-sided and unaligned");
        a.qp.postSend(a.to(b, Opcode.WRITE, 1001).wrId(1).sge(a.memory, 0, 10).sge(a.memory, 10, 13)).exec();
        assertEquals(1, a.success().wrId());
        assertEquals("one-sided and unaligned", b.text(1001, 23));
        a.qp.postSend(a.to(b, Opcode.READ, 1005).wrId(2).sge(a.memory, 3000, 5)).exec();
        assertEquals(5, a.success().byteLen());
        assertEquals("sided", a.text(3000, 5));
        a.qp.postSend(a.to(b, Opcode.WRITE, 2000).wrId(3).inline("inline".getBytes())).exec();
        a.success();
        assertEquals("inline", b.text(2000, 6));

        b.setWord(512, 40);
        PostSend add = a.qp.postSend(a.to(b, Opcode.FETCH_ADD, 512).add(2).sge(a.memory, 64, 8));
        add.exec();
        a.success();
        assertEquals(40, a.word(64));
        add.request(0).add(-1);
        add.exec();
        a.success();
        assertEquals(42, a.word(64));
        PostSend swap = a.qp.postSend(a.to(b, Opcode.COMPARE_SWAP, 512).compareSwap(7, 8).sge(a.memory, 64, 8));
        swap.exec();
        a.success();
        assertEquals(41, a.word(64));
        assertEquals(41, b.word(512), "7 was not there");
        swap.request(0).compareSwap(41, 43);
        swap.exec();
        a.success();
        assertEquals(43, b.word(512));
        // All eight bytes are compared, and all eight are stored.
        b.setWord(512, 0x0000_0005_0000_0009L);
        for (long wrong : new long[] {0x0000_0004_0000_0009L, 0x0000_0005_0000_0008L, 9, 0x0000_0005_0000_0000L}) {
            swap.request(0).compareSwap(wrong, -1);
            swap.exec();
            a.success();
            assertEquals(0x0000_0005_0000_0009L, a.word(64));
            assertEquals(0x0000_0005_0000_0009L, b.word(512), "another word was there");
        }
        swap.request(0).compareSwap(0x0000_0005_0000_0009L, 0x7766_5544_3322_1100L);
        swap.exec();
        a.success();
        assertEquals(0x7766_5544_3322_1100L, b.word(512));
        b.setWord(512, 0xFFFF_FFFFL);
        add.request(0).add(1);
        add.exec();
        a.success();
        assertEquals(0x1_0000_0000L, b.word(512), "the sum carries");
        // Eight aligned bytes are one store.
        a.setWord(72, 0x1122334455667788L);
        a.qp.postSend(a.to(b, Opcode.WRITE, 520).sge(a.memory, 72, 8)).exec();
        a.success();
        assertEquals(0x1122334455667788L, b.word(520));
    }

    @Test
    void aCallIsChangedInPlaceAndCarriesOnWhereItPoints() throws Exception {
        End[] ends = End.pair(engine, Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            PostSend call = a.qp.postSend(a.to(b, Opcode.WRITE, 0).sge(a.memory, 0, 8));
            PollCq poll = a.cq.pollCall(4);
            for (int i = 0; i < 200; i++) {
                int at = 8 * (i % 100);
                a.setWord(at, i);
                call.request(0).wrId(i).remoteAddress(b.memory.address() + 4096 + at).sge(0, at, 8);
                call.exec();
                assertEquals(1, poll.exec().result());
                assertEquals(i, poll.completion(0).wrId());
                assertEquals(i, b.word(4096 + at));
            }
            assertEquals(0, poll.exec().result());
            assertTrue(call.valid());
            assertFalse(call.free().valid());
            assertThrows(IllegalStateException.class, call::exec);
        }
    }

    /** Order: a WRITE that a thread carries out itself, behind a SEND that the engine has in hand. */
    @Test
    void requestsKeepTheirOrderWhoeverCarriesThemOut() throws Exception {
        End[] ends = End.pair(engine, Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            PostSend first = a.qp.postSend(a.to(b, Opcode.WRITE, 0).wrId(1).sge(a.memory, 0, 8));
            PostSend second = a.qp.postSend(
                    new SendRequest(Opcode.SEND).wrId(2).sge(a.memory, 8, 8),
                    a.to(b, Opcode.WRITE, 16).wrId(3).sge(a.memory, 0, 8));
            PostSend third = a.qp.postSend(a.to(b, Opcode.WRITE, 8).wrId(4).sge(a.memory, 0, 8));
            for (int round = 1; round <= 300; round++) {
                b.receive(round, 64, 8);
                a.setWord(0, round);
                a.setWord(8, -round);
                assertEquals(4, first.exec().result() + second.exec().result() + third.exec().result());
                for (long expected = 1; expected <= 4; expected++) {
                    assertEquals(expected, a.success().wrId());
                }
                assertEquals(round, b.success().wrId());
                assertEquals(-round, b.word(64));
                assertEquals(round, b.word(8));
            }
        }
    }

    @Test
    void datagramsSayWhereTheyComeFrom() throws Exception {
        try (End a = new End(engine, Service.UD); End b = new End(engine, Service.UD)) {
            a.qp.activate(0x11);
            b.qp.activate(0x11);
            b.receive(1, 0, 128);
            SendRequest datagram = new SendRequest(Opcode.SEND).inline("datagram".getBytes())
                    .to(b.context.address(), b.qp.qpn(), 0x11);
            a.qp.postSend(datagram).exec();
            Completion received = b.success();
            assertEquals(48, received.byteLen());
            assertEquals(a.qp.qpn(), received.sourceQpn());
            assertEquals("datagram", b.text(40, 8));
            a.success();
            assertThrows(IllegalArgumentException.class, () -> a.qp.postSend(new SendRequest(Opcode.SEND)));
        }
    }

    @Test
    void queuePairsShareReceives() throws Exception {
        try (Context context = engine.context();
                ProtectionDomain pd = context.protectionDomain();
                RdmaArena arena = context.arena(4096);
                MemoryRegion memory = pd.register(arena.segment(), Access.ALL);
                CompletionQueue cq = context.completionQueue(16);
                SharedReceiveQueue srq = pd.sharedReceiveQueue(16, 2);
                QueuePair shared = pd.queuePair(QueuePairConfig.of(Service.RC, cq).withSrq(srq));
                End a = new End(engine, Service.RC)) {
            srq.postRecv(new ReceiveRequest().wrId(5).sge(memory, 0, 64)).exec();
            shared.connect(a.qp.endpoint(), ConnectOptions.DEFAULT);
            a.qp.connect(shared.endpoint(), ConnectOptions.DEFAULT);
            a.qp.postSend(new SendRequest(Opcode.SEND).inline(new byte[] {1, 2, 3})).exec();
            Completion completion = new Completion();
            Engine.until("the message", () -> cq.poll(completion));
            assertEquals(5, completion.wrId());
            assertThrows(IllegalStateException.class, () -> shared.postRecv(new ReceiveRequest()));
            assertThrows(InUseException.class, srq::close);
        }
    }

    @Test
    void aThreadSleepsUntilACompletionComes() throws Exception {
        End[] ends = End.pair(engine, Service.RC);
        try (End a = ends[0]; End b = ends[1]) {
            assertFalse(b.cq.await(Duration.ofMillis(20)), "nothing has come");
            for (int round = 0; round < 20; round++) {
                b.receive(round, 0, 8);
                Thread sender = Thread.ofPlatform().start(() -> a.qp.postSend(
                        new SendRequest(Opcode.SEND).inline(new byte[8])).exec());
                assertTrue(b.cq.await(Engine.PATIENCE), "a message wakes it");
                assertEquals(round, b.success().wrId());
                sender.join();
                a.success();
            }
            // A completion that another thread of this program makes without the engine wakes as well.
            AtomicReference<Throwable> failure = new AtomicReference<>();
            Thread sleeper = Thread.ofPlatform().start(() -> {
                try {
                    assertTrue(a.cq.await(Engine.PATIENCE));
                } catch (Throwable e) {
                    failure.set(e);
                }
            });
            a.qp.postSend(a.to(b, Opcode.WRITE, 0).sge(a.memory, 0, 8)).exec();
            sleeper.join();
            assertNull(failure.get());
            a.success();
            Thread.currentThread().interrupt();
            assertThrows(InterruptedException.class, () -> a.cq.await(Engine.PATIENCE));
        }
    }

    @Test
    void aThreadThatWaitsForAChannelCanBeWoken() throws Exception {
        try (End end = new End(engine, Service.RC)) {
            long start = System.nanoTime();
            // Before the wait and in the middle of it.
            end.channel.wakeup();
            assertNull(end.channel.await(Engine.PATIENCE));
            Thread sleeper = Thread.currentThread();
            Thread waker = Thread.ofPlatform().start(() -> {
                Engine.until("its sleep", () -> sleeper.getState() == Thread.State.RUNNABLE
                        && java.util.Arrays.stream(sleeper.getStackTrace()).anyMatch(at -> at.getMethodName().equals("select")));
                end.channel.wakeup();
            });
            assertNull(end.channel.await(Engine.PATIENCE));
            waker.join();
            assertTrue(System.nanoTime() - start < Engine.PATIENCE.toNanos(), "neither of them was the end of its time");
            assertNull(end.channel.await(Duration.ofMillis(1)), "a call wakes once");
        }
    }

    @Test
    void aBellEndsTheWaitOfAnotherProgramOrItsNextOne() throws Exception {
        try (End sleeper = new End(engine, Service.RC); End ringer = new End(engine, Service.RC)) {
            for (boolean isAsleep : new boolean[] {true, false, true}) {
                Thread waiting = Thread.ofPlatform().unstarted(() -> {
                    try {
                        assertNull(sleeper.channel.await(Duration.ofHours(1)));
                    } catch (EngineGoneException | InterruptedException e) {
                        throw new IllegalStateException(e);
                    }
                });
                long bell = sleeper.channel.bell();
                if (isAsleep) {
                    waiting.start();
                    Engine.until("sleep", () -> waiting.getState() == Thread.State.RUNNABLE && isInSelector(waiting));
                }
                assertTrue(ringer.context.ring(bell));
                if (!isAsleep) {
                    waiting.start();
                }
                waiting.join(Engine.PATIENCE);
                assertFalse(waiting.isAlive(), "the bell has rung");
            }
        }
    }

    private static boolean isInSelector(Thread thread) {
        return Arrays.stream(thread.getStackTrace()).anyMatch(frame -> frame.getClassName().endsWith("SelectorImpl"));
    }

    @Test
    void severalThreadsPostIntoOneCompletionQueue() throws Exception {
        try (Context context = engine.context();
                ProtectionDomain pd = context.protectionDomain();
                RdmaArena arena = context.arena(8192);
                MemoryRegion memory = pd.register(arena.segment(), Access.ALL);
                CompletionQueue cq = context.completionQueue(1024);
                QueuePair q0 = pd.queuePair(QueuePairConfig.of(Service.RC, cq));
                QueuePair q1 = pd.queuePair(QueuePairConfig.of(Service.RC, cq))) {
            q0.connect(q1.endpoint(), ConnectOptions.DEFAULT);
            q1.connect(q0.endpoint(), ConnectOptions.DEFAULT);
            int count = 20_000;
            Thread[] threads = new Thread[2];
            for (int t = 0; t < 2; t++) {
                QueuePair qp = t == 0 ? q0 : q1;
                long at = 64L * t;
                threads[t] = Thread.ofPlatform().start(() -> {
                    PostSend add = qp.postSend(new SendRequest(Opcode.FETCH_ADD).remote(memory.address() + 4096, memory.rkey())
                            .add(1).sge(memory, at, 8));
                    for (int i = 0; i < count; i++) {
                        add.request(0).wrId(i);
                        execWhenThereIsRoom(add);
                    }
                });
            }
            long[] next = new long[2];
            Completion completion = new Completion();
            for (int i = 0; i < 2 * count; i++) {
                Engine.until("a completion", () -> cq.poll(completion));
                int which = completion.qpn() == q0.qpn() ? 0 : 1;
                assertTrue(completion.isSuccess(), completion::toString);
                assertEquals(next[which]++, completion.wrId(), "those of one queue pair are in order");
            }
            for (Thread thread : threads) {
                thread.join();
            }
            assertEquals(2 * count, Mapped.getLongAcquire(memory.segment(), 4096));
        }
    }

    private static void execWhenThereIsRoom(PostSend call) {
        while (true) {
            try {
                call.exec();
                return;
            } catch (QueueFullException e) {
                Thread.yield();
            }
        }
    }
}
