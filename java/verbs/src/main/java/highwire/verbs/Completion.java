package highwire.verbs;

import java.lang.foreign.MemorySegment;

/** A completion, as polled. The object belongs to the caller; the next poll into it fills it again. */
public final class Completion {
    long wrId;
    int status;
    int opcode;
    int flags;
    int byteLen;
    int imm;
    int qpn;
    int sourceQpn;

    /** An empty one to poll into. */
    public Completion() {}

    /** Reads a CQE of the ring. */
    void read(MemorySegment ring, long slot) {
        long second = Mapped.getLong(ring, slot + Layout.CQE_STATUS);
        long third = Mapped.getLong(ring, slot + Layout.CQE_BYTE_LEN);
        long fourth = Mapped.getLong(ring, slot + Layout.CQE_QPN);
        wrId = Mapped.getLong(ring, slot + Layout.CQE_WR_ID);
        status = (int) second & 0xFF;
        opcode = (int) (second >>> 8) & 0xFF;
        flags = (int) (second >>> 16) & 0xFFFF;
        byteLen = (int) third;
        imm = (int) (third >>> 32);
        qpn = (int) fourth;
        sourceQpn = (int) (fourth >>> 32);
    }

    /**
     * Fills it, as another driver's poll does; all as {@code ibv_wc} has it.
     *
     * @param wrId the request's number
     * @param status how it ended
     * @param opcode what completed
     * @param flags further properties
     * @param byteLen bytes received or read
     * @param imm the sender's four bytes, in host order
     * @param qpn the queue pair
     * @param sourceQpn the queue pair that sent it
     * @return this
     */
    public Completion fill(long wrId, int status, int opcode, int flags, int byteLen, int imm, int qpn, int sourceQpn) {
        this.wrId = wrId;
        this.status = status;
        this.opcode = opcode;
        this.flags = flags;
        this.byteLen = byteLen;
        this.imm = imm;
        this.qpn = qpn;
        this.sourceQpn = sourceQpn;
        return this;
    }

    /** {@return what the request was called} */
    public long wrId() {
        return wrId;
    }

    /** {@return how it ended; after anything but success only {@link #wrId} and {@link #qpn} mean something} */
    public CompletionStatus status() {
        return CompletionStatus.of(status);
    }

    /** {@return whether it worked} */
    public boolean isSuccess() {
        return status == 0;
    }

    /** {@return whether it is of a receive} */
    public boolean isReceive() {
        return (opcode & 0x80) != 0;
    }

    /** {@return the operation that completed, in the numbers of {@code ibv_wc_opcode}} */
    public int opcode() {
        return opcode;
    }

    /** {@return bytes received or read} */
    public int byteLen() {
        return byteLen;
    }

    /** {@return whether four bytes came along} */
    public boolean hasImm() {
        return (flags & 2) != 0;
    }

    /** {@return whether the first 40 bytes of the receive are a routing header (UD)} */
    public boolean hasGrh() {
        return (flags & 1) != 0;
    }

    /** {@return the sender's four bytes, in host order} */
    public int imm() {
        return imm;
    }

    /** {@return the local queue pair} */
    public int qpn() {
        return qpn;
    }

    /** {@return the queue pair that sent it (UD)} */
    public int sourceQpn() {
        return sourceQpn;
    }

    @Override
    public String toString() {
        return "completion of " + wrId + " on queue pair " + Integer.toHexString(qpn) + ": " + status();
    }
}
