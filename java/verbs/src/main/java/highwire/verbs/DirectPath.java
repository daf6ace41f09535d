package highwire.verbs;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Iterator;
import java.util.LinkedHashMap;

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
    /** Files of peers that one queue pair keeps mapped. */
    static final int HELD_MAX = 64;
    /** Far longer than any operation takes. */
    private static final long PATIENCE_NANOS = 2_000_000_000L;

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
    /** Whether operations may begin. Looked at after one was announced. */
    private volatile boolean isOpen = true;
    /** Memory of the peer that this queue pair has mapped, by file: the one that was used last is last. Guarded by itself. */
    private final LinkedHashMap<Integer, PeerMappings.Mapping> held = new LinkedHashMap<>(8, 0.75f, true);
    private boolean isReleased;
    /** Counts what was let go, so that targets notice. */
    private volatile int generation;

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
        private int generation;
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
        peerReceives = null;
        peerCompletions = null;
        letGo();
    }

    /**
     * No operation begins from now on, and none is under way when this returns.
     *
     * @throws InUseException one of another thread goes on and on
     */
    void close() throws InUseException {
        isOpen = false;
        VarHandle.fullFence();
        long deadline = System.nanoTime() + PATIENCE_NANOS;
        while (Mapped.getLongAcquire(sendRing, Layout.RING_IN_USE_OFFSET) != 0) {
            if (System.nanoTime() - deadline > 0) {
                isOpen = true;
                throw new InUseException("a thread of this program is in the middle of an operation of the queue pair");
            }
            Thread.yield();
        }
    }

    /** The queue pair stays. */
    void reopen() {
        isOpen = true;
    }

    /** The queue pair has gone. */
    void release() {
        synchronized (held) {
            isReleased = true;
        }
        letGo();
    }

    private void letGo() {
        synchronized (held) {
            generation++;
            held.values().forEach(context.resources.peers::release);
            held.clear();
        }
    }

    /** Maps memory of the peer's; null if it is no longer there. */
    private MemorySegment peerMemory(int segment) {
        synchronized (held) {
            PeerMappings.Mapping mapping = held.get(segment);
            if (mapping == null && !isReleased) {
                mapping = context.resources.peers.hold(segment);
                if (mapping != null) {
                    held.put(segment, mapping);
                    limitHeld();
                }
            }
            return mapping == null ? null : mapping.memory;
        }
    }

    /** A peer that registers one arena after the other has this end let go of the one that was looked up longest ago. */
    private void limitHeld() {
        Iterator<PeerMappings.Mapping> eldest = held.values().iterator();
        while (held.size() > HELD_MAX) {
            PeerMappings.Mapping mapping = eldest.next();
            if (mapping.memory != peerReceives && mapping.memory != peerCompletions) {
                eldest.remove();
                generation++;
                context.resources.peers.release(mapping);
            }
        }
    }

    /**
     * Announces and checks the operation; if true, {@code target} is the place of the bytes, and {@link #end}
     * must follow.
     */
    boolean begin(Target target, int rkey, long address, long length, int need) {
        long word = 1L << 63 | (long) peerQpn << 32 | Integer.toUnsignedLong(rkey);
        Mapped.putLongOpaque(sendRing, Layout.RING_IN_USE_OFFSET, word);
        VarHandle.fullFence();
        boolean isBegun = false;
        try {
            isBegun = isOpen && isConnected() && (peerAccess & need) == need && locate(target, rkey, address, length, need);
            return isBegun;
        } finally {
            if (!isBegun) {
                end();
            }
        }
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
        boolean isTaken = false;
        try {
            // The slot as read was valid if no other peer has taken it meanwhile: it is not written again before.
            isTaken = receives == peerReceives
                    && Mapped.LONG.compareAndSet(receives, Layout.RING_HEAD_OFFSET, head, head + 1);
            taken = head;
            return isTaken;
        } finally {
            if (!isTaken) {
                end();
            }
        }
    }

    /** The copy is over. */
    void endMessage(PostSend.Request request, boolean isCopied) {
        try {
            if (isCopied) {
                complete(request, 0);
            } else if (!Mapped.LONG.compareAndSet(peerReceives, Layout.RING_HEAD_OFFSET, taken + 1, taken)) {
                // The engine has taken later receives, since one of the queue pairs has failed. This one must complete before them.
                complete(request, CompletionStatus.FLUSHED.ordinal());
            }
        } finally {
            end();
        }
    }

    /** Completes the receive that was taken, and wakes the thread that waits for it. */
    private void complete(PostSend.Request request, int status) {
        boolean isWrite = request.opcode == Opcode.WRITE_WITH_IMM;
        int flags = request.opcode == Opcode.SEND ? 0 : Layout.CQE_WITH_IMM;
        int opcode = isWrite ? Layout.CQE_OP_RECEIVE_WRITE : Layout.CQE_OP_RECEIVE;
        int imm = request.opcode == Opcode.SEND ? 0 : request.imm;
        long slot = Layout.RING_HEADER_BYTES + (taken & peerMask) * peerSlotBytes;
        Mapped.putLong(peerReceives, slot + Layout.CQE_WR_ID, takenId);
        Mapped.putLong(peerReceives, slot + Layout.CQE_STATUS, (long) flags << 16 | (long) opcode << 8 | status);
        Mapped.putLong(peerReceives, slot + Layout.CQE_BYTE_LEN, (long) imm << 32 | request.total);
        Mapped.putLong(peerReceives, slot + Layout.CQE_QPN, peerQpn);
        // Release: the message and its completion are visible before the number that announces them.
        Mapped.putLongRelease(peerReceives, slot + Layout.RECEIVE_COMPLETED, taken + 1);
        // With a full fence: either the thread that arms the queue sees the completion, or this one sees that
        // it is armed.
        Mapped.LONG.getAndAdd(peerCompletions, Layout.RING_COMPLETED_OFFSET, 1L);
        long armed = (long) Mapped.LONG.getVolatile(peerCompletions, Layout.RING_ARM_OFFSET);
        if (armed != 0) {
            wake(armed, request.isSolicited || status != 0);
        }
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
        MemorySegment receives = ring == 0 ? null : peerMemory(ring);
        MemorySegment completed = completions == 0 ? null : peerMemory(completions);
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
        if ((target.generation != generation || !tables.isCurrent(target.entry, rkey)) && !readRegion(target, rkey)) {
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
        MemorySegment memory = segment == 0 || boundTo != 0 ? null : peerMemory(segment);
        target.domain = entry.low(0);
        target.access = entry.high(0);
        target.iova = entry.words[1];
        target.length = entry.words[2];
        target.offset = entry.words[4];
        target.before = Integer.toUnsignedLong(entry.low(5));
        target.behind = Integer.toUnsignedLong(entry.high(5));
        target.memory = memory;
        target.generation = generation;
        boolean isSound = memory != null && target.length >= 0 && target.offset >= 0
                && target.offset <= memory.byteSize() && target.before <= target.length;
        if (!isSound) {
            entry.at = -1;
        }
        return isSound;
    }
}
