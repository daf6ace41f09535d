package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;

/** What a thread claims of a peer while it carries out a request is released, whatever happens to the request. */
class ClaimsTest extends WithEngine {
    private static final int ROUNDS = 30;
    private static final int BYTES = 4 << 20;

    /** One thread executes requests without pause from (or into) memory that another one closes. */
    private static void closeUnderway(Opcode opcode) throws Exception {
        for (int round = 0; round < ROUNDS; round++) {
            try (End a = new End(engine, Service.RC); End b = new End(engine, Service.RC);
                    RdmaArena theirs = b.context.arena(BYTES)) {
                End.connect(a, b);
                MemoryRegion target = b.pd.register(theirs.segment(), Access.ALL);
                RdmaArena own = a.context.arena(BYTES);
                MemoryRegion source = a.pd.register(own.segment(), Access.ALL);
                for (int i = 0; i < 16; i++) {
                    b.qp.postRecv(new ReceiveRequest().sge(target, 0, BYTES)).exec();
                }
                boolean isAtomic = opcode.isAtomic();
                SendRequest request = new SendRequest(opcode).sge(source, 0, isAtomic ? 8 : BYTES);
                PostSend call = a.qp.postSend(opcode == Opcode.SEND ? request : request.remote(target.address(), target.rkey()));
                AtomicInteger executed = new AtomicInteger();
                AtomicReference<Throwable> thrown = new AtomicReference<>();
                Thread poster = Thread.ofPlatform().start(() -> {
                    Completion completion = new Completion();
                    try {
                        for (int i = 0; i < 16 || opcode != Opcode.SEND; i++) {
                            call.exec();
                            executed.incrementAndGet();
                            while (!a.cq.poll(completion)) {
                                Thread.yield();
                            }
                            if (!completion.isSuccess()) {
                                assertEquals(CompletionStatus.LOCAL_PROTECTION, completion.status());
                                return;
                            }
                        }
                    } catch (Throwable e) {
                        thrown.set(e);
                    }
                });
                int rounds = 1 + round % 4;
                Engine.until("some requests", () -> executed.get() >= rounds || !poster.isAlive());
                source.close();
                own.close();
                poster.join();
                assertNull(thrown.get(), () -> "the request goes to the engine, which refuses it: " + thrown.get());
                // The peer takes its memory back while the queue pair is open.
                target.close();
                assertEquals(0, Mapped.getLongAcquire(a.qp.sendRing(), Layout.RING_IN_USE_OFFSET));
            }
        }
    }

    @Test
    void aWriteWhoseSourceIsClosed() throws Exception {
        closeUnderway(Opcode.WRITE);
    }

    @Test
    void aReadWhosePlaceIsClosed() throws Exception {
        closeUnderway(Opcode.READ);
    }

    @Test
    void aMessageWhoseSourceIsClosed() throws Exception {
        closeUnderway(Opcode.SEND);
    }

    @Test
    void anAtomicWhosePlaceIsClosed() throws Exception {
        closeUnderway(Opcode.FETCH_ADD);
    }

    /** A queue pair that is closed under its poster has ended its operation before the peer may take its memory back. */
    @Test
    void aQueuePairThatIsClosedUnderItsPoster() throws Exception {
        for (int round = 0; round < ROUNDS; round++) {
            try (End a = new End(engine, Service.RC); End b = new End(engine, Service.RC)) {
                RdmaArena theirs = b.context.arena(BYTES);
                MemoryRegion target = b.pd.register(theirs.segment(), Access.ALL);
                RdmaArena own = a.context.arena(BYTES);
                MemoryRegion source = a.pd.register(own.segment(), Access.ALL);
                CompletionQueue cq = a.context.completionQueue(16);
                QueuePair qp = a.pd.queuePair(QueuePairConfig.of(Service.RC, cq));
                b.qp.prepare(Access.ALL);
                qp.connect(b.qp.endpoint(), ConnectOptions.DEFAULT);
                b.qp.connect(qp.endpoint(), ConnectOptions.DEFAULT);
                PostSend call = qp.postSend(new SendRequest(Opcode.WRITE).remote(target.address(), target.rkey()).sge(source, 0, BYTES));
                AtomicInteger executed = new AtomicInteger();
                AtomicReference<Throwable> thrown = new AtomicReference<>();
                Thread poster = Thread.ofPlatform().start(() -> {
                    Completion completion = new Completion();
                    try {
                        while (true) {
                            call.exec();
                            executed.incrementAndGet();
                            cq.poll(completion);
                        }
                    } catch (IllegalStateException e) {
                        // The queue pair is closed.
                    } catch (Throwable e) {
                        thrown.set(e);
                    }
                });
                int some = 1 + round % 4;
                Engine.until("some requests", () -> executed.get() >= some || !poster.isAlive());
                qp.close();
                target.close();
                theirs.close();
                poster.join();
                if (!(thrown.get() instanceof QueueFullException)) {
                    assertNull(thrown.get());
                }
                source.close();
                own.close();
                cq.close();
            }
        }
    }
}
