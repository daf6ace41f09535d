package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.management.ManagementFactory;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.junit.jupiter.api.Test;

/** A thread that does nothing but poll sees what comes from another thread, from the engine and from a peer, also when its loop has been compiled. */
class PollingTest {
    /** Processor time after which a loop that only polls has been compiled. */
    private static final long COMPILED_NANOS = TimeUnit.MILLISECONDS.toNanos(500);

    /** Starts a thread that polls until something is found; once its loop was compiled, {@code post} must make it end. */
    private static void findsWhatIsPosted(BooleanSupplier poll, Runnable post) throws InterruptedException {
        Thread poller = new Thread(() -> {
            while (!poll.getAsBoolean()) {
                // Nothing here may keep the compiler from looking once for all.
            }
        });
        poller.setDaemon(true);
        poller.start();
        Engine.until("a compiled loop", () -> ManagementFactory.getThreadMXBean().getThreadCpuTime(poller.threadId()) > COMPILED_NANOS);
        post.run();
        assertTrue(poller.join(Engine.PATIENCE), "the thread that polls does not see the completion");
    }

    private static BooleanSupplier poll(End end) {
        Completion completion = new Completion();
        return () -> end.cq.poll(completion);
    }

    private static BooleanSupplier call(End end) {
        PollCq call = end.cq.pollCall(4);
        return () -> call.exec().result() > 0;
    }

    @Test
    void whatAnotherThreadHasExecuted() throws Exception {
        try (Engine engine = Engine.start(); End a = new End(engine, Service.RC); End b = new End(engine, Service.RC)) {
            End.connect(a, b);
            PostSend write = a.qp.postSend(a.to(b, Opcode.WRITE, 64).sge(a.memory, 0, 8));
            findsWhatIsPosted(poll(a), write::exec);
            findsWhatIsPosted(call(a), write::exec);
        }
    }

    @Test
    void whatAPeerHasCompleted() throws Exception {
        try (Engine engine = Engine.start(); End a = new End(engine, Service.RC); End b = new End(engine, Service.RC)) {
            End.connect(a, b);
            PostSend send = a.qp.postSend(new SendRequest(Opcode.SEND).sge(a.memory, 0, 8).signaled(false));
            b.receive(1, 1024, 64);
            findsWhatIsPosted(poll(b), send::exec);
            b.receive(2, 1024, 64);
            findsWhatIsPosted(call(b), send::exec);
        }
    }

    @Test
    void whatTheEngineHasCompleted() throws Exception {
        try (Engine engine = Engine.start(); Engine other = engine.startBeside(); End a = new End(engine, Service.RC); End b = new End(other, Service.RC)) {
            End.connect(a, b);
            PostSend write = a.qp.postSend(a.to(b, Opcode.WRITE, 64).sge(a.memory, 0, 8));
            findsWhatIsPosted(poll(a), write::exec);
            findsWhatIsPosted(call(a), write::exec);
        }
    }
}
