package highwire.ffm;

/** Posting a receive as a stateful call. */
public final class PostRecv extends Post<PostRecv> {
    PostRecv(QueuePair queuePair, int pieces) {
        super(queuePair, queuePair.domain.device.postRecv, Layout.RECV_BYTES, Layout.RECV_SG_LIST, Layout.RECV_NUM_SGE, pieces);
    }

    @Override
    PostRecv self() {
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
    public PostRecv sge(int piece, MemoryRegion region, long offset, int length) {
        piece(piece, region, offset, length, true);
        return this;
    }
}
