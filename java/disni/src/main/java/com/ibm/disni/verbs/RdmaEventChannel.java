package com.ibm.disni.verbs;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A channel to which connections report their events. */
public class RdmaEventChannel {
    /** Whether it was not closed. */
    protected volatile boolean isOpen = true;
    private final LinkedBlockingQueue<RdmaCmEvent> events = new LinkedBlockingQueue<>();

    RdmaEventChannel() {}

    /**
     * Makes one.
     *
     * @return the channel
     * @throws IOException never
     */
    public static RdmaEventChannel createEventChannel() throws IOException {
        return new RdmaEventChannel();
    }

    /** {@return whether it was not closed} */
    public boolean isOpen() {
        return isOpen;
    }

    /**
     * Makes an id that listens, or connects, and reports here.
     *
     * @param space {@code RdmaCm.RDMA_PS_TCP}
     * @return the identifier
     * @throws IOException another kind of connection was asked for
     */
    public RdmaCmId createId(short space) throws IOException {
        if (space != RdmaCm.RDMA_PS_TCP) {
            throw new IOException("port space " + space + " is not here, only RDMA_PS_TCP");
        }
        return new RdmaCmId(this);
    }

    /**
     * Waits for an event.
     *
     * @param timeout milliseconds at most; less than 0 waits without end
     * @return the event; null if there was none in time
     * @throws InterruptedIOException the thread was interrupted
     * @throws IOException the channel is closed
     */
    public RdmaCmEvent getCmEvent(int timeout) throws IOException {
        if (!isOpen) {
            throw new IOException("the event channel is closed");
        }
        try {
            return timeout < 0 ? events.take() : events.poll(timeout, TimeUnit.MILLISECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while it waited for an event");
        }
    }

    void report(RdmaCmEvent.EventType type, RdmaCmId listening, RdmaCmId connection, String reason) {
        events.add(new RdmaCmEvent(type, listening, connection, reason));
    }

    /**
     * Closes the channel.
     *
     * @return 0
     * @throws IOException never
     */
    public int destroyEventChannel() throws IOException {
        isOpen = false;
        return 0;
    }
}
