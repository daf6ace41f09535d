package com.ibm.disni;

import com.ibm.disni.verbs.IbvCQ;
import com.ibm.disni.verbs.IbvCompChannel;
import com.ibm.disni.verbs.IbvContext;
import java.io.IOException;

/** The completion queue of an endpoint. */
public class RdmaCqProvider {
    /** The device that it belongs to. */
    protected IbvContext context;
    /** The channel on which its thread sleeps. */
    protected IbvCompChannel compChannel;
    /** Its completion queue. */
    protected IbvCQ cq;
    /** Completions that a queue holds. */
    protected int cqSize;
    private final boolean ownsChannel;

    /**
     * A queue with a channel of its own.
     *
     * @param context the device
     * @param cqSize completions that it holds, at least
     * @throws IOException why not
     */
    public RdmaCqProvider(IbvContext context, int cqSize) throws IOException {
        this(context, context.createCompChannel(), cqSize, true);
    }

    RdmaCqProvider(IbvContext context, IbvCompChannel channel, int cqSize, boolean ownsChannel) throws IOException {
        this.context = context;
        this.compChannel = channel;
        this.cqSize = cqSize;
        this.ownsChannel = ownsChannel;
        this.cq = context.createCQ(channel, cqSize, 0);
    }

    /**
     * Closes the queue, and the channel if it is its own.
     *
     * @throws IOException a queue pair still completes into it
     * @throws InterruptedException never
     */
    public void close() throws IOException, InterruptedException {
        cq.destroyCQ();
        if (ownsChannel) {
            compChannel.destroyCompChannel();
        }
    }

    /** {@return its completion queue} */
    public IbvCQ getCQ() {
        return cq;
    }

    /** {@return completions that it holds, at least} */
    public int getCqSize() {
        return cqSize;
    }
}
