package com.ibm.disni.verbs;

import highwire.verbs.CompletionChannel;
import highwire.verbs.Context;
import java.io.IOException;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** A device: the engine behind a door. */
public class IbvContext {
    private static final Map<Context, IbvContext> KNOWN = new ConcurrentHashMap<>();

    final Context device;

    private IbvContext(Context device) {
        this.device = device;
    }

    /** The device behind a context: one object for each, as programs compare them. */
    static IbvContext of(Context device) {
        return KNOWN.computeIfAbsent(device, IbvContext::new);
    }

    /** {@return 1: all completion queues report in the same way} */
    public int getNumCompVectors() {
        return 1;
    }

    /** {@return whether the engine still is there} */
    public boolean isOpen() {
        return device.valid();
    }

    /**
     * Makes a protection domain.
     *
     * @return the domain
     * @throws IOException why not
     */
    public IbvPd allocPd() throws IOException {
        return new IbvPd(this);
    }

    /**
     * Makes a channel over which completion queues report.
     *
     * @return the channel
     * @throws IOException why not
     */
    public IbvCompChannel createCompChannel() throws IOException {
        CompletionChannel channel = device.completionChannel();
        return new IbvCompChannel(this, channel);
    }

    /**
     * Makes a completion queue.
     *
     * @param channel where it reports, or null
     * @param entries completions that it holds, at least
     * @param vector is ignored
     * @return the queue
     * @throws IOException why not
     */
    public IbvCQ createCQ(IbvCompChannel channel, int entries, int vector) throws IOException {
        return new IbvCQ(this, channel, entries);
    }
}
