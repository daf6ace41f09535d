package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import java.time.temporal.ChronoUnit;
import java.util.concurrent.atomic.AtomicReference;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;

/** Every duration is one that can be waited for. */
class TimeoutsTest extends WithEngine {
    static Duration[] long_() {
        return new Duration[] {
            Duration.ofDays(30), Duration.ofNanos(Long.MAX_VALUE), Duration.ofMillis(Long.MAX_VALUE), Duration.ofSeconds(Long.MAX_VALUE, 999_999_999),
            ChronoUnit.FOREVER.getDuration(),
        };
    }

    static Duration[] short_() {
        return new Duration[] {Duration.ZERO, Duration.ofNanos(1), Duration.ofSeconds(-1), Duration.ofSeconds(Long.MIN_VALUE), Duration.ofNanos(Long.MIN_VALUE)};
    }

    @Test
    void durationsSaturate() {
        for (Duration forEver : long_()) {
            assertTrue(Timeouts.nanos(forEver) >= Duration.ofDays(30).toNanos());
            long now = System.nanoTime();
            assertTrue(now + Timeouts.nanos(forEver) - now > 0);
            assertTrue(Timeouts.millis(forEver) >= Duration.ofDays(30).toMillis());
            assertTrue(Timeouts.socketMillis(forEver) >= Duration.ofDays(24).toMillis());
        }
        for (Duration none : short_()) {
            assertTrue(Timeouts.nanos(none) <= 1 && Timeouts.nanos(none) >= 0);
            assertTrue(Timeouts.millis(none) <= 1 && Timeouts.millis(none) >= 0);
            assertEquals(1, Timeouts.socketMillis(none), "0 would be for ever");
        }
        assertEquals(5, Timeouts.millis(Duration.ofNanos(4_000_001)));
    }

    @ParameterizedTest
    @MethodSource("long_")
    void aLongWaitEndsWithWhatItWaitsForAndNotBefore(Duration forEver) throws Exception {
        try (Context context = Context.open(engine.door, forEver); End end = new End(engine, Service.RC)) {
            context.protectionDomain().close();
            AtomicReference<Object> found = new AtomicReference<>();
            Thread waiting = Thread.ofPlatform().start(() -> {
                try {
                    found.set(end.cq.await(forEver));
                } catch (Throwable e) {
                    found.set(e);
                }
            });
            Engine.until("its sleep", () -> waiting.getState() == Thread.State.RUNNABLE && isAsleep(waiting) || !waiting.isAlive());
            assertNull(found.get(), () -> "it did not wait: " + found.get());
            end.qp.prepare(Access.ALL);
            end.receive(1, 0, 8);
            end.qp.modify(new QpAttr().state(QpState.ERROR));
            waiting.join();
            assertEquals(true, found.get());
        }
    }

    private static boolean isAsleep(Thread thread) {
        for (StackTraceElement frame : thread.getStackTrace()) {
            if (frame.getMethodName().equals("select")) {
                return true;
            }
        }
        return false;
    }

    @ParameterizedTest
    @MethodSource("short_")
    void aWaitOfNoTimeIsALook(Duration none) throws Exception {
        try (End end = new End(engine, Service.RC)) {
            assertFalse(end.cq.await(none));
            assertNull(end.channel.await(none));
        }
    }
}
