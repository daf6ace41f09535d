package highwire.zookeeper;

/** How long a thread looks for more before it sleeps: for a while, and only while nobody else wants its core. */
final class Spin {
    /** A call of yield that takes longer has let another thread run. */
    private static final long YIELD_NANOS = 20_000;

    private final long most = Settings.spin().toNanos();
    private long start;
    private long last;

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
        if (last - start >= most) {
            return false;
        }
        Thread.yield();
        long now = System.nanoTime();
        boolean isWanted = now - last > YIELD_NANOS;
        last = now;
        return !isWanted;
    }
}
