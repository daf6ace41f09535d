package highwire.verbs;

import java.lang.ref.Cleaner;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Finds contexts and other objects that a program has forgotten to close, once the collector has found them, and reports each to the logger
 * {@value #LOGGER}.
 *
 * <p>A context that was forgotten is closed then, with everything that was made from it. Another object of a context that is still in
 * use is reported only, and goes with that context. The property {@value #LEVEL_PROPERTY} says how much a report tells.
 */
public final class LeakDetector {
    /** The property that sets the {@link Level}, by its name in lower or upper case; {@code simple} unless set. */
    public static final String LEVEL_PROPERTY = "highwire.leakDetection.level";
    /** The {@link System.Logger} that gets the reports, as warnings. */
    public static final String LOGGER = "highwire.leaks";

    /** How much is known of an object that was forgotten. */
    public enum Level {
        /** Nothing is reported. Contexts that were forgotten are closed all the same. */
        DISABLED,
        /** What it was. */
        SIMPLE,
        /** Where it was made as well, for contexts and for one of {@value LeakDetector#SAMPLED_OF} other objects. */
        ADVANCED,
        /** Where it was made, for every object. */
        PARANOID
    }

    /** Of so many objects one remembers where it was made, at {@link Level#ADVANCED}. */
    static final int SAMPLED_OF = 128;

    /** Reports that are written in full; of those after them, one each time their number has doubled. */
    private static final int REPORTED_MAX = 100;

    private static final Cleaner CLEANER = Cleaner.create();
    private static final AtomicLong LEAKED = new AtomicLong();
    private static final AtomicLong CONTEXTS = new AtomicLong();
    private static final AtomicLong TRACKED = new AtomicLong();
    private static volatile Level level = initialLevel();

    private LeakDetector() {}

    private static Level initialLevel() {
        String named = System.getProperty(LEVEL_PROPERTY, Level.SIMPLE.name());
        try {
            return Level.valueOf(named.strip().toUpperCase(Locale.ROOT));
        } catch (IllegalArgumentException e) {
            System.getLogger(LOGGER).log(System.Logger.Level.WARNING,
                    "-D" + LEVEL_PROPERTY + "=" + named + " is none of disabled, simple, advanced, paranoid; taken as simple");
            return Level.SIMPLE;
        }
    }

    /** {@return the present level} */
    public static Level level() {
        return level;
    }

    /**
     * Sets how much is reported.
     *
     * @param level for objects that are made from now on
     */
    public static void setLevel(Level level) {
        LeakDetector.level = level;
    }

    /** {@return how many objects were found that nobody had closed, contexts among them} */
    public static long leaked() {
        return LEAKED.get();
    }

    /** {@return how many of those were contexts} */
    public static long leakedContexts() {
        return CONTEXTS.get();
    }

    /** A hold on an object that must be closed. */
    static final class Tracker {
        private final AtomicBoolean isOver = new AtomicBoolean();
        private final String what;
        private final Throwable made;
        private final Runnable reclaim;
        private Cleaner.Cleanable cleanable;

        private Tracker(String what, Throwable made, Runnable reclaim) {
            this.what = what;
            this.made = made;
            this.reclaim = reclaim;
        }

        /** The object was closed. */
        void close() {
            isOver.set(true);
            if (cleanable != null) {
                cleanable.clean();
            }
        }

        private void found() {
            if (isOver.getAndSet(true)) {
                return;
            }
            if (level != Level.DISABLED) {
                report();
            }
            if (reclaim != null) {
                CONTEXTS.incrementAndGet();
                reclaim.run();
            }
        }

        private void report() {
            long count = LEAKED.incrementAndGet();
            if (count > REPORTED_MAX && Long.bitCount(count) != 1) {
                return;
            }
            String advice = made != null ? "It was made here:"
                    : "-D" + LEVEL_PROPERTY + "=" + (level == Level.SIMPLE ? "advanced" : "paranoid") + " tells where it was made.";
            System.getLogger(LOGGER).log(System.Logger.Level.WARNING,
                    "LEAK: a " + what + " was not closed before it was collected (" + count + " such objects so far). " + advice, made);
        }
    }

    /**
     * Watches an object. What is given must not refer to it.
     *
     * @param reclaim gives back what the object held; for contexts only, else null
     */
    static Tracker track(Object object, String what, Runnable reclaim) {
        Level now = level;
        if (now == Level.DISABLED && reclaim == null) {
            return new Tracker(what, null, null);
        }
        boolean isTraced = now == Level.PARANOID
                || now == Level.ADVANCED && (reclaim != null || TRACKED.getAndIncrement() % SAMPLED_OF == 0);
        Tracker tracker = new Tracker(what, isTraced ? new Throwable("a " + what + " was made") : null, reclaim);
        tracker.cleanable = CLEANER.register(object, tracker::found);
        return tracker;
    }
}
