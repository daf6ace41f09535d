package highwire.ffm;

import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import highwire.verbs.Opcode;

/** Posting a send request as a stateful call: described once, changed in place. Its setters return it. */
public final class PostSend extends Post<PostSend> {
    private static final int FENCE = 1;
    private static final int SIGNALED = 1 << 1;
    private static final int SOLICITED = 1 << 2;

    private final Opcode opcode;
    private final boolean isAtomic;

    PostSend(QueuePair queuePair, Opcode opcode, int pieces) {
        super(queuePair, queuePair.domain.device.postSend, Layout.SEND_BYTES, Layout.SEND_SG_LIST, Layout.SEND_NUM_SGE, pieces);
        this.opcode = opcode;
        isAtomic = opcode == Opcode.COMPARE_SWAP || opcode == Opcode.FETCH_ADD;
        request.set(JAVA_INT, Layout.SEND_OPCODE, opcode.number());
        request.set(JAVA_INT, Layout.SEND_FLAGS, SIGNALED);
    }

    @Override
    PostSend self() {
        return this;
    }

    /**
     * Sets the memory of a piece.
     *
     * @param piece from 0
     * @param region where it lies
     * @param offset from the region's begin
     * @param length in bytes
     * @return this
     */
    public PostSend sge(int piece, MemoryRegion region, long offset, int length) {
        piece(piece, region, offset, length, isAtomic || opcode == Opcode.READ);
        return this;
    }

    /**
     * Names the peer's memory.
     *
     * @param address where in the peer's memory
     * @param rkey the peer's key
     * @return this
     */
    public PostSend remote(long address, int rkey) {
        request.set(JAVA_LONG, Layout.SEND_REMOTE_ADDR, address);
        request.set(JAVA_INT, isAtomic ? Layout.SEND_ATOMIC_RKEY : Layout.SEND_RKEY, rkey);
        return this;
    }

    /**
     * Sets the immediate data.
     *
     * @param value four bytes that go along
     * @return this
     */
    public PostSend imm(int value) {
        request.set(JAVA_INT, Layout.SEND_IMM, Integer.reverseBytes(value));
        return this;
    }

    /**
     * Sets the operands of a compare-and-swap.
     *
     * @param compare what must be there
     * @param swap what is stored then
     * @return this
     */
    public PostSend compareSwap(long compare, long swap) {
        checkAtomic();
        request.set(JAVA_LONG, Layout.SEND_COMPARE_ADD, compare);
        request.set(JAVA_LONG, Layout.SEND_SWAP, swap);
        return this;
    }

    /**
     * Sets the operand of a fetch-and-add.
     *
     * @param value what is added
     * @return this
     */
    public PostSend add(long value) {
        checkAtomic();
        request.set(JAVA_LONG, Layout.SEND_COMPARE_ADD, value);
        return this;
    }

    /** For operations other than atomics, the key lies there. */
    private void checkAtomic() {
        if (!isAtomic) {
            throw new IllegalArgumentException(opcode + " is no atomic");
        }
    }

    /**
     * Says whether success makes a completion.
     *
     * @param isSignaled whether success makes a completion; it does unless told otherwise
     * @return this
     */
    public PostSend signaled(boolean isSignaled) {
        return flag(SIGNALED, isSignaled);
    }

    /**
     * Says whether the message is solicited.
     *
     * @param isSolicited whether the peer's queue is to report it as solicited
     * @return this
     */
    public PostSend solicited(boolean isSolicited) {
        return flag(SOLICITED, isSolicited);
    }

    /**
     * Says whether the request waits for READs and atomics before it.
     *
     * @param isFenced whether it waits for READs and atomics before it
     * @return this
     */
    public PostSend fence(boolean isFenced) {
        return flag(FENCE, isFenced);
    }

    private PostSend flag(int bit, boolean isSet) {
        int flags = request.get(JAVA_INT, Layout.SEND_FLAGS);
        request.set(JAVA_INT, Layout.SEND_FLAGS, isSet ? flags | bit : flags & ~bit);
        return this;
    }
}
