package highwire.verbs;

import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;

/** Posting a receive as a stateful call, to a queue pair or to a shared receive queue. */
public final class PostRecv implements StatefulVerbCall<PostRecv> {
    private final VerbsObject owner;
    private final ProducerRing ring;
    private final Receives receives;
    private final DoorbellBoard board;
    private final int bell;
    private final MemoryRegion[] regions;
    private final Arena arena = Arena.ofAuto();
    private final MemorySegment image;
    private boolean isFreed;
    private int taken;

    /** {@code receives} are those of a queue pair that peers may complete; null for others. */
    PostRecv(VerbsObject owner, ProducerRing ring, Receives receives, int bell, ReceiveRequest described) {
        int count = described.sges.size();
        int room = (ring.slotBytes - Layout.RECEIVE_WQE_DATA) / Layout.SGE_BYTES;
        if (count > room) {
            throw new IllegalArgumentException("a receive of this queue has at most " + room + " pieces, not " + count);
        }
        this.owner = owner;
        this.ring = ring;
        this.receives = receives;
        this.board = owner.context.board;
        this.bell = bell;
        this.regions = described.regions.toArray(MemoryRegion[]::new);
        this.image = arena.allocate(described.imageBytes(), 8);
        described.serialise(image);
    }

    /**
     * Posts the receive.
     *
     * @throws QueueFullException every slot is taken
     */
    @Override
    public PostRecv exec() {
        taken = 0;
        if (isFreed) {
            throw new IllegalStateException("the call was freed");
        }
        owner.checkOpen();
        if (receives == null ? !ring.hasRoom(1) : !receives.hasRoom()) {
            throw QueueFullException.INSTANCE;
        }
        MemorySegment.copy(image, 0, ring.memory, ring.slot(0), image.byteSize());
        ring.publish(1);
        if (receives == null || receives.isBellWanted()) {
            board.ring(bell);
        }
        taken = 1;
        return this;
    }

    @Override
    public boolean valid() {
        if (isFreed || owner.isClosed()) {
            return false;
        }
        for (MemoryRegion region : regions) {
            if (region.isClosed()) {
                return false;
            }
        }
        return true;
    }

    @Override
    public int result() {
        return taken;
    }

    @Override
    public PostRecv free() {
        isFreed = true;
        return this;
    }

    /**
     * Names the request.
     *
     * @param id comes back in the completion
     * @return this
     */
    public PostRecv wrId(long id) {
        Mapped.putLong(image, 0, id);
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
    public PostRecv sge(int piece, long offset, int length) {
        SendRequest.checkPiece(regions[piece], offset, length, true);
        long sge = Layout.RECEIVE_WQE_DATA + (long) Layout.SGE_BYTES * piece;
        Mapped.putLong(image, sge, regions[piece].address() + offset);
        Mapped.putInt(image, sge + 8, length);
        return this;
    }
}
