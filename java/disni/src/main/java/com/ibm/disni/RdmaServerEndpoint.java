package com.ibm.disni;

import com.ibm.disni.verbs.IbvMr;
import com.ibm.disni.verbs.IbvPd;
import com.ibm.disni.verbs.RdmaCmEvent;
import com.ibm.disni.verbs.RdmaCmEvent.EventType;
import com.ibm.disni.verbs.RdmaCmId;
import com.ibm.disni.verbs.SVCRegMr;
import java.io.IOException;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;

/**
 * An endpoint that listens for clients.
 *
 * @param <C> the class of the endpoints that it makes
 */
public class RdmaServerEndpoint<C extends RdmaEndpoint> {
    /** Its number in its group. */
    protected int endpointId;
    /** The protection domain. */
    protected IbvPd pd;
    /** Its connection identifier. */
    protected RdmaCmId idPriv;
    /** What peers may do with memory that it registers, as bits of {@link IbvMr}. */
    protected int access = IbvMr.IBV_ACCESS_LOCAL_WRITE | IbvMr.IBV_ACCESS_REMOTE_WRITE | IbvMr.IBV_ACCESS_REMOTE_READ;
    private final RdmaEndpointGroup<C> group;
    private final ArrayDeque<RdmaCmId> requests = new ArrayDeque<>();
    private boolean isBound;
    private boolean isClosed;

    /**
     * For {@link RdmaEndpointGroup#createServerEndpoint}.
     *
     * @param group where it belongs
     * @param idPriv the listener
     */
    public RdmaServerEndpoint(RdmaEndpointGroup<C> group, RdmaCmId idPriv) {
        this.group = group;
        this.idPriv = idPriv;
        this.endpointId = group.getNextId();
    }

    /**
     * Listens.
     *
     * @param address a port of this machine; port 0 takes any
     * @param backlog connections that wait, at most
     * @return this
     * @throws IOException the address cannot be bound, or there is no engine
     * @throws Exception a subclass's
     */
    public synchronized RdmaServerEndpoint<C> bind(SocketAddress address, int backlog) throws Exception {
        idPriv.bindAddr(address);
        pd = group.createProtectionDomain(this);
        idPriv.listen(backlog);
        isBound = true;
        return this;
    }

    /**
     * Waits for a client, and makes and connects its endpoint.
     *
     * @return the endpoint
     * @throws IOException the client has gone meanwhile, or the server was closed
     */
    public C accept() throws IOException {
        C endpoint = group.createEndpoint(next());
        try {
            endpoint.accept();
            return endpoint;
        } catch (Exception e) {
            try {
                endpoint.close();
            } catch (InterruptedException | IOException late) {
                e.addSuppressed(late);
            }
            throw e instanceof IOException failure ? failure : new IOException("the client cannot be accepted: " + e.getMessage(), e);
        }
    }

    private synchronized RdmaCmId next() throws IOException {
        while (requests.isEmpty()) {
            if (isClosed) {
                throw new IOException("the server endpoint is closed");
            }
            try {
                wait();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw new IOException("interrupted while it waited for a client", e);
            }
        }
        return requests.remove();
    }

    /**
     * Called for each request, by the group's thread. Overriding methods call it.
     *
     * @param event what has happened
     * @throws IOException a subclass's
     */
    public synchronized void dispatchCmEvent(RdmaCmEvent event) throws IOException {
        if (event.getEvent() == EventType.RDMA_CM_EVENT_CONNECT_REQUEST.ordinal()) {
            if (isClosed) {
                event.getConnIdPriv().destroyId();
            } else {
                requests.add(event.getConnIdPriv());
                notifyAll();
            }
        }
    }

    /**
     * Listens no longer. Endpoints that it has accepted stay.
     *
     * @throws IOException never
     * @throws InterruptedException never
     */
    public synchronized void close() throws IOException, InterruptedException {
        isClosed = true;
        idPriv.destroyId();
        for (RdmaCmId request : requests) {
            request.destroyId();
        }
        requests.clear();
        group.forget(this);
        notifyAll();
    }

    /** {@return whether it has an address} */
    public synchronized boolean isBound() {
        return isBound;
    }

    /** {@return whether it was closed} */
    public synchronized boolean isClosed() {
        return isClosed;
    }

    /**
     * {@return where it listens}
     *
     * @throws Exception it has no address
     */
    public SocketAddress getSrcAddr() throws Exception {
        return idPriv.getSource();
    }

    /** {@return its connection identifier} */
    public RdmaCmId getIdPriv() {
        return idPriv;
    }

    /** {@return its number in its group} */
    public int getEndpointId() {
        return endpointId;
    }

    /** {@return the protection domain} */
    public IbvPd getPd() {
        return pd;
    }

    /**
     * A call that registers a buffer for all clients.
     *
     * @param buffer memory of {@code MemoryAllocation}
     * @return the call
     * @throws IOException it is not bound
     */
    public SVCRegMr registerMemory(ByteBuffer buffer) throws IOException {
        if (pd == null) {
            throw new IOException("the server endpoint is not bound");
        }
        return pd.regMr(buffer, access);
    }

    /**
     * Gives a region back.
     *
     * @param region what {@link #registerMemory} made
     * @throws IOException a peer works on it at this moment
     */
    public void deregisterMemory(IbvMr region) throws IOException {
        region.deregMr().execute().free();
    }
}
