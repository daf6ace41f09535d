package highwire.verbs;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/**
 * Posting send requests as a stateful call. The serialised requests lie off-heap; {@link #exec} copies them into the ring, or carries them out, and
 * {@link #request} changes them in place.
 */
public final class PostSend implements StatefulVerbCall<PostSend> {
    private final QueuePair queuePair;
    final Request[] requests;
    private final Arena arena;
    final MemorySegment image;
    private boolean isFreed;
    private int taken;

    PostSend(QueuePair queuePair, SendRequest... described) {
        this.queuePair = queuePair;
        this.requests = new Request[described.length];
        // Collected with the call: closing a shared arena costs a handshake with every thread.
        this.arena = Arena.ofAuto();
        long bytes = 0;
        for (SendRequest request : described) {
            bytes += request.imageBytes();
        }
        this.image = arena.allocate(bytes, 8);
        long at = 0;
        for (int i = 0; i < described.length; i++) {
            requests[i] = new Request(described[i], image, at);
            at += described[i].imageBytes();
        }
    }

    @Override
    public PostSend exec() {
        taken = 0;
        if (isFreed) {
            throw new IllegalStateException("the call was freed");
        }
        queuePair.post(this);
        return this;
    }

    void taken(int count) {
        taken = count;
    }

    @Override
    public boolean valid() {
        if (isFreed || queuePair.isClosed()) {
            return false;
        }
        for (Request request : requests) {
            if (!request.hasOpenRegions()) {
                return false;
            }
        }
        return true;
    }

    /** {@return how many requests the last {@link #exec} took; fewer than the call has only if it threw} */
    @Override
    public int result() {
        return taken;
    }

    @Override
    public PostSend free() {
        isFreed = true;
        return this;
    }

    /**
     * A request, to change it.
     *
     * @param index from 0
     * @return it
     */
    public Request request(int index) {
        return requests[index];
    }

    /** A serialised request. Setters write through to its image. */
    public static final class Request {
        final Opcode opcode;
        final int imageBytes;
        final long at;
        final MemorySegment image;
        final MemoryRegion[] regions;
        final long[] offsets;
        final int[] lengths;
        final Peer.Target target = new Peer.Target();
        final boolean isSignaled;
        final boolean isInline;
        final boolean mayBeDirect;
        final boolean isSolicited;
        int imm;
        long wrId;
        long remoteAddress;
        int rkey;
        long compareAdd;
        long swap;
        long total;
        /** A version, which grows with each change. */
        long version;

        Request(SendRequest described, MemorySegment image, long at) {
            this.opcode = described.opcode;
            this.imageBytes = described.imageBytes();
            this.image = image;
            this.at = at;
            this.regions = described.regions.toArray(MemoryRegion[]::new);
            this.offsets = described.pieces.stream().mapToLong(piece -> piece[0]).toArray();
            this.lengths = described.pieces.stream().mapToInt(piece -> (int) piece[1]).toArray();
            this.isSignaled = (described.flags & Layout.FLAG_SIGNALED) != 0;
            this.isInline = described.inline != null;
            this.wrId = described.wrId;
            this.remoteAddress = described.remoteAddress;
            this.rkey = described.rkey;
            this.compareAdd = described.compareAdd;
            this.swap = described.swap;
            this.mayBeDirect = !opcode.isAtomic() || regions.length == 1;
            this.isSolicited = (described.flags & Layout.FLAG_SOLICITED) != 0;
            this.imm = described.imm;
            described.serialise(image, at);
            this.total = isInline ? described.inline.length : 0;
            for (int length : lengths) {
                total += length;
            }
        }

        boolean hasOpenRegions() {
            for (MemoryRegion region : regions) {
                if (region.isClosed()) {
                    return false;
                }
            }
            return true;
        }

        /**
         * Names the request.
         *
         * @param id comes back in the completion
         * @return this
         */
        public Request wrId(long id) {
            version++;
            wrId = id;
            Mapped.putLong(image, at + Layout.WQE_WR_ID, id);
            return this;
        }

        /**
         * Sets the immediate data.
         *
         * @param value four bytes that go along
         * @return this
         */
        public Request imm(int value) {
            version++;
            imm = value;
            Mapped.putInt(image, at + Layout.WQE_IMM, value);
            return this;
        }

        /**
         * Names the place in the peer's memory.
         *
         * @param address where in the peer's memory
         * @return this
         */
        public Request remoteAddress(long address) {
            version++;
            remoteAddress = address;
            Mapped.putLong(image, at + Layout.WQE_REMOTE_ADDR, address);
            return this;
        }

        /**
         * Sets the peer's key.
         *
         * @param key the peer's key
         * @return this
         */
        public Request rkey(int key) {
            version++;
            rkey = key;
            Mapped.putInt(image, at + Layout.WQE_RKEY, key);
            return this;
        }

        /**
         * Sets the operands of a compare-and-swap.
         *
         * @param compare what must be there
         * @param value what is stored then
         * @return this
         */
        public Request compareSwap(long compare, long value) {
            version++;
            compareAdd = compare;
            swap = value;
            Mapped.putLong(image, at + Layout.WQE_COMPARE_ADD, compare);
            Mapped.putLong(image, at + Layout.WQE_SWAP, value);
            return this;
        }

        /**
         * Sets the operand of a fetch-and-add.
         *
         * @param value what is added
         * @return this
         */
        public Request add(long value) {
            version++;
            compareAdd = value;
            Mapped.putLong(image, at + Layout.WQE_COMPARE_ADD, value);
            return this;
        }

        /**
         * Moves a piece of memory within its region.
         *
         * @param piece from 0
         * @param offset from the region's begin
         * @param length in bytes
         * @return this
         */
        public Request sge(int piece, long offset, int length) {
            MemoryRegion region = regions[piece];
            SendRequest.checkPiece(region, offset, length, opcode.writesLocally());
            version++;
            total += length - lengths[piece];
            offsets[piece] = offset;
            lengths[piece] = length;
            long sge = at + Layout.WQE_DATA + (long) Layout.SGE_BYTES * piece;
            Mapped.putLong(image, sge, region.address() + offset);
            Mapped.putInt(image, sge + 8, length);
            return this;
        }

        /** {@return the inline bytes, to be overwritten} */
        public MemorySegment inlineData() {
            return image.asSlice(at + Layout.WQE_DATA, isInline ? total : 0);
        }
    }
}
