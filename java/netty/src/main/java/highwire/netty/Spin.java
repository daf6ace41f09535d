package highwire.netty;

/**
 * How long an event loop looks for more before it sleeps: for a while, and only while no other thread wants its core. After a look in vain it sleeps at once for the next
 * time, after the second in a row for three times, and so on; one success ends that.
 */
final class Spin {
    /** A call of yield that takes longer has let another thread run. */
    private static final long YIELD_NANOS = 20_000;
    private static final int MISSES_MAX = 4;

    private final long most = Settings.spinNanos();
    private long start;
    private long last;
    private int misses;
    /** Waits still to come without looking. */
    private int rest;
    private boolean isResting;

    void begin() {
        start = System.nanoTime();
        last = start;
        isResting = most == 0 || rest > 0;
        if (rest > 0) {
            rest--;
        }
    }

    void found() {
        if (!isResting) {
            misses = 0;
        }
    }

    /** Lets others run; false when it is time to sleep. */
    boolean goOn() {
        if (isResting) {
            return false;
        }
        if (last - start >= most) {
            rest = (1 << misses) - 1;
            misses = Math.min(misses + 1, MISSES_MAX);
            return false;
        }
        Thread.yield();
        long now = System.nanoTime();
        boolean isWanted = now - last > YIELD_NANOS;
        last = now;
        return !isWanted;
    }
}
