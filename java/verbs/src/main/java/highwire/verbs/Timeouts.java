package highwire.verbs;

import java.time.Duration;
import java.util.concurrent.TimeUnit;

/**
 * Durations as the numbers that clocks and sockets take. A duration that is too long for such a number becomes the longest one, and a
 * negative one becomes the shortest: {@code ChronoUnit.FOREVER.getDuration()} means for ever.
 */
public final class Timeouts {
    /** Half of what a {@code long} holds, 146 years: its sum with any {@code System.nanoTime()} can be compared by subtraction. */
    private static final long NANOS_MAX = Long.MAX_VALUE / 2;

    private Timeouts() {}

    /**
     * For a deadline of {@code System.nanoTime()}, which must be compared by subtraction.
     *
     * @param timeout any duration
     * @return nanoseconds, from 0 on
     */
    public static long nanos(Duration timeout) {
        return Math.clamp(TimeUnit.NANOSECONDS.convert(timeout), 0, NANOS_MAX);
    }

    /**
     * For methods that take a duration from 0 on.
     *
     * @param timeout any duration
     * @return milliseconds, rounded up, from 0 on
     */
    public static long millis(Duration timeout) {
        long nanos = nanos(timeout);
        return nanos == NANOS_MAX ? Math.max(0, TimeUnit.MILLISECONDS.convert(timeout)) : (nanos + 999_999) / 1_000_000;
    }

    /**
     * For the time-outs of a {@code java.net.Socket}, where 0 would mean for ever.
     *
     * @param timeout any duration
     * @return milliseconds, from 1 on
     */
    public static int socketMillis(Duration timeout) {
        return Math.clamp(millis(timeout), 1, Integer.MAX_VALUE);
    }
}
