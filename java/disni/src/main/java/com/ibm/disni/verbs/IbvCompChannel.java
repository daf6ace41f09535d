package com.ibm.disni.verbs;

import highwire.verbs.CompletionChannel;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.time.Duration;

/** A channel to which armed completion queues report. */
public class IbvCompChannel {
    /** Stands for waiting without end, as time-outs are added to clocks. */
    private static final Duration FOR_EVER = Duration.ofDays(10_000);

    /** The device that it belongs to. */
    protected IbvContext context;
    /** Whether it was not closed. */
    protected volatile boolean isOpen = true;
    final CompletionChannel channel;

    IbvCompChannel(IbvContext context, CompletionChannel channel) {
        this.context = context;
        this.channel = channel;
    }

    /** {@return the device that it belongs to} */
    public IbvContext getContext() {
        return context;
    }

    /** {@return whether it was not closed} */
    public boolean isOpen() {
        return isOpen;
    }

    /**
     * Waits until a queue of the channel reports.
     *
     * @param queue the expected queue; ignored
     * @param timeout milliseconds at most; less than 0 waits without end
     * @return whether one has reported
     * @throws IOException the engine has ended
     * @throws InterruptedIOException the thread was interrupted
     */
    public boolean getCqEvent(IbvCQ queue, int timeout) throws IOException {
        try {
            return channel.await(timeout < 0 ? FOR_EVER : Duration.ofMillis(timeout)) != null;
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new InterruptedIOException("interrupted while it waited for a completion");
        }
    }

    /** Ends the wait of the waiting thread, or else the next wait, at once. An addition to DiSNI. */
    public void wakeup() {
        channel.wakeup();
    }

    /**
     * Closes the channel.
     *
     * @return 0
     * @throws IOException a completion queue still reports here
     */
    public int destroyCompChannel() throws IOException {
        channel.close();
        isOpen = false;
        return 0;
    }
}
