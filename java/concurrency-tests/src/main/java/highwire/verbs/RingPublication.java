package highwire.verbs;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;

import java.lang.foreign.MemorySegment;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.JJ_Result;

/** A consumer that sees the tail sees the slot that it covers. */
@JCStressTest
@Outcome(id = "0, 0", expect = ACCEPTABLE, desc = "Nothing is published yet.")
@Outcome(id = "41, 43", expect = ACCEPTABLE, desc = "The whole slot.")
@State
public class RingPublication {
    private final MemorySegment memory = Rings.ring(4);
    private final ProducerRing ring = new ProducerRing(memory, null);

    /** Posts. */
    @Actor
    public void producer() {
        long slot = ring.slot(0);
        Mapped.putLong(memory, slot, 41);
        Mapped.putLong(memory, slot + Rings.SLOT_BYTES - 8, 43);
        ring.publish(1);
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
