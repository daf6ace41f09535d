package highwire.verbs;

import java.io.IOException;
import java.lang.foreign.MemorySegment;

/**
 * The peer's receives, as one sees them who completes them in the engine's place. The owner's view of the same memory is {@link Receives}.
 *
 * <pre>
 *  receive ring                                        completion ring
 *  128 tail u64       receives posted                   144 completed u64  receives that peers have completed
 *  256 head u64       receives taken                    384 arm u64        how much the owner wants a wake-up
 *  264 held u64       not 0: the engine alone takes     392 bell u64       the number of its bell, or 0
 *  512 slots, of which one is
 *      a receive      0 wr_id u64 │ 8 pieces u8 … │ 16 address u64 │ 24 length u32 │ 28 key u32
 *      or, completed, 0 wr_id u64 │ 8 status, opcode, flags │ 16 length u32 │ 20 immediate u32 │ 24 QPN │ 56 number + 1 u64
 * </pre>
 */
final class PeerReceives {
    private final MemorySegment ring;
    private final MemorySegment completions;
    private final int slotBytes;
    private final long mask;
    private final int qpn;

    /** Checks the headers of a peer's rings. */
    PeerReceives(MemorySegment ring, MemorySegment completions, int qpn) throws IOException {
        ProducerRing.check(ring, Layout.RING_KIND_RECEIVE);
        ProducerRing.check(completions, Layout.RING_KIND_COMPLETION);
        this.ring = ring;
        this.completions = completions;
        this.slotBytes = Mapped.getInt(ring, Layout.RING_SLOT_BYTES_OFFSET);
        this.mask = Mapped.getInt(ring, Layout.RING_SLOT_COUNT_OFFSET) - 1L;
        this.qpn = qpn;
    }

    /** Whether this mapping is one of its rings. */
    boolean uses(MemorySegment memory) {
        return memory == ring || memory == completions;
    }

    /** The number of the oldest receive; negative if none waits, or the engine holds them. */
    long oldest() {
        long head = Mapped.getLongAcquire(ring, Layout.RING_HEAD_OFFSET);
        long waiting = Mapped.getLongAcquire(ring, Layout.RING_TAIL_OFFSET) - head;
        boolean isFree = waiting > 0 && waiting <= mask + 1 && Mapped.getLongOpaque(ring, Layout.RING_HELD_OFFSET) == 0;
        return isFree ? head : -1;
    }

    private long slot(long number) {
        return Layout.RING_HEADER_BYTES + (number & mask) * slotBytes;
    }

    long wrId(long number) {
        return Mapped.getLong(ring, slot(number));
    }

    /** Whether the receive is one piece. */
    boolean hasOnePiece(long number) {
        return (byte) Mapped.getLong(ring, slot(number) + Layout.RECEIVE_WQE_SGES) == 1;
    }

    long address(long number) {
        return Mapped.getLong(ring, slot(number) + Layout.RECEIVE_WQE_DATA);
    }

    /** The key of its memory above its length. */
    long keyAndLength(long number) {
        return Mapped.getLong(ring, slot(number) + Layout.RECEIVE_WQE_DATA + 8);
    }

    /** Takes the receive; false if another has it. What was read of its slot before was valid if this is true: the slot is not written again before. */
    boolean take(long number) {
        return Mapped.LONG.compareAndSet(ring, Layout.RING_HEAD_OFFSET, number, number + 1);
    }

    /** Gives the receive that was taken last back; false if others have taken later ones meanwhile. */
    boolean giveBack(long number) {
        return Mapped.LONG.compareAndSet(ring, Layout.RING_HEAD_OFFSET, number + 1, number);
    }

    /** Completes a receive that was taken, and returns how its owner waits: {@link Layout#ARM_NEXT}, {@link Layout#ARM_SOLICITED} or 0. */
    long complete(long number, long wrId, PostSend.Request request, int status) {
        boolean isWrite = request.opcode == Opcode.WRITE_WITH_IMM;
        boolean hasImm = request.opcode != Opcode.SEND;
        long flags = hasImm ? Layout.CQE_WITH_IMM : 0;
        long opcode = isWrite ? Layout.CQE_OP_RECEIVE_WRITE : Layout.CQE_OP_RECEIVE;
        long imm = hasImm ? request.imm : 0;
        long slot = slot(number);
        Mapped.putLong(ring, slot + Layout.CQE_WR_ID, wrId);
        Mapped.putLong(ring, slot + Layout.CQE_STATUS, flags << 16 | opcode << 8 | status);
        Mapped.putLong(ring, slot + Layout.CQE_BYTE_LEN, imm << 32 | request.total);
        Mapped.putLong(ring, slot + Layout.CQE_QPN, qpn);
        // Release: the message and its completion are visible before the number that announces them.
        Mapped.putLongRelease(ring, slot + Layout.RECEIVE_COMPLETED, number + 1);
        // With a full fence: either the thread that arms the queue sees the completion, or this one sees that
        // it is armed.
        Mapped.LONG.getAndAdd(completions, Layout.RING_COMPLETED_OFFSET, 1L);
        return (long) Mapped.LONG.getVolatile(completions, Layout.RING_ARM_OFFSET);
    }

    /** Takes the duty of waking the owner, who waited like this; the number of its bell, or 0 if another has the duty. */
    long disarm(long armed) {
        return Mapped.LONG.compareAndSet(completions, Layout.RING_ARM_OFFSET, armed, 0L)
                ? Mapped.getLongOpaque(completions, Layout.RING_BELL_OFFSET)
                : 0;
    }
}
