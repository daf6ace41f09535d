package highwire.zookeeper;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;
import static org.openjdk.jcstress.annotations.Expect.FORBIDDEN;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.ZZ_Result;

/**
 * A sender that finds a full mailbox while its owner takes a message: it sees the room, or the owner rings
 * for it.
 */
@JCStressTest
@Outcome(id = {"true, false", "false, true", "true, true"}, expect = ACCEPTABLE, desc = "It is rung for, or sees the room.")
@Outcome(id = "false, false", expect = FORBIDDEN, desc = "It waits for room that is there, and nobody rings.")
@State
public class RoomAndWant {
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();
    private final MemorySegment memory = MemorySegment.ofArray(new long[8]);

    /** Takes a message; the first result is whether it rings. */
    @Actor
    public void taker(ZZ_Result result) {
        result.r1 = Mailbox.giveBack(memory, 1);
    }

    /**
     * Announces by a WRITE that it wants room, and READs the count of taken messages; the second result is
     * whether it sees the room.
     */
    @Actor
    public void sender(ZZ_Result result) {
        LONG.setRelease(memory, Mailbox.WANTED, 1L);
        VarHandle.fullFence();
        result.r2 = (long) LONG.getAcquire(memory, Mailbox.TAKEN) == 1;
    }
}
