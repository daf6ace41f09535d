package highwire.zookeeper;

/**
 * How long a thread looks for more before it sleeps: for a while, and only while no other thread wants its core. Where nothing came in all of that while several times in a row, the thread sleeps at
 * once for some times; one success, and it looks again each time.
 */
final class Spin {
    /** A call of yield that takes longer has let another thread run. */
    private static final long YIELD_NANOS = 20_000;
    /** In a row; after so many the rest grows no more. */
    private static final int MISSES_MAX = 4;

    private final long most = Settings.spin().toNanos();
    private long start;
    private long last;
    /** Since the wait began. */
    private boolean hasLooked;
    private int misses;
    /** Waits without looking that are still to come. */
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

    /** What was waited for has come; the next wait begins. */
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

    /** Whether a wait is not worth a look; each is one less. */
    boolean isToRest() {
        if (rest == 0) {
            return most == 0;
        }
        rest--;
        return true;
    }

    private void missed() {
        // 0, 1, 3, 7: the first may be chance.
        rest = (1 << misses) - 1;
        misses = Math.min(misses + 1, MISSES_MAX - 1);
    }
}
