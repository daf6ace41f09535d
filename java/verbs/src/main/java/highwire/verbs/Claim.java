package highwire.verbs;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;

/**
 * What a posting thread holds of its peer while it carries out a request: an announcement, and for a message one of the peer's receives. One for
 * each queue pair, used again and again.
 *
 * <pre>
 *  send ring, 144  in_use u64   1 &lt;&lt; 63 │ the peer's QPN &lt;&lt; 32 │ the key of its memory; 0: nothing is under way
 * </pre>
 *
 * <p>{@code in_use} is stored before the tables are read, with a full fence between: either this thread sees that an entry is gone, or the engine
 * sees that the thread is at work and waits. A claim remembers the rings from which it has taken a receive. So it completes that receive there,
 * whatever the queue pair is connected to meanwhile.
 */
final class Claim {
    /** Far longer than any operation takes. */
    private static final long PATIENCE_NANOS = 2_000_000_000L;

    private final MemorySegment sendRing;
    /** Whether operations may begin. Looked at after one was announced. */
    private volatile boolean isOpen = true;
    private PeerReceives receives;
    private long number;
    private long wrId;
    private boolean isTaken;

    Claim(MemorySegment sendRing) {
        this.sendRing = sendRing;
    }

    /** Announces an operation; {@link #end} must follow, whatever this returns. False if no operation may begin. */
    boolean announce(int peerQpn, int rkey) {
        Mapped.putLongOpaque(sendRing, Layout.RING_IN_USE_OFFSET, 1L << 63 | (long) peerQpn << 32 | Integer.toUnsignedLong(rkey));
        VarHandle.fullFence();
        return isOpen;
    }

    /** The operation is over. */
    void end() {
        // Release: the copy is over before the engine sees that this thread is done.
        Mapped.putLongRelease(sendRing, Layout.RING_IN_USE_OFFSET, 0L);
    }

    /** Looks at the oldest receive; false if there is none to take. */
    boolean lookAt(PeerReceives from) {
        receives = from;
        number = from.oldest();
        if (number < 0) {
            return false;
        }
        wrId = from.wrId(number);
        return true;
    }

    /** The receive that was looked at last. */
    long number() {
        return number;
    }

    /** Takes that receive; false if another thread has it. {@link #complete} or {@link #giveBack} must follow. */
    boolean take() {
        isTaken = receives.take(number);
        return isTaken;
    }

    /** Completes the receive; as {@link PeerReceives#complete}. */
    long complete(PostSend.Request request, int status) {
        if (!isTaken) {
            throw new IllegalStateException("no receive was taken");
        }
        isTaken = false;
        return receives.complete(number, wrId, request, status);
    }

    /** Gives the receive back, as if it had not been taken; false if it must complete, since later ones were taken. */
    boolean giveBack() {
        boolean isBack = receives.giveBack(number);
        isTaken = !isBack;
        return isBack;
    }

    /** As {@link PeerReceives#disarm}, where the receive was completed. */
    long disarm(long armed) {
        return receives.disarm(armed);
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
}
