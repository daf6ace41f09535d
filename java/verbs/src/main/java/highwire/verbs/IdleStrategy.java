package highwire.verbs;

import java.time.Duration;

/**
 * How a thread waits for what another thread or a peer brings about: how long it looks, before it sleeps or lets others run. An object belongs to one thread.
 *
 * <pre>{@code
 * idle.begin();
 * while (!hasCome()) {
 *     if (!idle.goOn()) {
 *         sleep();
 *         idle.begin();
 *     }
 * }
 * idle.found();
 * }</pre>
 */
public interface IdleStrategy {
    /** A wait begins. */
    void begin();

    /**
     * Lets a little time pass after a look in vain.
     *
     * @return whether to look again at once; false when it is time to sleep or, for a thread that never sleeps, to let others run
     */
    boolean goOn();

    /** The wait was not in vain. */
    void found();

    /**
     * Whether this wait is to be without looking, since looking has not paid lately. To be asked once for a wait, before it begins.
     *
     * @return false for strategies that always look
     */
    default boolean isToRest() {
        return false;
    }

    /**
     * For threads with a core of their own.
     *
     * @return a strategy that looks for ever
     */
    static IdleStrategy spinning() {
        return new SpinningIdle(0);
    }

    /**
     * For threads that look for ever and share their core.
     *
     * @param turns looks in vain until others may run
     * @return the strategy
     */
    static IdleStrategy spinning(int turns) {
        if (turns <= 0) {
            throw new IllegalArgumentException(turns + " looks: one at least");
        }
        return new SpinningIdle(turns);
    }

    /**
     * For threads that can sleep: they look while no other thread wants their core, and sleep at once for some waits if looking was in vain.
     *
     * @param most how long a wait looks at most; 0 sleeps at once
     * @return the strategy
     */
    static IdleStrategy adaptive(Duration most) {
        return new AdaptiveIdle(Timeouts.nanos(most), System::nanoTime, Thread::yield);
    }
}
