package com.ibm.disni;

import com.ibm.disni.verbs.IbvContext;
import com.ibm.disni.verbs.IbvPd;
import com.ibm.disni.verbs.IbvQP;
import com.ibm.disni.verbs.IbvQPInitAttr;
import com.ibm.disni.verbs.RdmaCm;
import com.ibm.disni.verbs.RdmaCmEvent;
import com.ibm.disni.verbs.RdmaCmId;
import com.ibm.disni.verbs.RdmaConnParam;
import com.ibm.disni.verbs.RdmaEventChannel;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;

/**
 * Makes endpoints, and passes them the events of their connections.
 *
 * @param <C> the class of the endpoints
 */
public abstract class RdmaEndpointGroup<C extends RdmaEndpoint> {
    private static final System.Logger LOG = System.getLogger("com.ibm.disni");
    /** How long the thread that passes events to endpoints may take to see that the group is closed. */
    private static final int LOOK_MILLIS = 50;

    /** Whether the group is closed. */
    protected AtomicBoolean closed = new AtomicBoolean();
    /** What makes its endpoints. */
    protected RdmaEndpointFactory<C> factory;
    /** The parameters of its connections. */
    protected RdmaConnParam connParam = new RdmaConnParam();
    private final RdmaEventChannel channel = RdmaEventChannel.createEventChannel();
    private final Map<RdmaCmId, RdmaServerEndpoint<C>> servers = new ConcurrentHashMap<>();
    private final Map<RdmaCmId, C> endpoints = new ConcurrentHashMap<>();
    private final Map<IbvContext, IbvPd> domains = new HashMap<>();
    private int nextId;

    /**
     * Starts the thread that passes events to endpoints.
     *
     * @param timeout is ignored: every wait that it would bound has its own
     * @throws IOException never
     */
    public RdmaEndpointGroup(int timeout) throws IOException {
        Thread.ofVirtual().name("disni-cm").start(this::dispatch);
    }

    /**
     * Sets the factory of the endpoints.
     *
     * @param factory the factory
     */
    public void init(RdmaEndpointFactory<C> factory) {
        this.factory = factory;
    }

    /**
     * The completion queue of an endpoint.
     *
     * @param endpoint the endpoint
     * @return the queue
     * @throws IOException why not
     */
    public abstract RdmaCqProvider createCqProvider(C endpoint) throws IOException;

    /**
     * The queue pair of an endpoint, which has a completion queue.
     *
     * @param endpoint the endpoint
     * @return the queue pair
     * @throws IOException why not
     */
    public abstract IbvQP createQpProvider(C endpoint) throws IOException;

    /**
     * Gives an endpoint its resources; called before it is connected.
     *
     * @param endpoint the endpoint
     * @throws Exception why not
     */
    public abstract void allocateResources(C endpoint) throws Exception;

    /**
     * Makes the protection domain of an endpoint's device, once for each device.
     *
     * @param endpoint the endpoint
     * @return the protection domain
     * @throws IOException the engine refuses
     */
    public synchronized IbvPd createProtectionDomain(C endpoint) throws IOException {
        return domain(endpoint.getIdPriv().getVerbs());
    }

    /**
     * Makes the protection domain of a server's device, once for each device.
     *
     * @param server the server
     * @return the protection domain
     * @throws IOException the engine refuses
     */
    public synchronized IbvPd createProtectionDomain(RdmaServerEndpoint<C> server) throws IOException {
        return domain(server.getIdPriv().getVerbs());
    }

    private IbvPd domain(IbvContext context) throws IOException {
        IbvPd domain = domains.get(context);
        if (domain == null) {
            domain = context.allocPd();
            domains.put(context, domain);
        }
        return domain;
    }

    /**
     * Makes a server, to be bound.
     *
     * @return the server
     * @throws IOException the group is closed
     */
    public final synchronized RdmaServerEndpoint<C> createServerEndpoint() throws IOException {
        checkOpen();
        RdmaCmId id = channel.createId(RdmaCm.RDMA_PS_TCP);
        RdmaServerEndpoint<C> server = new RdmaServerEndpoint<>(this, id);
        servers.put(id, server);
        return server;
    }

    /**
     * Makes an endpoint, to be connected.
     *
     * @return the endpoint
     * @throws IOException the group is closed
     */
    public final synchronized C createEndpoint() throws IOException {
        return create(channel.createId(RdmaCm.RDMA_PS_TCP), false);
    }

    /**
     * Makes the endpoint of a client's request.
     *
     * @param id the client's identifier
     * @return the endpoint
     * @throws IOException the group is closed
     */
    protected final synchronized C createEndpoint(RdmaCmId id) throws IOException {
        return create(id, true);
    }

    private C create(RdmaCmId id, boolean isServerSide) throws IOException {
        checkOpen();
        if (factory == null) {
            throw new IOException("the group has no factory: see init(…)");
        }
        C endpoint = factory.createEndpoint(id, isServerSide);
        endpoints.put(id, endpoint);
        return endpoint;
    }

    private void checkOpen() throws IOException {
        if (closed.get()) {
            throw new IOException("the group is closed");
        }
    }

    private void dispatch() {
        while (!closed.get()) {
            try {
                RdmaCmEvent event = channel.getCmEvent(LOOK_MILLIS);
                if (event != null) {
                    dispatchCmEvent(event);
                }
            } catch (IOException e) {
                return;
            }
        }
    }

    /**
     * Passes an event to its endpoint.
     *
     * @param event the event
     */
    public final void dispatchCmEvent(RdmaCmEvent event) {
        try {
            RdmaServerEndpoint<C> server = event.getListenIdPriv() == null ? null : servers.get(event.getListenIdPriv());
            C endpoint = endpoints.get(event.getConnIdPriv());
            if (server != null) {
                server.dispatchCmEvent(event);
            } else if (endpoint != null) {
                endpoint.dispatchCmEvent(event);
            } else if (event.getListenIdPriv() != null) {
                event.getConnIdPriv().destroyId();
            }
        } catch (IOException | RuntimeException e) {
            LOG.log(System.Logger.Level.WARNING, "an endpoint was told " + event + " and threw", e);
        }
    }

    /** {@return the parameters of its connections} */
    public RdmaConnParam getConnParam() {
        return connParam;
    }

    /**
     * Sets how endpoints connect from now on.
     *
     * @param connParam the parameters
     */
    public void setConnParam(RdmaConnParam connParam) {
        this.connParam = connParam;
    }

    /**
     * Closes the group, even if endpoints and servers are left, and gives back all memory that was registered
     * through them.
     *
     * @throws IOException a peer works on some of it at this moment; it may be tried again
     * @throws InterruptedException never
     */
    public synchronized void close() throws IOException, InterruptedException {
        closed.set(true);
        for (RdmaServerEndpoint<C> server : new ArrayList<>(servers.values())) {
            server.close();
        }
        for (C endpoint : new ArrayList<>(endpoints.values())) {
            endpoint.close();
        }
        for (IbvPd domain : new ArrayList<>(domains.values())) {
            domain.deallocPd();
            domains.remove(domain.getContext());
        }
        channel.destroyEventChannel();
    }

    /** {@return whether it was closed} */
    public boolean isClosed() {
        return closed.get();
    }

    /** {@return a number that no endpoint of the group has} */
    public synchronized int getNextId() {
        return nextId++;
    }

    IbvQP queuePair(RdmaEndpoint endpoint, int maxWr, int maxSge) throws IOException {
        IbvQPInitAttr attr = new IbvQPInitAttr();
        attr.cap().setMax_send_wr(maxWr);
        attr.cap().setMax_recv_wr(maxWr);
        attr.cap().setMax_send_sge(maxSge);
        attr.cap().setMax_recv_sge(maxSge);
        attr.cap().setMax_inline_data(64);
        attr.setQp_type(IbvQP.IBV_QPT_RC);
        attr.setSend_cq(endpoint.getCqProvider().getCQ());
        attr.setRecv_cq(endpoint.getCqProvider().getCQ());
        return endpoint.getIdPriv().createQP(endpoint.getPd(), attr);
    }

    void forget(RdmaEndpoint endpoint) {
        endpoints.remove(endpoint.getIdPriv());
    }

    void forget(RdmaServerEndpoint<C> server) {
        servers.remove(server.getIdPriv());
    }

    /** Every endpoint of this group is of its class: its factory has made it. */
    @SuppressWarnings("unchecked")
    private C own(RdmaEndpoint endpoint) {
        return (C) endpoint;
    }

    void allocate(RdmaEndpoint endpoint) throws Exception {
        allocateResources(own(endpoint));
    }

    IbvPd protectionDomainOf(RdmaEndpoint endpoint) throws IOException {
        return createProtectionDomain(own(endpoint));
    }

    RdmaCqProvider cqOf(RdmaEndpoint endpoint) throws IOException {
        return createCqProvider(own(endpoint));
    }

    IbvQP qpOf(RdmaEndpoint endpoint) throws IOException {
        return createQpProvider(own(endpoint));
    }
}
