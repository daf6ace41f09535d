package highwire.ffm;

import static java.lang.foreign.ValueLayout.ADDRESS;
import static java.lang.foreign.ValueLayout.JAVA_INT;
import static java.lang.foreign.ValueLayout.JAVA_LONG;

import highwire.verbs.Access;
import highwire.verbs.QueueFullException;
import highwire.verbs.StatefulVerbCall;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.util.Objects;

/**
 * The common part of posts: a request as the library reads it, made once beside the heap, and its pieces of
 * memory behind it.
 *
 * @param <T> the call itself
 */
abstract class Post<T extends Post<T>> implements StatefulVerbCall<T> {
    private static final int ENOMEM = 12;

    final QueuePair queuePair;
    final MemorySegment request;
    private final long requestBytes;
    private final MemorySegment bad;
    private final MemorySegment function;
    private final MemoryRegion[] regions;
    private boolean isFreed;
    private int taken;

    Post(QueuePair queuePair, MemorySegment function, long requestBytes, long sgList, long numSge, int pieces) {
        if (pieces < 0) {
            throw new IllegalArgumentException("a request has no pieces, or some");
        }
        this.queuePair = queuePair;
        this.function = function;
        this.requestBytes = requestBytes;
        request = Arena.ofAuto().allocate(requestBytes + Layout.SGE_BYTES * pieces + 8, 8);
        bad = request.asSlice(requestBytes + Layout.SGE_BYTES * pieces);
        regions = new MemoryRegion[pieces];
        request.set(ADDRESS, sgList, request.asSlice(requestBytes));
        request.set(JAVA_INT, numSge, pieces);
    }

    abstract T self();

    @Override
    public T exec() {
        taken = 0;
        if (isFreed) {
            throw new IllegalStateException("the call was freed");
        }
        queuePair.checkOpen();
        for (MemoryRegion region : regions) {
            // The library would accept the key of a deregistered region, and only the device would notice.
            Objects.requireNonNull(region, "a piece was not said").checkOpen();
        }
        int errno = Libibverbs.post(function, queuePair.pointer, request, bad);
        if (errno == ENOMEM) {
            throw QueueFullException.INSTANCE;
        }
        if (errno != 0) {
            throw new IllegalStateException("the device refuses the request", new NativeVerbsException("a post", errno));
        }
        taken = 1;
        return self();
    }

    @Override
    public boolean valid() {
        if (isFreed || queuePair.isClosed()) {
            return false;
        }
        for (MemoryRegion region : regions) {
            if (region == null || region.isClosed()) {
                return false;
            }
        }
        return true;
    }

    /** @return whether the last execution took the request: 1, or 0. */
    @Override
    public int result() {
        return taken;
    }

    @Override
    public T free() {
        isFreed = true;
        return self();
    }

    /** @param id comes back in the completion. @return this */
    public T wrId(long id) {
        request.set(JAVA_LONG, 0, id);
        return self();
    }

    void piece(int piece, MemoryRegion region, long offset, int length, boolean isWritten) {
        region.checkOpen();
        if (offset < 0 || length < 0 || length > region.length() - offset) {
            throw new IndexOutOfBoundsException(length + " bytes at " + offset + " are not within a region of " + region.length());
        }
        if (region.domain != queuePair.domain) {
            throw new IllegalArgumentException("the region belongs to another protection domain");
        }
        if (isWritten && (region.access & Access.LOCAL_WRITE) == 0) {
            throw new IllegalArgumentException("the region was registered without LOCAL_WRITE");
        }
        regions[piece] = region;
        long at = requestBytes + Layout.SGE_BYTES * piece;
        request.set(JAVA_LONG, at, region.address() + offset);
        request.set(JAVA_INT, at + Layout.SGE_LENGTH, length);
        request.set(JAVA_INT, at + Layout.SGE_LKEY, region.lkey());
    }
}
