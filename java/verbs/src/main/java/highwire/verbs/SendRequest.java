package highwire.verbs;

import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.List;

/**
 * A send request as it is described once; {@link QueuePair#postSend} serialises it. The setters return this.
 *
 * <pre>
 *  0 wr_id u64 │ 8 opcode u8, flags u8, pieces u16, inline bytes u32 │ 16 immediate u32 │ 20 rkey u32 │ 24 remote address u64
 *  32 compare or add, or low half of a GID u64 │ 40 swap, or high half u64 │ 48 QPN u32, Q_Key u32 │ 56 flow u64
 *  64 inline bytes, or pieces: address u64, length u32, lkey u32
 * </pre>
 */
public final class SendRequest {
    final Opcode opcode;
    final List<MemoryRegion> regions = new ArrayList<>();
    final List<long[]> pieces = new ArrayList<>();
    final List<Sge> sges = new ArrayList<>();
    byte[] inline;
    long wrId;
    int flags = Layout.FLAG_SIGNALED;
    int imm;
    int rkey;
    long remoteAddress;
    long compareAdd;
    long swap;
    Gid gid;
    int remoteQpn;
    int qkey;

    /**
     * Describes a request of this operation.
     *
     * @param opcode the operation
     */
    public SendRequest(Opcode opcode) {
        this.opcode = opcode;
    }

    /**
     * Names the request.
     *
     * @param id comes back in the completion
     * @return this
     */
    public SendRequest wrId(long id) {
        this.wrId = id;
        return this;
    }

    /**
     * Adds a piece of memory.
     *
     * @param region where it lies
     * @param offset from the region's begin
     * @param length in bytes
     * @return this
     */
    public SendRequest sge(MemoryRegion region, long offset, int length) {
        checkPiece(region, offset, length, opcode.writesLocally());
        regions.add(region);
        pieces.add(new long[] {offset, length});
        sges.add(new Sge(region.address() + offset, length, region.lkey()));
        return this;
    }

    /**
     * Puts bytes into the request itself.
     *
     * @param bytes are copied into the request itself, instead of pieces of memory
     * @return this
     */
    public SendRequest inline(byte[] bytes) {
        if (opcode.writesLocally()) {
            throw new IllegalArgumentException(opcode + " brings data here and has none to send");
        }
        this.inline = bytes.clone();
        return this;
    }

    /**
     * Names the peer's memory.
     *
     * @param address where in the peer's memory
     * @param rkey the peer's key
     * @return this
     */
    public SendRequest remote(long address, int rkey) {
        this.remoteAddress = address;
        this.rkey = rkey;
        return this;
    }

    /**
     * Sets the immediate data.
     *
     * @param value four bytes that go along
     * @return this
     */
    public SendRequest imm(int value) {
        this.imm = value;
        return this;
    }

    /**
     * Sets the operands of a compare-and-swap.
     *
     * @param compare what must be there
     * @param swap what is stored then
     * @return this
     */
    public SendRequest compareSwap(long compare, long swap) {
        this.compareAdd = compare;
        this.swap = swap;
        return this;
    }

    /**
     * Sets the operand of a fetch-and-add.
     *
     * @param value what is added
     * @return this
     */
    public SendRequest add(long value) {
        this.compareAdd = value;
        return this;
    }

    /**
     * Names a datagram's destination.
     *
     * @param address the peer's device
     * @param qpn its queue pair
     * @param key its Q_Key
     * @return this
     */
    public SendRequest to(InetAddress address, int qpn, int key) {
        this.gid = Gid.of(address);
        this.remoteQpn = qpn;
        this.qkey = key;
        return this;
    }

    /**
     * Says whether success makes a completion.
     *
     * @param isSignaled whether success makes a completion; it does unless told otherwise
     * @return this
     */
    public SendRequest signaled(boolean isSignaled) {
        return flag(Layout.FLAG_SIGNALED, isSignaled);
    }

    /**
     * Says whether the message is solicited.
     *
     * @param isSolicited whether the peer's queue is to report it as solicited
     * @return this
     */
    public SendRequest solicited(boolean isSolicited) {
        return flag(Layout.FLAG_SOLICITED, isSolicited);
    }

    /**
     * Says whether the request waits for READs and atomics before it.
     *
     * @param isFenced whether it waits for READs and atomics before it
     * @return this
     */
    public SendRequest fence(boolean isFenced) {
        return flag(Layout.FLAG_FENCE, isFenced);
    }

    private SendRequest flag(int bit, boolean isSet) {
        flags = isSet ? flags | bit : flags & ~bit;
        return this;
    }

    static void checkPiece(MemoryRegion region, long offset, long length, boolean isWritten) {
        region.checkOpen();
        if (offset < 0 || length < 0 || length > region.length() - offset) {
            throw new IndexOutOfBoundsException(
                    length + " bytes at " + offset + " are not within a region of " + region.length());
        }
        if (isWritten && (region.access & Access.LOCAL_WRITE) == 0) {
            throw new IllegalArgumentException("the region was registered without LOCAL_WRITE");
        }
    }

    /** The length of the serialised request in bytes: the control part and the rest, in whole words. */
    int imageBytes() {
        int data = inline == null ? Layout.SGE_BYTES * sges.size() : inline.length + 7 & ~7;
        return (int) Layout.WQE_DATA + data;
    }

    /** Writes the request in the ring's form. */
    void serialise(MemorySegment image, long at) {
        boolean isDatagram = gid != null;
        int length = inline == null ? 0 : inline.length;
        int allFlags = flags | (inline == null ? 0 : Layout.FLAG_INLINE) | (isDatagram ? Layout.FLAG_DATAGRAM : 0);
        int count = inline == null ? sges.size() : 0;
        Mapped.putLong(image, at + Layout.WQE_WR_ID, wrId);
        Mapped.putLong(
                image, at + Layout.WQE_OPCODE, opcode.number | allFlags << 8 | count << 16 | (long) length << 32);
        Mapped.putInt(image, at + Layout.WQE_IMM, imm);
        Mapped.putInt(image, at + Layout.WQE_RKEY, opcode.isRemote() ? rkey : 0);
        Mapped.putLong(image, at + Layout.WQE_REMOTE_ADDR, opcode.isRemote() ? remoteAddress : 0);
        Mapped.putLong(image, at + Layout.WQE_COMPARE_ADD, isDatagram ? gid.low() : opcode.isAtomic() ? compareAdd : 0);
        Mapped.putLong(image, at + Layout.WQE_SWAP, isDatagram ? gid.high() : opcode.isAtomic() ? swap : 0);
        Mapped.putLong(
                image, at + Layout.WQE_QPN, isDatagram ? remoteQpn | Integer.toUnsignedLong(qkey) << 32 : 0);
        // Hop limit 64; no other marking.
        Mapped.putLong(image, at + Layout.WQE_FLOW, isDatagram ? 64L << 40 : 0);
        if (inline != null) {
            MemorySegment.copy(MemorySegment.ofArray(inline), 0, image, at + Layout.WQE_DATA, length);
            return;
        }
        for (int i = 0; i < count; i++) {
            sges.get(i).put(image, at + Layout.WQE_DATA + (long) Layout.SGE_BYTES * i);
        }
    }
}
