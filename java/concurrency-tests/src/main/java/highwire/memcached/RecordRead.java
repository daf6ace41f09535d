package highwire.memcached;

import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE;
import static org.openjdk.jcstress.annotations.Expect.ACCEPTABLE_INTERESTING;

import highwire.memcached.Record.Verdict;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Arrays;
import org.openjdk.jcstress.annotations.Actor;
import org.openjdk.jcstress.annotations.JCStressTest;
import org.openjdk.jcstress.annotations.Outcome;
import org.openjdk.jcstress.annotations.State;
import org.openjdk.jcstress.infra.results.II_Result;

/**
 * A chunk that is used again at once while it is read: a reader finds the old record, the new one, or none.
 */
public class RecordRead {
    private static final byte[] KEY = {'k', 'e', 'y'};
    private static final int LENGTH = 200;

    /** Not made. */
    protected RecordRead() {}

    /** A chunk with a record of ones. */
    static class Chunk {
        /** Checksums want memory beside the heap, as the server's is. */
        private final MemorySegment both = Arena.ofAuto().allocate(1024, 64);
        final MemorySegment memory = both.asSlice(0, 512);
        final MemorySegment landing = both.asSlice(512);
        final Item item = new Item(KEY);

        Chunk() {
            write(1);
        }

        final void write(int value) {
            byte[] bytes = new byte[LENGTH];
            Arrays.fill(bytes, (byte) value);
            Record.write(memory, 0, 100 + value, item, bytes);
        }

        final void read(II_Result result, boolean verifies) {
            MemorySegment.copy(memory, 0, landing, 0, 512);
            boolean isGood = verifies
                    ? Record.judge(landing, 0, 512, 0, KEY) == Verdict.GOOD
                    : Record.isOf(landing, 0, KEY) && Record.version(landing, 0) != 0;
            if (isGood) {
                byte[] value = Record.value(landing, 0);
                result.r1 = value[0];
                result.r2 = value[LENGTH - 1];
            }
        }
    }

    /** A reader's check of a record. */
    @JCStressTest
    @Outcome(id = {"0, 0", "1, 1", "2, 2"}, expect = ACCEPTABLE, desc = "One record, or none.")
    @State
    public static class Verified {
        private final Chunk chunk = new Chunk();

        /** Ends the record and writes another one. */
        @Actor
        public void server() {
            Record.clear(chunk.memory, 0);
            chunk.write(2);
        }

        /** Reads. */
        @Actor
        public void reader(II_Result result) {
            chunk.read(result, true);
        }
    }

    /** A reader that checks only the key and one version: a planted defect. */
    @JCStressTest
    @Outcome(id = {"0, 0", "1, 1", "2, 2"}, expect = ACCEPTABLE, desc = "One record, or none.")
    @Outcome(expect = ACCEPTABLE_INTERESTING, desc = "Parts of two records.")
    @State
    public static class PlantedUnverified {
        private final Chunk chunk = new Chunk();

        /** Ends the record and writes another one. */
        @Actor
        public void server() {
            Record.clear(chunk.memory, 0);
            chunk.write(2);
        }

        /** Reads. */
        @Actor
        public void reader(II_Result result) {
            chunk.read(result, false);
        }
    }
}
