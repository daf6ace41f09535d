package highwire.verbs;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.net.InetAddress;
import java.net.InetSocketAddress;

/**
 * Requests that the posting thread carries out itself, between queue pairs of one engine.
 *
 * <p>The checks are those of the responder, on the tables that the engine publishes. {@code in_use} is stored
 * before the tables are read, with a full fence between: either this thread sees that an entry is gone, or
 * the engine sees that the thread is at work and waits. Any objection to a request sends it through the
 * engine, whose verdict counts.
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
    /**
     * Where the peer's receives wait, and where they complete; null if the peer's program does not leave them
     * to other programs.
     */
    private MemorySegment peerReceives;
    private MemorySegment peerCompletions;
    private int peerSlotBytes;
    private long peerMask;
    /** The receive that is being completed. */
    private long taken;
    private long takenId;
    private InetSocketAddress bell;

    /** The cached region that a request names. */
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
        /** The operation's offset in {@link #memory}; set by {@link DirectPath#begin}. */
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

    /**
     * Announces and checks the operation; if true, {@code target} is the place of the bytes, and {@link #end}
     * must follow.
     */
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

    /**
     * The same for a message, which uses the peer's oldest receive. If true, that receive belongs to this
     * thread, {@code target} is the place of the bytes, and {@link #endMessage} must follow. The engine gets
     * all other cases: a receive of several pieces or one that is too short, one that the engine holds, or
     * none.
     */
    boolean beginMessage(Target target, PostSend.Request request) {
        if (!isConnected() || peerReceives == null) {
            return false;
        }
        MemorySegment receives = peerReceives;
        long head = Mapped.getLongAcquire(receives, Layout.RING_HEAD_OFFSET);
        long waiting = Mapped.getLongAcquire(receives, Layout.RING_TAIL_OFFSET) - head;
        if (waiting <= 0 || waiting > peerMask + 1 || Mapped.getLongOpaque(receives, Layout.RING_HELD_OFFSET) != 0) {
            return false;
        }
        long slot = Layout.RING_HEADER_BYTES + (head & peerMask) * peerSlotBytes;
        takenId = Mapped.getLong(receives, slot);
        boolean begins;
        if (request.opcode == Opcode.WRITE_WITH_IMM) {
            begins = begin(target, request.rkey, request.remoteAddress, request.total, Access.REMOTE_WRITE);
        } else {
            long lengthAndKey = Mapped.getLong(receives, slot + Layout.RECEIVE_WQE_DATA + 8);
            begins = (byte) Mapped.getLong(receives, slot + Layout.RECEIVE_WQE_SGES) == 1
                    && request.total <= Integer.toUnsignedLong((int) lengthAndKey)
                    && begin(target, (int) (lengthAndKey >>> 32), Mapped.getLong(receives, slot + Layout.RECEIVE_WQE_DATA), request.total, 0);
        }
        if (!begins) {
            return false;
        }
        // The slot as read was valid if no other peer has taken it meanwhile: it is not written again before.
        if (receives != peerReceives || !Mapped.LONG.compareAndSet(receives, Layout.RING_HEAD_OFFSET, head, head + 1)) {
            end();
            return false;
        }
        taken = head;
        return true;
    }

    /** The message is in place: completes the receive, and wakes the thread that waits for it. */
    void endMessage(PostSend.Request request) {
        boolean isWrite = request.opcode == Opcode.WRITE_WITH_IMM;
        int flags = request.opcode == Opcode.SEND ? 0 : Layout.CQE_WITH_IMM;
        int opcode = isWrite ? Layout.CQE_OP_RECEIVE_WRITE : Layout.CQE_OP_RECEIVE;
        int imm = request.opcode == Opcode.SEND ? 0 : request.imm;
        long slot = Layout.RING_HEADER_BYTES + (taken & peerMask) * peerSlotBytes;
        Mapped.putLong(peerReceives, slot + Layout.CQE_WR_ID, takenId);
        Mapped.putLong(peerReceives, slot + Layout.CQE_STATUS, (long) flags << 16 | (long) opcode << 8);
        Mapped.putLong(peerReceives, slot + Layout.CQE_BYTE_LEN, (long) imm << 32 | request.total);
        Mapped.putLong(peerReceives, slot + Layout.CQE_QPN, peerQpn);
        // Release: the message and its completion are visible before the number that announces them.
        Mapped.putLongRelease(peerReceives, slot + Layout.RECEIVE_COMPLETED, taken + 1);
        // With a full fence: either the thread that arms the queue sees the completion, or this one sees that
        // it is armed.
        Mapped.LONG.getAndAdd(peerCompletions, Layout.RING_COMPLETED_OFFSET, 1L);
        long armed = (long) Mapped.LONG.getVolatile(peerCompletions, Layout.RING_ARM_OFFSET);
        if (armed != 0) {
            wake(armed, request.isSolicited);
        }
        end();
    }

    private void wake(long armed, boolean isSolicited) {
        if (armed == Layout.ARM_SOLICITED && !isSolicited
                || !Mapped.LONG.compareAndSet(peerCompletions, Layout.RING_ARM_OFFSET, armed, 0L)) {
            return;
        }
        int port = (int) Mapped.getLongOpaque(peerCompletions, Layout.RING_BELL_OFFSET) & 0xFFFF;
        if (port != 0) {
            if (bell == null || bell.getPort() != port) {
                bell = new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
            }
            context.ring(bell);
        }
    }

    /** The operation is over. */
    void end() {
        // Release: the copy is over before the engine sees that this thread is done.
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
        mapReceives(peer.low(4), peer.high(4));
        return true;
    }

    private void mapReceives(int ring, int completions) {
        peerReceives = null;
        MemorySegment receives = ring == 0 ? null : context.peerMemory(ring);
        MemorySegment completed = completions == 0 ? null : context.peerMemory(completions);
        if (receives == null || completed == null) {
            return;
        }
        try {
            ProducerRing.check(receives, Layout.RING_KIND_RECEIVE);
            ProducerRing.check(completed, Layout.RING_KIND_COMPLETION);
        } catch (IOException e) {
            // The engine knows what to do with a peer whose rings are broken.
            return;
        }
        peerSlotBytes = Mapped.getInt(receives, Layout.RING_SLOT_BYTES_OFFSET);
        peerMask = Mapped.getInt(receives, Layout.RING_SLOT_COUNT_OFFSET) - 1L;
        peerCompletions = completed;
        peerReceives = receives;
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
        // Memory outside of the segment, at either end, is for the engine.
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
