package highwire.verbs;

import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;

/**
 * A channel to which armed completion queues report. A waiting thread sleeps in the kernel, on a socket. One
 * thread waits at a time.
 */
public final class CompletionChannel extends VerbsObject {
    final long number;
    private final Frames events;
    private final Map<Long, CompletionQueue> queues = new ConcurrentHashMap<>();
    private final ConcurrentLinkedQueue<CompletionQueue> reported = new ConcurrentLinkedQueue<>();
    private final long[] word = new long[1];
    private volatile boolean isWoken;
    private Bell bell;

    CompletionChannel(Context context, Frames events, long number) {
        super(context, "completion channel");
        this.events = events;
        this.number = number;
        events.expectWords();
        begin();
    }

    void add(CompletionQueue queue) {
        queues.put(queue.handle, queue);
    }

    void remove(CompletionQueue queue) {
        queues.remove(queue.handle);
    }

    /** A completion that a thread of this program has made itself. */
    void report(CompletionQueue queue) {
        reported.add(queue);
        events.wakeup();
    }

    /** Ends the wait of the waiting thread, or else the next wait, at once. Any thread may call it. */
    public void wakeup() {
        isWoken = true;
        events.wakeup();
    }

    /**
     * Where programs of this machine wake a thread that waits here, with {@link Context#ring}, and the engine takes no part in it: for those that WRITE into each
     * other's memory, which completes nothing at the other end.
     *
     * @return the number of its {@link Bell}, which may be told to others
     * @throws VerbsException no socket can be opened
     */
    public synchronized long bell() throws VerbsException {
        checkOpen();
        try {
            if (bell == null) {
                bell = context.bell();
                events.listen(bell);
            }
            return bell.number();
        } catch (IOException e) {
            throw new VerbsException("no bell for the channel", e);
        }
    }

    /**
     * Waits for a queue to report.
     *
     * @param timeout how long at most
     * @return the queue, which must be polled; null if none has reported in time, {@link #wakeup} was called,
     * or the {@link #bell} rang
     * @throws EngineGoneException the engine has ended
     * @throws InterruptedException the thread was interrupted
     */
    public CompletionQueue await(Duration timeout) throws EngineGoneException, InterruptedException {
        FlightEvents.Wait event = new FlightEvents.Wait();
        event.begin();
        CompletionQueue reported = sleep(timeout);
        event.hasReported = reported != null;
        event.commit();
        return reported;
    }

    private CompletionQueue sleep(Duration timeout) throws EngineGoneException, InterruptedException {
        long deadline = System.nanoTime() + Timeouts.nanos(timeout);
        while (true) {
            checkOpen();
            CompletionQueue own = reported.poll();
            if (own != null) {
                return own;
            }
            if (isWoken) {
                isWoken = false;
                return null;
            }
            if (Thread.interrupted()) {
                throw new InterruptedException();
            }
            context.checkServed();
            long left = deadline - System.nanoTime();
            if (events.awaitWord(Math.max(0, left), word)) {
                CompletionQueue queue = queues.get(word[0]);
                if (queue != null) {
                    return queue;
                }
            } else if (events.takeRing()) {
                return rung();
            } else if (left <= 0) {
                return null;
            }
        }
    }

    /** The queue for which a peer has rung, if it was that. */
    private CompletionQueue rung() {
        for (CompletionQueue queue : queues.values()) {
            if (queue.hasRung()) {
                return queue;
            }
        }
        return null;
    }

    @Override
    void destroy() throws VerbsException {
        if (bell != null) {
            bell.close();
        }
    }

    @Override
    void release() {
        context.resources.close(events);
    }
}
