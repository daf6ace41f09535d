package highwire.zookeeper;

import highwire.verbs.Access;
import highwire.verbs.Completion;
import highwire.verbs.CompletionQueue;
import highwire.verbs.Context;
import highwire.verbs.MemoryRegion;
import highwire.verbs.Opcode;
import highwire.verbs.PostSend;
import highwire.verbs.QueuePair;
import highwire.verbs.RdmaArena;
import highwire.verbs.SendRequest;
import highwire.verbs.VerbsException;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;

/**
 * Messages between two JVMs of one engine, which takes no part: each end WRITEs into slots of the other one, READs how many were taken and whether a thread sleeps there, and
 * rings if so. The thread that posts carries all of that out itself.
 *
 * <pre>
 *    0 | taken u64: messages that this end has taken | wanted u64: the peer waits for room | what was READ of the peer, 3 × u64 | one u64
 *   64 | slots: ... bytes, rounded up to 8 | length u32, sequence u32 |      a message ends where its slot ends
 *      | a slot to send from
 * </pre>
 *
 * <p>The last eight bytes of a WRITE become visible last, so a slot with the expected sequence number holds a whole message. All methods are called under the link's lock, but
 * {@link #hasMail}.
 */
final class Mailbox implements AutoCloseable {
    /** The peer's rights at a queue pair that has a mailbox. */
    static final int ACCESS = Access.REMOTE_WRITE | Access.REMOTE_READ;
    /** The words of an introduction. */
    static final int WORDS = 7;

    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();
    static final long TAKEN = 0;
    static final long WANTED = 8;
    private static final long PEER_TAKEN = 16;
    private static final long PEER_SLEEP = 24;
    private static final long ONE = 32;
    private static final int SLOTS = 64;
    private static final long PATIENCE_NANOS = 5_000_000_000L;

    /** The data of one end that its peer needs. */
    private record Address(int depth, int segment, long memory, int key, long sleeper, int sleeperKey, long bell) {
        static Address parse(String[] words) {
            Address address = new Address(Integer.parseInt(words[0]), Integer.parseInt(words[1]), Long.parseLong(words[2]), Integer.parseUnsignedInt(words[3]),
                    Long.parseLong(words[4]), Integer.parseUnsignedInt(words[5]), Long.parseLong(words[6]));
            if (address.depth < 1 || address.depth > Link.DEPTH_MAX || address.segment < 1 || address.bell < 1 || address.bell > 0xFFFF_FFFFL) {
                throw new IllegalArgumentException("its mailbox is none");
            }
            return address;
        }

        /** The end of a message. */
        long end(long number) {
            return memory + SLOTS + (number % depth + 1) * slotBytes(segment);
        }
    }

    private final Context context;
    private final QueuePair qp;
    private final CompletionQueue completions;
    private final Completion completion = new Completion();
    private final Sleeper sleeper;
    private final int depth;
    private final int segment;
    private final RdmaArena arena;
    private final MemoryRegion memory;
    private final ByteBuffer bytes;
    private Address peer;
    private PostSend write;
    private PostSend want;
    private PostSend readTaken;
    private PostSend readSleep;
    private long sent;
    private volatile long taken;
    /** Messages that the peer is known to have taken, and the sleep from which it was last woken. */
    private long peerTaken;
    private long peerSleep;

    Mailbox(Device device, QueuePair qp, CompletionQueue completions, Sleeper sleeper) throws VerbsException {
        this.context = device.context();
        this.qp = qp;
        this.completions = completions;
        this.sleeper = sleeper;
        depth = Settings.depth();
        segment = Settings.segment();
        arena = context.arena(SLOTS + (depth + 1L) * slotBytes(segment));
        MemoryRegion region = null;
        try {
            region = device.domain().register(arena.segment(), Access.LOCAL_WRITE | ACCESS);
        } finally {
            if (region == null) {
                Device.close(arena);
            }
        }
        memory = region;
        bytes = memory.segment().asByteBuffer().order(ByteOrder.LITTLE_ENDIAN);
        LONG.set(memory.segment(), ONE, 1L);
    }

    private static int slotBytes(int segment) {
        return (segment + 7 & -8) + 8;
    }

    /** The data that the peer needs. */
    String introduction() {
        return depth + " " + segment + " " + memory.address() + " " + Integer.toUnsignedString(memory.rkey()) + " " + sleeper.introduction();
    }

    /** Reads the peer's data. */
    void connect(String[] words) {
        peer = Address.parse(words);
        write = qp.postSend(new SendRequest(Opcode.WRITE).remote(peer.memory, peer.key).sge(memory, 0, 0));
        want = qp.postSend(new SendRequest(Opcode.WRITE).remote(peer.memory + WANTED, peer.key).sge(memory, ONE, 8));
        readTaken = qp.postSend(new SendRequest(Opcode.READ).remote(peer.memory, peer.key).sge(memory, PEER_TAKEN, 8));
        readSleep = qp.postSend(new SendRequest(Opcode.READ).remote(peer.sleeper, peer.sleeperKey).sge(memory, PEER_SLEEP, 8));
    }

    /** Whether both ends have one. */
    boolean isConnected() {
        return peer != null;
    }

    /** Whether the peer has room for a message. If not, it rings once it has. */
    boolean hasRoom() throws IOException {
        if (sent - peerTaken < peer.depth) {
            return true;
        }
        carryOut(readTaken);
        if (!seesRoom()) {
            // Announced before looking again: either this end sees the room, or the peer sees that this end
            // wants it.
            carryOut(want);
            carryOut(readTaken);
        }
        return seesRoom();
    }

    private boolean seesRoom() throws IOException {
        long now = (long) LONG.get(memory.segment(), PEER_TAKEN);
        if (now < peerTaken || now > sent) {
            throw new IOException("the peer says that it has taken " + now + " messages of " + sent);
        }
        peerTaken = now;
        return sent - peerTaken < peer.depth;
    }

    /** The place for the next message. */
    ByteBuffer outgoing() {
        return bytes.slice(SLOTS + depth * slotBytes(segment), Math.min(segment, peer.segment));
    }

    /** Sends the message in that place, and wakes the peer if it sleeps. */
    void send(int length) throws IOException {
        int from = SLOTS + depth * slotBytes(segment);
        int rounded = length + 7 & -8;
        int sequence = (int) (sent / peer.depth) + 1;
        LONG.set(memory.segment(), (long) from + rounded, Integer.toUnsignedLong(length) | (long) sequence << 32);
        write.request(0).sge(0, from, rounded + 8).remoteAddress(peer.end(sent) - rounded - 8);
        carryOut(write);
        sent++;
        wakePeer();
    }

    private void wakePeer() throws IOException {
        carryOut(readSleep);
        long sleep = (long) LONG.get(memory.segment(), PEER_SLEEP);
        if ((sleep & 1) != 0 && sleep != peerSleep) {
            peerSleep = sleep;
            context.ring(peer.bell);
        }
    }

    /** Carries a call out. The engine takes part only if a queue pair is about to end. */
    private void carryOut(PostSend call) throws IOException {
        call.exec();
        long deadline = 0;
        while (!completions.poll(completion)) {
            long now = System.nanoTime();
            deadline = deadline == 0 ? now + PATIENCE_NANOS : deadline;
            if (now - deadline > 0) {
                throw new IOException("the engine does not carry out what was posted");
            }
            Thread.yield();
        }
        if (!completion.isSuccess()) {
            throw new IOException(completion.opcode() + " ended with " + completion.status());
        }
    }

    /** Whether a message has come. Any thread may ask. */
    boolean hasMail() {
        long number = taken;
        return (int) ((long) LONG.getAcquire(memory.segment(), end(number) - 8) >>> 32) == (int) (number / depth) + 1;
    }

    private long end(long number) {
        return SLOTS + (number % depth + 1) * slotBytes(segment);
    }

    /** The message that has come, until it is {@link #taken}. */
    ByteBuffer incoming() throws IOException {
        long end = end(taken);
        int length = bytes.getInt((int) end - 8);
        if (length < 0 || length > segment) {
            throw new IOException("the peer has sent a message of " + length + " bytes");
        }
        return bytes.slice((int) end - 8 - (length + 7 & -8), length);
    }

    /** Its slot may be used again. */
    void taken() {
        taken++;
        if (giveBack(memory.segment(), taken)) {
            context.ring(peer.bell);
        }
    }

    /** Publishes how many messages were taken; returns whether the peer wants room and needs a ring. */
    static boolean giveBack(MemorySegment memory, long taken) {
        LONG.setRelease(memory, TAKEN, taken);
        // Either the peer, which announces first that it wants room, sees the room, or this end sees the
        // announcement.
        VarHandle.fullFence();
        if ((long) LONG.getOpaque(memory, WANTED) == 0) {
            return false;
        }
        LONG.setOpaque(memory, WANTED, 0L);
        return true;
    }

    @Override
    public void close() {
        Device.close(memory, arena);
    }
}
