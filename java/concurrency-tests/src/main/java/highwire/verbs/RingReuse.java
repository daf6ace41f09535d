package highwire.verbs;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;

import java.lang.foreign.MemorySegment;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.JJ_Result;

/** A slot is not written again before its consumer has read it. */
@JCStressTest
@Outcome(id = "7, 7", expect = ACCEPTABLE, desc = "What was posted first, whether or not there was room for more.")
@State
public class RingReuse {
    private final MemorySegment memory = Rings.ring(1);
    private final ProducerRing ring = new ProducerRing(memory, null);

    /** Makes a full ring. */
    public RingReuse() {
        Mapped.putLong(memory, Layout.RING_HEADER_BYTES, 7);
        Mapped.putLong(memory, Layout.RING_HEADER_BYTES + Rings.SLOT_BYTES - 8, 7);
        ring.publish(1);
    }

    /** Posts once more, if there is room. */
    @Actor
    public void producer() {
        if (ring.hasRoom(1)) {
            long slot = ring.slot(0);
            Mapped.putLong(memory, slot, 8);
            Mapped.putLong(memory, slot + Rings.SLOT_BYTES - 8, 8);
            ring.publish(1);
        }
    }

    /** Takes, and gives back. */
    @Actor
    public void consumer(JJ_Result result) {
        result.r1 = Mapped.getLong(memory, Layout.RING_HEADER_BYTES);
        result.r2 = Mapped.getLong(memory, Layout.RING_HEADER_BYTES + Rings.SLOT_BYTES - 8);
        Mapped.putLongRelease(memory, Layout.RING_HEAD_OFFSET, 1);
    }
}
