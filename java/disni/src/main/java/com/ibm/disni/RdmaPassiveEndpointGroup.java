package com.ibm.disni;

import com.ibm.disni.verbs.IbvQP;
import java.io.IOException;

/**
 * A group whose endpoints poll their completion queues themselves.
 *
 * @param <C> the class of the endpoints
 */
public class RdmaPassiveEndpointGroup<C extends RdmaEndpoint> extends RdmaEndpointGroup<C> {
    private final int maxWr;
    private final int maxSge;
    private final int cqSize;

    /**
     * Makes a group.
     *
     * @param timeout is ignored
     * @param maxWR requests that a queue holds
     * @param maxSge pieces of one request
     * @param cqSize completions that an endpoint's queue holds
     * @throws IOException never
     */
    public RdmaPassiveEndpointGroup(int timeout, int maxWR, int maxSge, int cqSize) throws IOException {
        super(timeout);
        this.maxWr = maxWR;
        this.maxSge = maxSge;
        this.cqSize = cqSize;
    }

    @Override
    public RdmaCqProvider createCqProvider(C endpoint) throws IOException {
        return new RdmaCqProvider(endpoint.getIdPriv().getVerbs(), cqSize);
    }

    @Override
    public IbvQP createQpProvider(C endpoint) throws IOException {
        return queuePair(endpoint, maxWr, maxSge);
    }

    @Override
    public void allocateResources(C endpoint) throws Exception {
        endpoint.allocateResources();
    }

    /** {@return requests that a queue pair holds} */
    public int getMaxWR() {
        return maxWr;
    }

    /** {@return pieces of memory that a request may have} */
    public int getMaxSge() {
        return maxSge;
    }

    /** {@return completions that a queue holds} */
    public int getCqSize() {
        return cqSize;
    }
}
