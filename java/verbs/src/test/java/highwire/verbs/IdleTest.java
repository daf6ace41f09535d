package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Duration;
import org.junit.jupiter.api.Test;

/** How long threads look, on a clock that only this test moves. */
class IdleTest {
    private long now = 1000;
    private long yieldNanos = 1_000;
    private final AdaptiveIdle idle = new AdaptiveIdle(10_000, () -> now, () -> now += yieldNanos);

    private int looks() {
        idle.begin();
        int looks = 0;
        while (idle.goOn()) {
            looks++;
        }
        return looks;
    }

    @Test
    void aWaitLooksForItsTimeAndRestsAfterItWasInVain() {
        int[] rests = {0, 1, 3, 7, 15, 15};
        for (int rest : rests) {
            assertEquals(10, looks());
            for (int i = 0; i < rest; i++) {
                assertEquals(0, looks(), "a wait that rests");
            }
        }
        assertEquals(10, looks());
    }

    @Test
    void oneSuccessEndsTheRests() {
        looks();
        looks();
        assertEquals(0, looks());
        idle.begin();
        assertTrue(idle.goOn());
        idle.found();
        assertEquals(10, looks());
        assertEquals(10, looks(), "the first failure may be chance");
        assertEquals(0, looks());
    }

    @Test
    void aThreadThatOthersWantSleepsAndRestsForWhatThatCost() {
        // The most that a wait looks is 10 µs: three waits are worth 30.
        yieldNanos = 30_000;
        assertEquals(0, looks());
        yieldNanos = 1_000;
        for (int i = 0; i < 3; i++) {
            assertEquals(0, looks(), "a wait that rests");
        }
        assertEquals(10, looks());
        assertEquals(10, looks(), "that was no miss");
    }

    @Test
    void noLossIsRestedForEver() {
        yieldNanos = Long.MAX_VALUE / 2;
        assertEquals(0, looks());
        yieldNanos = 1_000;
        int rests = 0;
        while (looks() == 0) {
            rests++;
        }
        assertEquals(1023, rests);
    }

    @Test
    void noTimeIsNoLook() {
        IdleStrategy none = IdleStrategy.adaptive(Duration.ZERO);
        none.begin();
        assertFalse(none.goOn());
        assertTrue(none.isToRest());
    }

    @Test
    void spinningLetsOthersRunAfterSoManyLooks() {
        IdleStrategy spinning = IdleStrategy.spinning(3);
        spinning.begin();
        for (int i = 0; i < 3; i++) {
            assertTrue(spinning.goOn() && spinning.goOn());
            assertFalse(spinning.goOn());
        }
        assertTrue(spinning.goOn());
        spinning.found();
        assertTrue(spinning.goOn() && spinning.goOn());
        IdleStrategy forEver = IdleStrategy.spinning();
        for (int i = 0; i < 1000; i++) {
            assertTrue(forEver.goOn());
        }
    }
}
