package highwire.verbs;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;
import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE_INTERESTING;

import java.lang.foreign.MemorySegment;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;
import org.openjdk.jcstress.infra.results.JJ_Result;

/**
 * The same tests with a step left out. They must see the interesting results, or the tests beside them could
 * not fail.
 */
public class PlantedDefects {
    /** Not made. */
    protected PlantedDefects() {}

    /** The doorbell without the fence between the work and the look at the sleeper. */
    @JCStressTest
    @Outcome(id = {"0, 0", "0, 1", "1, 0"}, expect = ACCEPTABLE, desc = "As it should be.")
    @Outcome(id = "1, 1", expect = ACCEPTABLE_INTERESTING, desc = "It sleeps, and nobody wakes it.")
    @State
    public static class DoorbellWithoutFence {
        private final MemorySegment board = Rings.boardMemory();

        /** Rings with no more than Release. */
        @Actor
        public void ringer() {
            Mapped.putLongRelease(board, Layout.BOARD_WORDS_OFFSET, 1);
            Mapped.putLongRelease(board, Layout.BOARD_SUMMARY_OFFSET, 1);
            if (Mapped.getLongAcquire(board, Layout.BOARD_SLEEPING_OFFSET) != 0) {
                Mapped.putLong(board, Layout.BOARD_SLEEPING_OFFSET, 0);
            }
        }

        /** Goes to sleep. */
        @Actor
        public void engine(II_Result result) {
            result.r1 = Rings.sleeps(board) ? 1 : 0;
        }

        /** The thread that takes the word sends the datagram. */
        @Arbiter
        public void taken(II_Result result) {
            result.r2 = (int) Mapped.getLong(board, Layout.BOARD_SLEEPING_OFFSET);
        }
    }

    /** Publishes the tail before the slot that it covers. */
    @JCStressTest
    @Outcome(id = {"0, 0", "41, 43"}, expect = ACCEPTABLE, desc = "As it should be.")
    @Outcome(expect = ACCEPTABLE_INTERESTING, desc = "A slot that nobody has written.")
    @State
    public static class TailBeforeSlot {
        private final MemorySegment memory = Rings.ring(4);
        private final ProducerRing ring = new ProducerRing(memory, null);

        /** Publishes, then writes. */
        @Actor
        public void producer() {
            long slot = ring.slot(0);
            ring.publish(1);
            Mapped.putLong(memory, slot, 41);
            Mapped.putLong(memory, slot + Rings.SLOT_BYTES - 8, 43);
        }

        /** Takes. */
        @Actor
        public void consumer(JJ_Result result) {
            if (Mapped.getLongAcquire(memory, Layout.RING_TAIL_OFFSET) == 1) {
                result.r1 = Mapped.getLong(memory, Layout.RING_HEADER_BYTES);
                result.r2 = Mapped.getLong(memory, Layout.RING_HEADER_BYTES + Rings.SLOT_BYTES - 8);
            }
        }
    }
}
