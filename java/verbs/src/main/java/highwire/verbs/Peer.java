package highwire.verbs;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.util.Iterator;
import java.util.LinkedHashMap;

/**
 * What the engine's tables say of the queue pair at the other end and of its regions, and the peer's memory that is mapped for it.
 *
 * <p>Entries are kept as they were read. A check is one load as long as the engine has not written the entry again.
 */
final class Peer {
    /** Files of peers that one queue pair keeps mapped. */
    static final int HELD_MAX = 64;

    private final Context context;
    private final EngineTables tables;
    private final int ownQpn;
    private final EngineTables.Entry own = new EngineTables.Entry();
    private final EngineTables.Entry entry = new EngineTables.Entry();
    private int qpn;
    private int domain;
    private int access;
    /** Null if the peer's program does not leave its receives to other programs. */
    private PeerReceives receives;
    /** The peer's memory that this queue pair has mapped, by file: the one that was used last is last. Guarded by itself. */
    private final LinkedHashMap<Integer, PeerMappings.Mapping> held = new LinkedHashMap<>(8, 0.75f, true);
    private boolean isReleased;
    /** Counts what was let go, so that targets notice. */
    private volatile int generation;

    /** The region that a request names, as it was found last. */
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
        /** The operation's offset in {@link #memory}; set by {@link Peer#locate}. */
        long at;
    }

    Peer(Context context, int ownQpn) {
        this.context = context;
        this.tables = context.tables;
        this.ownQpn = ownQpn;
    }

    /** The queue pair has got another peer. */
    void connected(int peerQpn) {
        qpn = peerQpn;
        own.at = -1;
        entry.at = -1;
        receives = null;
        letGo();
    }

    int qpn() {
        return qpn;
    }

    /** Where the peer's receives wait, once {@link #isConnected}; null if only the engine may take them. */
    PeerReceives receives() {
        return receives;
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
    private MemorySegment memory(int segment) {
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
            if (receives == null || !receives.uses(mapping.memory)) {
                eldest.remove();
                generation++;
                context.resources.peers.release(mapping);
            }
        }
    }

    /** Whether both ends are ready for requests of one to the other. */
    boolean isConnected() {
        return (tables.isCurrent(own, ownQpn) && tables.isCurrent(entry, qpn)) || readEntries();
    }

    /** Whether the peer lets others do this. */
    boolean permits(int need) {
        return (access & need) == need;
    }

    private boolean readEntries() {
        own.at = -1;
        if (!tables.findQueuePair(entry, qpn) || !isReadyFor(entry, ownQpn)) {
            return false;
        }
        domain = entry.low(0);
        access = entry.high(0);
        if (!tables.findQueuePair(own, ownQpn) || !isReadyFor(own, qpn)) {
            own.at = -1;
            return false;
        }
        mapReceives(entry.low(4), entry.high(4));
        return true;
    }

    private void mapReceives(int ring, int completions) {
        receives = null;
        MemorySegment waiting = ring == 0 ? null : memory(ring);
        MemorySegment completed = completions == 0 ? null : memory(completions);
        if (waiting == null || completed == null) {
            return;
        }
        try {
            receives = new PeerReceives(waiting, completed, qpn);
        } catch (IOException e) {
            // The engine knows what to do with a peer whose rings are broken.
        }
    }

    private boolean isReadyFor(EngineTables.Entry end, int other) {
        return end.high(1) == 1
                && end.low(1) == other
                && end.words[2] == context.gid.low()
                && end.words[3] == context.gid.high();
    }

    /** Finds the bytes that a request names; false if a check fails, or if they are not memory that this program can map. */
    boolean locate(Target target, int rkey, long address, long length, int need) {
        if ((target.generation != generation || !tables.isCurrent(target.entry, rkey)) && !readRegion(target, rkey)) {
            return false;
        }
        long into = address - target.iova;
        // Memory outside of the segment, at either end, is for the engine.
        if (target.domain != domain
                || (target.access & need) != need
                || into < target.before
                || length > target.length - target.behind - into) {
            return false;
        }
        target.at = target.offset + into - target.before;
        return target.at <= target.memory.byteSize() - length;
    }

    private boolean readRegion(Target target, int rkey) {
        EngineTables.Entry found = target.entry;
        if (!tables.findRegion(found, rkey)) {
            return false;
        }
        int segment = found.low(3);
        int boundTo = found.high(3);
        target.domain = found.low(0);
        target.access = found.high(0);
        target.iova = found.words[1];
        target.length = found.words[2];
        target.offset = found.words[4];
        target.before = Integer.toUnsignedLong(found.low(5));
        target.behind = Integer.toUnsignedLong(found.high(5));
        target.memory = segment == 0 || boundTo != 0 ? null : memory(segment);
        target.generation = generation;
        boolean isSound = target.memory != null && target.length >= 0 && target.offset >= 0
                && target.offset <= target.memory.byteSize() && target.before <= target.length;
        if (!isSound) {
            found.at = -1;
        }
        return isSound;
    }
}
