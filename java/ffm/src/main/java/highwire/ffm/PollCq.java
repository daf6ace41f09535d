package highwire.ffm;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import highwire.verbs.Completion;
import highwire.verbs.StatefulVerbCall;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** Polling as a stateful call. */
public final class PollCq implements StatefulVerbCall<PollCq> {
    private final CompletionQueue queue;
    private final MemorySegment found;
    private final int most;
    private int count;
    private boolean isFreed;

    PollCq(CompletionQueue queue, int most) {
        if (most < 1) {
            throw new IllegalArgumentException("a poll for " + most + " completions finds none");
        }
        this.queue = queue;
        this.most = most;
        found = Arena.ofAuto().allocate(most * Layout.WC_BYTES, 8);
    }

    @Override
    public PollCq exec() {
        if (isFreed) {
            throw new IllegalStateException("the call was freed");
        }
        count = queue.poll(most, found);
        if (count < 0) {
            throw new IllegalStateException("the completion queue has overflowed or is broken");
        }
        return this;
    }

    @Override
    public boolean valid() {
        return !isFreed && !queue.isClosed();
    }

    /** @return how many the last execution found. */
    @Override
    public int result() {
        return count;
    }

    @Override
    public PollCq free() {
        isFreed = true;
        return this;
    }

    /**
     * Reads a completion of the last execution.
     *
     * @param index from 0
     * @param into is filled
     * @return {@code into}
     */
    public Completion completion(int index, Completion into) {
        if (index < 0 || index >= count) {
            throw new IndexOutOfBoundsException("completion " + index + " of " + count);
        }
        long at = index * Layout.WC_BYTES;
        // Immediate data is big-endian in libibverbs, and in host order here.
        return into.fill(found.get(JAVA_LONG, at), found.get(JAVA_INT, at + Layout.WC_STATUS), found.get(JAVA_INT, at + Layout.WC_OPCODE), found.get(JAVA_INT, at + Layout.WC_FLAGS),
                found.get(JAVA_INT, at + Layout.WC_BYTE_LEN), Integer.reverseBytes(found.get(JAVA_INT, at + Layout.WC_IMM)), found.get(JAVA_INT, at + Layout.WC_QP_NUM),
                found.get(JAVA_INT, at + Layout.WC_SRC_QP));
    }
}
