package com.ibm.disni;

import com.ibm.disni.verbs.IbvMr;
import com.ibm.disni.verbs.IbvPd;
import com.ibm.disni.verbs.IbvQP;
import com.ibm.disni.verbs.IbvRecvWR;
import com.ibm.disni.verbs.IbvSendWR;
import com.ibm.disni.verbs.RdmaCmEvent;
import com.ibm.disni.verbs.RdmaCmEvent.EventType;
import com.ibm.disni.verbs.RdmaCmId;
import com.ibm.disni.verbs.RdmaConnParam;
import com.ibm.disni.verbs.SVCPostRecv;
import com.ibm.disni.verbs.SVCPostSend;
import com.ibm.disni.verbs.SVCRegMr;
import java.io.IOException;
import java.net.ConnectException;
import java.net.SocketAddress;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.util.List;

/** One end of a connection. Programs extend it and prepare their memory and first receives in {@link #init}. */
public class RdmaEndpoint {
    private static final int CONN_STATE_INITIALIZED = 0;
    private static final int CONN_STATE_ADDR_RESOLVED = 1;
    private static final int CONN_STATE_ROUTE_RESOLVED = 2;
    private static final int CONN_STATE_RESOURCES_ALLOCATED = 3;
    private static final int CONN_STATE_CONNECTED = 4;
    private static final int CONN_STATE_CLOSED = 5;
    /** The time that reaching the peer may take beside its time-out: the program there has to accept. */
    private static final int ANSWER_MILLIS = Integer.getInteger("highwire.disni.answer", 30_000);

    /** Its number in its group. */
    protected int endpointId;
    /** The group that it belongs to. */
    protected RdmaEndpointGroup<? extends RdmaEndpoint> group;
    /** Its connection identifier. */
    protected RdmaCmId idPriv;
    /** Its queue pair. */
    protected IbvQP qp;
    /** The protection domain. */
    protected IbvPd pd;
    /** What takes its completions. */
    protected RdmaCqProvider cqProcessor;
    /** What peers may do with memory that it registers, as bits of {@link IbvMr}. */
    protected int access = IbvMr.IBV_ACCESS_LOCAL_WRITE | IbvMr.IBV_ACCESS_REMOTE_WRITE | IbvMr.IBV_ACCESS_REMOTE_READ;
    private final boolean isServerSide;
    private int state = CONN_STATE_INITIALIZED;
    /** Why it is not connected, once the peer or the network has said so. */
    private RdmaCmEvent failure;

    /**
     * For subclasses and their factories.
     *
     * @param group where it belongs
     * @param idPriv its connection
     * @param serverSide whether a server accepts it
     * @throws IOException never
     */
    protected RdmaEndpoint(RdmaEndpointGroup<? extends RdmaEndpoint> group, RdmaCmId idPriv, boolean serverSide) throws IOException {
        this.group = group;
        this.idPriv = idPriv;
        this.isServerSide = serverSide;
        this.endpointId = group.getNextId();
    }

    /**
     * Connects to a server.
     *
     * @param address where it listens
     * @param timeout milliseconds to reach it in; its program has 30 seconds more to accept ({@code highwire.disni.answer})
     * @throws ConnectException no server listens there, or it refuses
     * @throws SocketTimeoutException it did not answer in time
     * @throws IOException there is no engine, or it refuses
     * @throws InterruptedException the thread was interrupted
     * @throws Exception what {@link #init} throws
     */
    public synchronized void connect(SocketAddress address, int timeout) throws Exception {
        if (state != CONN_STATE_INITIALIZED) {
            throw new IOException("the endpoint was connected already");
        }
        idPriv.resolveAddr(null, address, timeout);
        await(CONN_STATE_ADDR_RESOLVED, address, timeout);
        idPriv.resolveRoute(timeout);
        await(CONN_STATE_ROUTE_RESOLVED, address, timeout);
        group.allocate(this);
        idPriv.connect(getConnParam());
        await(CONN_STATE_CONNECTED, address, (long) timeout + ANSWER_MILLIS);
    }

    private synchronized void await(int wanted, Object whom, long millis) throws IOException, InterruptedException {
        long deadline = System.nanoTime() + millis * 1_000_000;
        while (state < wanted && failure == null) {
            long left = (deadline - System.nanoTime()) / 1_000_000;
            if (left <= 0) {
                idPriv.destroyId();
                throw new SocketTimeoutException("no connection with " + whom + " after " + millis + " ms");
            }
            wait(left);
        }
        if (failure != null) {
            throw new ConnectException(failure.getReason());
        }
        if (state == CONN_STATE_CLOSED) {
            throw new ConnectException("the connection with " + whom + " has ended already");
        }
    }

    /** A server's part of {@link #connect}. */
    synchronized void accept() throws Exception {
        group.allocate(this);
        idPriv.accept(getConnParam());
        await(CONN_STATE_CONNECTED, idPriv.getDestination(), ANSWER_MILLIS);
    }

    /**
     * Called for each event of the connection, by the group's thread. Overriding methods call it.
     *
     * @param event what has happened
     * @throws IOException a subclass's
     */
    public synchronized void dispatchCmEvent(RdmaCmEvent event) throws IOException {
        if (event.getStatus() != 0) {
            failure = event;
        } else if (event.getEvent() == EventType.RDMA_CM_EVENT_ADDR_RESOLVED.ordinal()) {
            state = CONN_STATE_ADDR_RESOLVED;
        } else if (event.getEvent() == EventType.RDMA_CM_EVENT_ROUTE_RESOLVED.ordinal()) {
            state = CONN_STATE_ROUTE_RESOLVED;
        } else if (event.getEvent() == EventType.RDMA_CM_EVENT_ESTABLISHED.ordinal() && state < CONN_STATE_CONNECTED) {
            state = CONN_STATE_CONNECTED;
        } else if (event.getEvent() == EventType.RDMA_CM_EVENT_DISCONNECTED.ordinal()) {
            state = CONN_STATE_CLOSED;
        }
        notifyAll();
    }

    /**
     * Makes protection domain, completion queue and queue pair, and calls {@link #init}.
     *
     * @throws IOException why not
     */
    public final synchronized void allocateResources() throws IOException {
        if (state >= CONN_STATE_RESOURCES_ALLOCATED) {
            return;
        }
        pd = group.protectionDomainOf(this);
        cqProcessor = group.cqOf(this);
        qp = group.qpOf(this);
        init();
        state = CONN_STATE_RESOURCES_ALLOCATED;
    }

    /**
     * Called once the queue pair is there and before the connection is: what is registered and posted here is ready for the peer's first message.
     *
     * @throws IOException why not
     */
    protected synchronized void init() throws IOException {}

    /**
     * Ends the connection and gives back queue pair and completion queue. Memory stays registered until its region, or the group, is closed.
     *
     * @throws IOException a peer works on the queue pair at this moment; it may be tried again
     * @throws InterruptedException never
     */
    public synchronized void close() throws IOException, InterruptedException {
        state = CONN_STATE_CLOSED;
        idPriv.disconnect();
        idPriv.destroyEp();
        group.forget(this);
        if (cqProcessor != null) {
            cqProcessor.close();
            cqProcessor = null;
        }
        notifyAll();
    }

    /** {@return whether its queue pair is connected} */
    public synchronized boolean isConnected() {
        return state == CONN_STATE_CONNECTED;
    }

    /** {@return whether it was closed} */
    public synchronized boolean isClosed() {
        return state == CONN_STATE_CLOSED;
    }

    /** {@return how far it is; 4 is connected, 5 closed} */
    public synchronized int getConnState() {
        return state;
    }

    /**
     * {@return this end's address}
     *
     * @throws IOException it is not connected
     */
    public SocketAddress getSrcAddr() throws IOException {
        return idPriv.getSource();
    }

    /**
     * {@return the peer's address}
     *
     * @throws IOException it is not connected
     */
    public SocketAddress getDstAddr() throws IOException {
        return idPriv.getDestination();
    }

    /** {@return what takes its completions} */
    public RdmaCqProvider getCqProvider() {
        return cqProcessor;
    }

    /**
     * A call that registers a buffer.
     *
     * @param buffer memory of {@code MemoryAllocation}
     * @return the call
     * @throws IOException the endpoint has no resources yet
     */
    public SVCRegMr registerMemory(ByteBuffer buffer) throws IOException {
        checkResources();
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

    /**
     * A call that posts receives.
     *
     * @param requests what they are
     * @return the call
     * @throws IOException one cannot be posted
     */
    public SVCPostRecv postRecv(List<IbvRecvWR> requests) throws IOException {
        checkResources();
        return qp.postRecv(requests, null);
    }

    /**
     * A call that posts send requests.
     *
     * @param requests what they are
     * @return the call
     * @throws IOException one cannot be posted
     */
    public SVCPostSend postSend(List<IbvSendWR> requests) throws IOException {
        checkResources();
        return qp.postSend(requests, null);
    }

    private void checkResources() throws IOException {
        if (qp == null) {
            throw new IOException("the endpoint has no queue pair before it is connected: see init()");
        }
    }

    /** {@return its connection identifier} */
    public RdmaCmId getIdPriv() {
        return idPriv;
    }

    /** {@return its queue pair} */
    public IbvQP getQp() {
        return qp;
    }

    /** {@return whether a server has accepted it} */
    public boolean isServerSide() {
        return isServerSide;
    }

    /** {@return its number in its group} */
    public int getEndpointId() {
        return endpointId;
    }

    /** {@return the protection domain} */
    public IbvPd getPd() {
        return pd;
    }

    /** {@return the parameters of its connections} */
    public RdmaConnParam getConnParam() {
        return group.getConnParam();
    }
}
