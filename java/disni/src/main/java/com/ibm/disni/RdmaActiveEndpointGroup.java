package com.ibm.disni;

import com.ibm.disni.verbs.IbvContext;
import com.ibm.disni.verbs.IbvQP;
import highwire.verbs.IdleStrategy;
import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Map;

/**
 * A group whose endpoints are called at each completion, by one thread for each device. DiSNI has one completion queue for them all; here each has its own, so
 * that none can fill another's.
 *
 * @param <C> the class of the endpoints
 */
public class RdmaActiveEndpointGroup<C extends RdmaActiveEndpoint> extends RdmaEndpointGroup<C> {
    /** Completions that a queue holds. */
    protected int cqSize;
    /** Pieces of memory that a request may have. */
    protected int maxSge;
    /** Requests that a queue pair holds. */
    protected int maxWR;
    private final int timeout;
    private final boolean isPolling;
    private final Map<IbvContext, Dispatcher> dispatchers = new HashMap<>();

    /**
     * Makes a group.
     *
     * @param timeout milliseconds after which the thread looks without having been woken
     * @param polling whether the thread polls instead of sleeping
     * @param maxWR requests that a queue holds
     * @param maxSge pieces of one request
     * @param cqSize completions that an endpoint's queue holds
     * @throws IOException never
     */
    public RdmaActiveEndpointGroup(int timeout, boolean polling, int maxWR, int maxSge, int cqSize) throws IOException {
        super(timeout);
        this.timeout = timeout;
        this.isPolling = polling;
        this.maxWR = maxWR;
        this.maxSge = maxSge;
        this.cqSize = cqSize;
    }

    @Override
    public RdmaCqProvider createCqProvider(C endpoint) throws IOException {
        IbvContext context = endpoint.getIdPriv().getVerbs();
        synchronized (dispatchers) {
            Dispatcher dispatcher = dispatchers.get(context);
            if (dispatcher == null) {
                dispatcher = new Dispatcher(context, timeout, isPolling ? IdleStrategy.spinning() : IdleStrategy.adaptive(Duration.ZERO));
                dispatchers.put(context, dispatcher);
            }
            // Sends and receives complete into it.
            return dispatcher.serve(endpoint, Math.max(cqSize, 2 * maxWR));
        }
    }

    @Override
    public IbvQP createQpProvider(C endpoint) throws IOException {
        return queuePair(endpoint, maxWR, maxSge);
    }

    @Override
    public void allocateResources(C endpoint) throws Exception {
        endpoint.allocateResources();
    }

    @Override
    public void close() throws IOException, InterruptedException {
        super.close();
        synchronized (dispatchers) {
            for (Dispatcher dispatcher : new ArrayList<>(dispatchers.values())) {
                dispatcher.close();
            }
            dispatchers.clear();
        }
    }

    /** {@return requests that a queue pair holds} */
    public int getMaxWR() {
        return maxWR;
    }

    /** {@return completions that a queue holds} */
    public int getCqSize() {
        return cqSize;
    }

    /** {@return pieces of memory that a request may have} */
    public int getMaxSge() {
        return maxSge;
    }
}
