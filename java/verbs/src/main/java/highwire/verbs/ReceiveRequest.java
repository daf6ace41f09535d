package highwire.verbs;

import java.lang.foreign.MemorySegment;
import java.util.ArrayList;
import java.util.List;

/** A receive as it is described once; {@link QueuePair#postRecv} serialises it. The setters return this. */
public final class ReceiveRequest {
    final List<MemoryRegion> regions = new ArrayList<>();
    final List<Sge> sges = new ArrayList<>();
    long wrId;

    /** A receive for messages without bytes, until pieces are added. */
    public ReceiveRequest() {}

    /**
     * Names the request.
     *
     * @param id comes back in the completion
     * @return this
     */
    public ReceiveRequest wrId(long id) {
        this.wrId = id;
        return this;
    }

    /**
     * Adds a piece of memory to receive into.
     *
     * @param region where it lies
     * @param offset from the region's begin
     * @param length in bytes
     * @return this
     */
    public ReceiveRequest sge(MemoryRegion region, long offset, int length) {
        SendRequest.checkPiece(region, offset, length, true);
        regions.add(region);
        sges.add(new Sge(region.address() + offset, length, region.lkey()));
        return this;
    }

    int imageBytes() {
        return Layout.RECEIVE_WQE_DATA + Layout.SGE_BYTES * sges.size();
    }

    /** Writes the receive in the ring's form. */
    void serialise(MemorySegment image) {
        Mapped.putLong(image, 0, wrId);
        Mapped.putLong(image, 8, sges.size());
        for (int i = 0; i < sges.size(); i++) {
            sges.get(i).put(image, Layout.RECEIVE_WQE_DATA + (long) Layout.SGE_BYTES * i);
        }
    }
}
