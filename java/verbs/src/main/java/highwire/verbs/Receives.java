package highwire.verbs;

import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * The receives of a connected queue pair, as its owner sees them. They wait in their ring, and the owner
 * rings no bell for them. A peer that has a message takes the oldest: the engine, which completes it in the
 * completion ring, or a peer of the same engine, which copies the message itself and then writes the
 * completion over the receive.
 *
 * <p>Receives complete in the order in which they were posted, so there is one place to look: the oldest that
 * has not completed. A slot is free for the next receive once its completion was polled.
 */
final class Receives {
    private static final VarHandle DELIVERED;

    static {
        try {
            DELIVERED = MethodHandles.lookup().findVarHandle(Receives.class, "delivered", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private final ProducerRing ring;
    /** Receives whose completion was polled. Written by the thread that polls. */
    private long delivered;
    private long deliveredSeen;
    /** Completions in the ring that are of receives before the last reset. */
    private int stale;

    Receives(ProducerRing ring) {
        this.ring = ring;
    }

    /** Called by the posting thread: whether there is a free slot. */
    boolean hasRoom() {
        return ring.published() - deliveredSeen < ring.slotCount() || hasRoomNow();
    }

    private boolean hasRoomNow() {
        deliveredSeen = (long) DELIVERED.getAcquire(this);
        return ring.published() - deliveredSeen < ring.slotCount();
    }

    /**
     * Called by the posting thread, after it has published: in the error state the engine wants a bell for
     * receives.
     */
    boolean isBellWanted() {
        return (long) Mapped.LONG.getVolatile(ring.memory, Layout.RING_WANTED_OFFSET) != 0;
    }

    /** Called by the polling thread: whether a peer has completed the oldest receive. */
    boolean isCompleted() {
        return Mapped.getLongAcquire(ring.memory, ring.slotOf(delivered) + Layout.RECEIVE_COMPLETED) == delivered + 1;
    }

    /** Called by the polling thread: the completion that a peer has written, if it is the next one. */
    boolean take(Completion into) {
        if (!isCompleted()) {
            return false;
        }
        into.read(ring.memory, ring.slotOf(delivered));
        DELIVERED.setRelease(this, delivered + 1);
        return true;
    }

    /** Called by the polling thread: a peer has taken a receive that has not been polled. */
    boolean isAwaited() {
        return Mapped.getLongAcquire(ring.memory, Layout.RING_HEAD_OFFSET) != delivered;
    }

    /** Called by the polling thread: the engine has completed a receive. */
    void onCompletion() {
        if (stale > 0) {
            stale--;
        } else {
            DELIVERED.setRelease(this, delivered + 1);
        }
    }

    /** The queue pair was reset: the receives are gone, and this many completions of them wait. */
    void reset(int waiting) {
        stale = waiting;
        deliveredSeen = ring.published();
        DELIVERED.setRelease(this, deliveredSeen);
    }
}
