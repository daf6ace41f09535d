package highwire.verbs;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;

/**
 * One-sided requests that the posting thread carries out itself, between queue pairs of one engine.
 *
 * <p>The checks are those of the responder, on the tables that the engine publishes. {@code in_use} is stored before the tables are read, with a
 * full fence between: either we see that an entry is gone, or the engine sees that we work on it and waits. Whatever speaks against a
 * request, it goes through the engine, whose verdict counts.
 */
final class DirectPath {
    /** Longer requests go through the engine, as those of its own do. */
    static final long BYTES_MAX = 4 << 20;

    private final Context context;
    private final EngineTables tables;
    private final MemorySegment sendRing;
    private final int qpn;
    private final EngineTables.Entry own = new EngineTables.Entry();
    private final EngineTables.Entry peer = new EngineTables.Entry();
    private int peerQpn;
    private int peerDomain;
    private int peerAccess;

    /** What a request knows of the region that it names. */
    static final class Target {
        private final EngineTables.Entry entry = new EngineTables.Entry();
        private long iova;
        private long length;
        private long before;
        private long behind;
        private long offset;
        private int domain;
        private int access;
        MemorySegment memory;
        /** Where in {@link #memory} the operation begins; set by {@link DirectPath#begin}. */
        long at;
    }

    DirectPath(Context context, MemorySegment sendRing, int qpn) {
        this.context = context;
        this.tables = context.tables;
        this.sendRing = sendRing;
        this.qpn = qpn;
    }

    void connected(int peerQpn) {
        this.peerQpn = peerQpn;
        own.at = -1;
        peer.at = -1;
    }

    /** Announces and checks; if true, {@code target} says where the bytes are, and {@link #end} must follow. */
    boolean begin(Target target, int rkey, long address, long length, int need) {
        long word = 1L << 63 | (long) peerQpn << 32 | Integer.toUnsignedLong(rkey);
        Mapped.putLongOpaque(sendRing, Layout.RING_IN_USE_OFFSET, word);
        VarHandle.fullFence();
        if (isConnected() && (peerAccess & need) == need && locate(target, rkey, address, length, need)) {
            return true;
        }
        end();
        return false;
    }

    /** The operation is over. */
    void end() {
        // Release: the copy is over before the engine sees that we are done.
        Mapped.putLongRelease(sendRing, Layout.RING_IN_USE_OFFSET, 0L);
    }

    private boolean isConnected() {
        return (tables.isCurrent(own, qpn) && tables.isCurrent(peer, peerQpn)) || readEntries();
    }

    private boolean readEntries() {
        own.at = -1;
        if (!tables.findQueuePair(peer, peerQpn) || !isReadyFor(peer, qpn)) {
            return false;
        }
        peerDomain = peer.low(0);
        peerAccess = peer.high(0);
        if (!tables.findQueuePair(own, qpn) || !isReadyFor(own, peerQpn)) {
            own.at = -1;
            return false;
        }
        return true;
    }

    private boolean isReadyFor(EngineTables.Entry entry, int other) {
        return entry.high(1) == 1
                && entry.low(1) == other
                && entry.words[2] == context.gid.low()
                && entry.words[3] == context.gid.high();
    }

    private boolean locate(Target target, int rkey, long address, long length, int need) {
        if (!tables.isCurrent(target.entry, rkey) && !readRegion(target, rkey)) {
            return false;
        }
        long into = address - target.iova;
        // What is not in the segment, at either end, is for the engine.
        if (target.domain != peerDomain
                || (target.access & need) != need
                || into < target.before
                || length > target.length - target.behind - into) {
            return false;
        }
        target.at = target.offset + into - target.before;
        return target.at <= target.memory.byteSize() - length;
    }

    private boolean readRegion(Target target, int rkey) {
        EngineTables.Entry entry = target.entry;
        if (!tables.findRegion(entry, rkey)) {
            return false;
        }
        int segment = entry.low(3);
        int boundTo = entry.high(3);
        MemorySegment memory = segment == 0 || boundTo != 0 ? null : context.peerMemory(segment);
        target.domain = entry.low(0);
        target.access = entry.high(0);
        target.iova = entry.words[1];
        target.length = entry.words[2];
        target.offset = entry.words[4];
        target.before = Integer.toUnsignedLong(entry.low(5));
        target.behind = Integer.toUnsignedLong(entry.high(5));
        target.memory = memory;
        boolean isSound = memory != null && target.length >= 0 && target.offset >= 0
                && target.offset <= memory.byteSize() && target.before <= target.length;
        if (!isSound) {
            entry.at = -1;
        }
        return isSound;
    }
}
