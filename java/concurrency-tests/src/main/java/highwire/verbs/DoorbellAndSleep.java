package highwire.verbs;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;
import static org.openjdk.jcstress.annotations.Expect.FORBIDDEN;

import java.lang.foreign.MemorySegment;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.Arbiter;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/** An engine that goes to sleep while a program posts: either it does not, or it is woken. */
@JCStressTest
@Outcome(id = {"0, 0", "0, 1"}, expect = ACCEPTABLE, desc = "It has seen the bell and stays awake.")
@Outcome(id = "1, 0", expect = ACCEPTABLE, desc = "It sleeps, and was sent a datagram.")
@Outcome(id = "1, 1", expect = FORBIDDEN, desc = "It sleeps, and nobody wakes it.")
@State
public class DoorbellAndSleep {
    private final MemorySegment ringMemory = Rings.ring(4);
    private final ProducerRing ring = new ProducerRing(ringMemory, null);
    private final MemorySegment boardMemory = Rings.boardMemory();
    private final DoorbellBoard board = Rings.board(boardMemory);

    /** Posts. */
    @Actor
    public void ringer() {
        ring.publish(1);
        board.ring(0);
    }

    /** Goes to sleep. */
    @Actor
    public void engine(II_Result result) {
        result.r1 = Rings.sleeps(boardMemory) ? 1 : 0;
    }

    /** The thread that takes the word sends the datagram. */
    @Arbiter
    public void taken(II_Result result) {
        result.r2 = (int) Mapped.getLong(boardMemory, Layout.BOARD_SLEEPING_OFFSET);
    }
}
