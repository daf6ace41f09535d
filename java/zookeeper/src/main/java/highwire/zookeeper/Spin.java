package highwire.zookeeper;

/**
 * How long a thread looks for messages before it sleeps: for a while, and only while no other thread wants
 * its core. If that was in vain several times in a row, the thread sleeps at once for some times; after one
 * success it looks again each time.
 */
final class Spin {
    /** A call of yield that takes longer has let another thread run. */
    private static final long YIELD_NANOS = 20_000;
    /** In a row; after this many the number of skipped waits grows no more. */
    private static final int MISSES_MAX = 4;

    private final long most = Settings.spin().toNanos();
    private long start;
    private long last;
    /** The time since the wait began. */
    private boolean hasLooked;
    private int misses;
    /** Waits still to come without looking. */
    private int rest;

    Spin() {
        restart();
    }

    /** A wait begins. */
    void restart() {
        start = System.nanoTime();
        last = start;
        hasLooked = false;
    }

    /** The wait succeeded; the next one begins. */
    void found() {
        if (hasLooked) {
            misses = 0;
        }
        restart();
    }

    /** Lets others run; false when it is time to sleep. */
    boolean goOn() {
        if (!hasLooked && isToRest()) {
            return false;
        }
        hasLooked = true;
        if (last - start >= most) {
            missed();
            return false;
        }
        Thread.yield();
        long now = System.nanoTime();
        boolean isWanted = now - last > YIELD_NANOS;
        last = now;
        return !isWanted;
    }

    /** Whether a wait is skipped; each skip is one less. */
    boolean isToRest() {
        if (rest == 0) {
            return most == 0;
        }
        rest--;
        return true;
    }

    private void missed() {
        // 0, 1, 3, 7: the first failure may be chance.
        rest = (1 << misses) - 1;
        misses = Math.min(misses + 1, MISSES_MAX - 1);
    }
}
