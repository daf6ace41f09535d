package highwire.verbs;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;
import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE_INTERESTING;
import static org.openjdk.jcstress.annotations.Expect.FORBIDDEN;

import java.lang.foreign.MemorySegment;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.JJ_Result;

/**
 * A post whose bell has rung already, for a request before it, while the engine takes that bell: the poster sets no bit then, and nothing but the
 * fence of the tail keeps its look at the bit behind what it has published.
 */
@JCStressTest
@Outcome(id = {"0, 1", "1, 1"}, expect = ACCEPTABLE, desc = "The bell rings for what it has not seen.")
@Outcome(id = "1, 0", expect = ACCEPTABLE, desc = "It has seen it.")
@Outcome(expect = FORBIDDEN, desc = "Work of which nobody is told.")
@State
public class DoorbellRungBefore {
    private static final int BELL = 5;
    private final MemorySegment memory = Rings.ring(4);
    private final ProducerRing ring = new ProducerRing(memory, null);
    private final MemorySegment boardMemory = Rings.boardMemory();
    private final DoorbellBoard board = Rings.board(boardMemory);

    /** Makes a board whose bell has rung. */
    public DoorbellRungBefore() {
        board.ring(BELL);
    }

    /** Posts. */
    @Actor
    public void ringer() {
        ring.publish(1);
        board.ring(BELL);
    }

    /** Takes the bell, and looks for work. */
    @Actor
    public void engine(JJ_Result result) {
        Rings.take(boardMemory, BELL);
        result.r1 = Mapped.getLongAcquire(memory, Layout.RING_TAIL_OFFSET);
    }

    /** Looks whether a bell is left. */
    @Arbiter
    public void left(JJ_Result result) {
        result.r2 = Rings.take(boardMemory, BELL) ? 1 : 0;
    }

    /** The same with a tail that is published by a store with Release. An accident is rare: look for it at length. */
    @JCStressTest
    @Outcome(id = {"0, 1", "1, 1", "1, 0"}, expect = ACCEPTABLE, desc = "As it should be.")
    @Outcome(id = "0, 0", expect = ACCEPTABLE_INTERESTING, desc = "Work of which nobody is told.")
    @State
    public static class PlantedTailWithoutFence {
        private final MemorySegment memory = Rings.ring(4);
        private final MemorySegment boardMemory = Rings.boardMemory();
        private final DoorbellBoard board = Rings.board(boardMemory);

        /** Makes a board whose bell has rung. */
        public PlantedTailWithoutFence() {
            board.ring(BELL);
        }

        /** Posts. */
        @Actor
        public void ringer() {
            Mapped.putLongRelease(memory, Layout.RING_TAIL_OFFSET, 1);
            board.ring(BELL);
        }

        /** Takes the bell, and looks for work. */
        @Actor
        public void engine(JJ_Result result) {
            Rings.take(boardMemory, BELL);
            result.r1 = Mapped.getLongAcquire(memory, Layout.RING_TAIL_OFFSET);
        }

        /** Looks whether a bell is left. */
        @Arbiter
        public void left(JJ_Result result) {
            result.r2 = Rings.take(boardMemory, BELL) ? 1 : 0;
        }
    }
}
