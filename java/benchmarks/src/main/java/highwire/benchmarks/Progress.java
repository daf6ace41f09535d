package highwire.benchmarks;

/**
 * The current measurement and the time that the rest will take, in lines on the error output; the tables go
 * to the standard output.
 */
public final class Progress {
    private static final long MINUTE = 60;

    private final int steps;
    private final long started = System.nanoTime();
    private int begun;

    /** @param steps how many there will be. */
    public Progress(int steps) {
        this.steps = steps;
    }

    /** @param what begins now. */
    public void step(String what) {
        System.err.println(line(what, (System.nanoTime() - started) / 1_000_000_000));
        begun++;
    }

    /** The line for the next step, so many seconds after the start. */
    String line(String what, long seconds) {
        String left = begun == 0 ? "" : ", about " + duration(seconds * (steps - begun) / begun) + " left";
        return String.format("%d of %d: %s%s", begun + 1, steps, what, left);
    }

    /** Skips to another step, without a line. */
    void begin(int step) {
        begun = step;
    }

    private static String duration(long seconds) {
        return seconds < 2 * MINUTE ? seconds + " s" : (seconds + MINUTE / 2) / MINUTE + " min";
    }
}
