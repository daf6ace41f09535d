package highwire.verbs;

import java.util.function.LongSupplier;

/**
 * Looks for a while, and only while no other thread wants the core.
 *
 * <pre>
 *  looking ──in vain──▶ the next wait looks ──in vain──▶ one rests ──in vain──▶ three rest … fifteen
 *     ▲                                                                              │
 *     └───────────────────────────── one success ◀───────────────────────────────────┘
 * </pre>
 *
 * <p>A thread whose core another one has taken meanwhile sleeps, and so do the next waits: as many as would have looked for that long. So looking costs at most as much as if
 * every wait looked in vain, however busy the machine is.
 */
final class AdaptiveIdle implements IdleStrategy {
    /** A call of yield that takes longer has let another thread run. */
    private static final long YIELD_NANOS = 20_000;
    /** In a row; after this many the number of waits that rest grows no more. */
    private static final int MISSES_MAX = 4;
    private static final int REST_MAX = 1023;

    private final long most;
    private final LongSupplier clock;
    private final Runnable yield;
    private long start;
    private long last;
    private boolean hasLooked;
    private int misses;
    /** Waits still to come without looking. */
    private int rest;

    AdaptiveIdle(long most, LongSupplier clock, Runnable yield) {
        this.most = most;
        this.clock = clock;
        this.yield = yield;
        begin();
    }

    @Override
    public void begin() {
        start = clock.getAsLong();
        last = start;
        hasLooked = false;
    }

    @Override
    public void found() {
        if (hasLooked) {
            misses = 0;
        }
        begin();
    }

    @Override
    public boolean goOn() {
        if (!hasLooked && isToRest()) {
            return false;
        }
        hasLooked = true;
        if (last - start >= most) {
            // 0, 1, 3, 7: the first failure may be chance.
            rest = (1 << misses) - 1;
            misses = Math.min(misses + 1, MISSES_MAX);
            return false;
        }
        yield.run();
        long now = clock.getAsLong();
        long away = now - last;
        last = now;
        if (away > YIELD_NANOS) {
            // Whoever yields waits until the others have had their turns. As many waits as would look for that long sleep at once instead.
            rest = (int) Math.min(away / most, REST_MAX);
            return false;
        }
        return true;
    }

    @Override
    public boolean isToRest() {
        if (rest == 0) {
            return most == 0;
        }
        rest--;
        return true;
    }
}
