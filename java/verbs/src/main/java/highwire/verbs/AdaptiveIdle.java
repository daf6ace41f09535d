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
 */
final class AdaptiveIdle implements IdleStrategy {
    /** A call of yield that takes longer has let another thread run. */
    private static final long YIELD_NANOS = 20_000;
    /** In a row; after this many the number of waits that rest grows no more. */
    private static final int MISSES_MAX = 4;

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
        boolean isWanted = now - last > YIELD_NANOS;
        last = now;
        return !isWanted;
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
