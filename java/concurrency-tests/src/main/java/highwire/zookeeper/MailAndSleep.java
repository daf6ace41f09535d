package highwire.zookeeper;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;
import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE_INTERESTING;
import static org.openjdk.jcstress.annotations.Expect.FORBIDDEN;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.ZZ_Result;

/** A message into the mailbox of a thread that lies down: it sees the message, or the sender sees that it has to ring. */
public class MailAndSleep {
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();

    /** Not made. */
    protected MailAndSleep() {}

    /** The end that receives: its word, and the number by which a slot shows a message. On one cache line, where an accident is most frequent. */
    static class End {
        private static final long MAIL = 8;
        private final MemorySegment memory = MemorySegment.ofArray(new long[8]);
        final SleepWord word = new SleepWord(memory);

        /**
         * The sender's steps: the WRITE, then the full fence with which each operation of the posting thread
         * begins, then the READ of the word. Returns whether it rings.
         */
        final boolean send() {
            LONG.setRelease(memory, MAIL, 1L);
            VarHandle.fullFence();
            return ((long) LONG.getOpaque(memory, 0L) & 1) != 0;
        }

        final boolean hasMail() {
            return (long) LONG.getAcquire(memory, MAIL) != 0;
        }

        /** Lies down without the fence. */
        final void drop() {
            LONG.setOpaque(memory, 0L, 1L);
        }
    }

    /** The steps as they are. */
    @JCStressTest
    @Outcome(id = {"true, false", "false, true", "true, true"}, expect = ACCEPTABLE, desc = "It is rung for, or sees the message.")
    @Outcome(id = "false, false", expect = FORBIDDEN, desc = "It sleeps beside a message, and nobody rings.")
    @State
    public static class Fenced {
        private final End end = new End();

        /** Sends; the first result is whether it rings. */
        @Actor
        public void sender(ZZ_Result result) {
            result.r1 = end.send();
        }

        /** Lies down and looks for the last time; the second is whether it sees the message. */
        @Actor
        public void sleeper(ZZ_Result result) {
            end.word.lieDown();
            result.r2 = end.hasMail();
        }
    }

    /** Without the sleeper's fence: a planted defect. */
    @JCStressTest
    @Outcome(id = {"true, false", "false, true", "true, true"}, expect = ACCEPTABLE, desc = "It is rung for, or sees the message.")
    @Outcome(id = "false, false", expect = ACCEPTABLE_INTERESTING, desc = "It sleeps beside a message, and nobody rings.")
    @State
    public static class PlantedWithoutFence {
        private final End end = new End();

        /** Sends. */
        @Actor
        public void sender(ZZ_Result result) {
            result.r1 = end.send();
        }

        /** Lies down. */
        @Actor
        public void sleeper(ZZ_Result result) {
            end.drop();
            result.r2 = end.hasMail();
        }
    }
}
