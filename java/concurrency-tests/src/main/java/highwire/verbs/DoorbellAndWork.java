package highwire.verbs;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;
import static org.openjdk.jcstress.annotations.Expect.FORBIDDEN;

import java.lang.foreign.MemorySegment;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.JJ_Result;

/**
 * Two posts and an engine that takes bells meanwhile: a bell is left for every request that the engine has
 * not seen.
 */
@JCStressTest
@Outcome(id = {"0, 1", "1, 1", "2, 1"}, expect = ACCEPTABLE, desc = "It has seen some, and the bell rings for the rest.")
@Outcome(id = "2, 0", expect = ACCEPTABLE, desc = "It has seen all.")
@Outcome(expect = FORBIDDEN, desc = "Work of which nobody is told.")
@State
public class DoorbellAndWork {
    private static final int BELL = 5;
    private final MemorySegment memory = Rings.ring(4);
    private final ProducerRing ring = new ProducerRing(memory, null);
    private final MemorySegment boardMemory = Rings.boardMemory();
    private final DoorbellBoard board = Rings.board(boardMemory);

    /** Posts twice. */
    @Actor
    public void ringer() {
        ring.publish(1);
        board.ring(BELL);
        ring.publish(1);
        board.ring(BELL);
    }

    /** Takes bells, and after each looks for work. */
    @Actor
    public void engine(JJ_Result result) {
        for (int turn = 0; turn < 3; turn++) {
            if (Rings.take(boardMemory, BELL)) {
                result.r1 = Mapped.getLongAcquire(memory, Layout.RING_TAIL_OFFSET);
            }
        }
    }

    /** Looks whether a bell is left. */
    @Arbiter
    public void left(JJ_Result result) {
        result.r2 = Rings.take(boardMemory, BELL) ? 1 : 0;
    }
}
