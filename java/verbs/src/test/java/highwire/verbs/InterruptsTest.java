package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;

/** An interrupt ends the call of its thread, and nothing else. */
class InterruptsTest {
    /** A thread in a call, and what came of it. */
    private static final class Caller {
        final AtomicReference<Throwable> thrown = new AtomicReference<>();
        volatile boolean wasInterrupted;
        final Thread thread;

        Caller(Executable call) {
            thread = Thread.ofPlatform().start(() -> {
                try {
                    call.execute();
                } catch (Throwable e) {
                    thrown.set(e);
                }
                wasInterrupted = Thread.currentThread().isInterrupted();
            });
        }

        boolean isIn(String method) {
            for (StackTraceElement frame : thread.getStackTrace()) {
                if (frame.getMethodName().equals(method)) {
                    return true;
                }
            }
            return false;
        }

        void awaitCall() {
            Engine.until("the call", () -> isIn("select") || isIn("lockInterruptibly") || !thread.isAlive());
            assertTrue(thread.isAlive(), () -> "it did not wait: " + thrown.get());
        }
    }

    private interface Making {
        VerbsObject make(End end) throws VerbsException;
    }

    /** Every call that makes something, interrupted while the engine is halted: it ends at once, the others go on, and nothing is left. */
    @Test
    void anInterruptEndsItsOwnCall() throws Exception {
        List<Making> makings = List.of(
                end -> end.context.protectionDomain(),
                end -> end.context.arena(4096),
                end -> end.context.completionQueue(16),
                end -> end.pd.register(end.arena.segment(), Access.ALL),
                end -> end.pd.sharedReceiveQueue(4, 1),
                end -> end.pd.queuePair(QueuePairConfig.of(Service.RC, end.cq)));
        try (Engine engine = Engine.start(); End end = new End(engine, Service.RC)) {
            for (Making making : makings) {
                making.make(end).close();
                long files = engine.files();
                engine.halt();
                Caller first = new Caller(() -> making.make(end));
                first.awaitCall();
                Caller second = new Caller(() -> making.make(end));
                second.awaitCall();
                List<VerbsObject> made = new ArrayList<>();
                Caller third = new Caller(() -> made.add(making.make(end)));
                third.awaitCall();
                first.thread.interrupt();
                second.thread.interrupt();
                first.thread.join();
                second.thread.join();
                assertInstanceOf(CallInterruptedException.class, first.thrown.get());
                assertInstanceOf(CallInterruptedException.class, second.thrown.get());
                assertTrue(first.wasInterrupted && second.wasInterrupted, "the status is kept");
                assertTrue(end.context.valid());
                engine.goOn();
                third.thread.join();
                assertFalse(third.wasInterrupted);
                assertEquals(1, made.size(), () -> "the third call: " + third.thrown.get());
                made.getFirst().close();
                assertEquals(files, engine.files(), "what was made for those that were interrupted");
            }
            // What the engine made for nobody does not keep the context's own objects from closing.
        }
    }

    @Test
    void aThreadThatIsInterruptedAlreadyClosesWhatItHas() throws Exception {
        try (Engine engine = Engine.start(); End other = new End(engine, Service.RC)) {
            long files = engine.files();
            End end = new End(engine, Service.RC);
            Thread.currentThread().interrupt();
            assertThrows(CallInterruptedException.class, () -> end.qp.modify(new QpAttr().state(QpState.ERROR)));
            assertThrows(CallInterruptedException.class, end.qp::query);
            assertDoesNotThrow(end::close);
            assertTrue(Thread.interrupted());
            Engine.until("the end of its files", () -> assertDoesNotThrow(engine::files) == files);
            other.context.protectionDomain().close();
        }
    }

    /** Closing goes on through an interrupt, which is not lost. */
    @Test
    void anInterruptDoesNotEndAClose() throws Exception {
        try (Engine engine = Engine.start(); End end = new End(engine, Service.RC)) {
            ProtectionDomain pd = end.context.protectionDomain();
            engine.halt();
            Caller closing = new Caller(pd::close);
            closing.awaitCall();
            closing.thread.interrupt();
            engine.goOn();
            closing.thread.join();
            assertEquals(null, closing.thrown.get());
            assertTrue(closing.wasInterrupted && pd.isClosed());
            end.context.protectionDomain().close();
        }
    }

    /** The data path knows no interrupts. */
    @Test
    void anInterruptedThreadPostsAndPolls() throws Exception {
        try (Engine engine = Engine.start()) {
            Engine beside = engine.startBeside();
            try (beside; End a = new End(engine, Service.RC); End b = new End(engine, Service.RC); End far = new End(beside, Service.RC); End near = new End(engine, Service.RC)) {
                End.connect(a, b);
                End.connect(near, far);
                for (End[] pair : new End[][] {{a, b}, {near, far}}) {
                    Thread.currentThread().interrupt();
                    pair[0].setWord(0, 4711);
                    pair[0].qp.postSend(pair[0].to(pair[1], Opcode.WRITE, 64).sge(pair[0].memory, 0, 8)).exec();
                    assertEquals(true, pair[0].success().isSuccess());
                    assertTrue(Thread.interrupted());
                    assertEquals(4711, pair[1].word(64));
                    assertTrue(pair[0].context.valid() && pair[1].context.valid());
                    pair[0].context.protectionDomain().close();
                }
            }
        }
    }
}
