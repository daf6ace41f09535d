package highwire.zookeeper;

/**
 * How long a thread looks for more before it sleeps: for a while, and only while nobody else wants its core. Where somebody does, looking costs the time slice of another thread, so after that
 * the thread sleeps at once for a number of times.
 */
final class Spin {
    /** A call of yield that takes longer has let another thread run. */
    private static final long YIELD_NANOS = 20_000;
    /** Waits without looking, once another thread has run. */
    private static final int REST = 4;

    private final long most = Settings.spin().toNanos();
    private long start;
    private long last;
    private int rest;

    Spin() {
        reset();
    }

    /** There was something to do. */
    void reset() {
        start = System.nanoTime();
        last = start;
    }

    /** Lets others run; false when it is time to sleep. */
    boolean goOn() {
        if (rest > 0) {
            rest--;
            return false;
        }
        if (last - start >= most) {
            return false;
        }
        Thread.yield();
        long now = System.nanoTime();
        boolean isWanted = now - last > YIELD_NANOS;
        if (isWanted) {
            rest = REST;
        }
        last = now;
        return !isWanted;
    }
}
