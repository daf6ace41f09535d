package highwire.verbs;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.JJ_Result;

/**
 * An entry of the engine's tables that changes while it is read: a reader finds the old one, the new one, or
 * none.
 */
@JCStressTest
@Outcome(id = {"1, 1", "2, 2", "0, 0"}, expect = ACCEPTABLE, desc = "One entry, or none.")
@State
public class TableRead {
    static final int QPN = 77;
    private final MemorySegment memory = Rings.heap(Layout.ENGINE_LANE_TABLE_OFFSET + 2 * Layout.ENTRY_BYTES);
    private final EngineTables tables;
    private final EngineTables.Entry entry = new EngineTables.Entry();
    private final long at = Layout.ENGINE_LANE_TABLE_OFFSET;

    /** Makes tables of one queue pair, which is there. */
    public TableRead() {
        Mapped.putLong(memory, 0, Layout.ENGINE_MAGIC);
        Mapped.putInt(memory, Layout.ENGINE_VERSION_OFFSET, Layout.ENGINE_VERSION);
        Mapped.putInt(memory, Layout.ENGINE_QP_SLOTS_OFFSET, 1);
        Mapped.putInt(memory, Layout.ENGINE_MR_SLOTS_OFFSET, 1);
        try {
            tables = new EngineTables(memory);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        Mapped.putLong(memory, at + 8, QPN | (long) Layout.ENTRY_LIVE << 32);
        fill(1);
    }

    private void fill(long value) {
        for (int word = 0; word < 6; word++) {
            Mapped.putLongOpaque(memory, at + 16 + 8L * word, value);
        }
    }

    /** Changes the entry as the engine does. */
    @Actor
    public void engine() {
        Mapped.putLongOpaque(memory, at, 1);
        VarHandle.releaseFence();
        fill(2);
        Mapped.putLongRelease(memory, at, 2);
    }

    /** Reads it. */
    @Actor
    public void program(JJ_Result result) {
        if (tables.findQueuePair(entry, QPN)) {
            result.r1 = entry.words[0];
            result.r2 = entry.words[5];
        }
    }
}
