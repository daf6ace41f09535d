package highwire.benchmarks.echo;

import java.io.IOException;
import org.HdrHistogram.Histogram;

/** A client whose own thread sends a message and waits for it. The methods are small, so that each is compiled for itself and soon. */
abstract class Turns implements Echo.Client {
    private int last;

    /**
     * Sends a message with this number in it and waits until it is back.
     *
     * @param number of the message
     * @return the number in the returned message
     */
    abstract int exchange(int number) throws Exception;

    @Override
    public final void run(int count, Histogram times) throws Exception {
        for (int i = 0; i < count; i++) {
            times.recordValue(turn());
        }
    }

    private long turn() throws Exception {
        int number = ++last;
        long start = System.nanoTime();
        int answer = exchange(number);
        long nanos = System.nanoTime() - start;
        if (answer != number) {
            throw new IOException("message " + number + " came back as " + answer);
        }
        return nanos;
    }
}
