package highwire.benchmarks.echo;

import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;

/** Work for the JVM's collector: a thread that takes memory at a steady rate and keeps the newest of it. */
final class Garbage {
    private static final int BLOCK = 64 << 10;
    private static final int KEPT = 32;

    private Garbage() {}

    /** From now until the JVM ends, so many megabytes a second. */
    static void make(int megabytesPerSecond) {
        byte[][] kept = new byte[KEPT][];
        Thread thread = new Thread(() -> {
            long begin = System.nanoTime();
            for (long blocks = 0; ; blocks++) {
                kept[(int) (blocks % KEPT)] = new byte[BLOCK];
                while (blocks * BLOCK > (System.nanoTime() - begin) / 1e9 * megabytesPerSecond * 1e6) {
                    try {
                        Thread.sleep(1);
                    } catch (InterruptedException end) {
                        return;
                    }
                }
            }
        }, "garbage");
        thread.setDaemon(true);
        thread.start();
    }

    /** How often this JVM's memory has been collected. */
    static long collections() {
        return ManagementFactory.getGarbageCollectorMXBeans().stream().mapToLong(GarbageCollectorMXBean::getCollectionCount).sum();
    }
}
