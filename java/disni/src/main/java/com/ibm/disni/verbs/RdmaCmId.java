package com.ibm.disni.verbs;

import com.ibm.disni.verbs.RdmaCmEvent.EventType;
import highwire.disni.Device;
import highwire.verbs.Access;
import highwire.verbs.ConnectOptions;
import highwire.verbs.Endpoint;
import highwire.verbs.QpAttr;
import highwire.verbs.QpState;
import highwire.verbs.QueuePairConfig;
import highwire.verbs.Service;
import java.io.IOException;
import java.net.ConnectException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketAddress;

/**
 * A listener, or one end of a connection. The verbs know of no ports, so ends meet over a TCP connection,
 * whose end is the connection's end: the queue pair then goes into the error state, and receives that still
 * are posted are flushed.
 */
public class RdmaCmId {
    /** How long an end waits for the other end's program, in milliseconds. */
    private static final int ANSWER_MILLIS = Integer.getInteger("highwire.disni.answer", 30_000);
    private static final ConnectOptions DEFAULT = ConnectOptions.DEFAULT;

    /** Where its events are reported. */
    protected RdmaEventChannel cmChannel;
    /** Its device. */
    protected IbvContext verbs;
    /** Its queue pair. */
    protected IbvQP qpObj;
    /** Whether it was not closed. */
    protected volatile boolean isOpen = true;
    private int timeout;
    private SocketAddress destination;
    private ServerSocket listener;
    private volatile Thread listens;
    private Socket socket;
    /** The client's queue pair, of an end that a listener has made. */
    private Endpoint peer;
    private boolean hasReportedEnd;

    RdmaCmId(RdmaEventChannel channel) {
        this.cmChannel = channel;
    }

    /** {@return its port space} */
    public int getPs() {
        return RdmaCm.RDMA_PS_TCP;
    }

    /** {@return where its events are reported} */
    public RdmaEventChannel getCmChannel() {
        return cmChannel;
    }

    /** {@return the device; null before an address is bound or resolved} */
    public IbvContext getVerbs() {
        return verbs;
    }

    /** {@return its queue pair} */
    public IbvQP getQp() {
        return qpObj;
    }

    /** {@return whether it was not closed} */
    public boolean isOpen() {
        return isOpen;
    }

    /**
     * Makes the queue pair, ready for receives.
     *
     * @param pd where it belongs
     * @param attr how it is
     * @return the queue pair
     * @throws IOException why not
     */
    public synchronized IbvQP createQP(IbvPd pd, IbvQPInitAttr attr) throws IOException {
        if (attr.getQp_type() != IbvQP.IBV_QPT_RC) {
            throw new IOException("queue pairs of type " + attr.getQp_type() + " are not here, only IBV_QPT_RC");
        }
        IbvQPCap cap = attr.cap();
        try {
            QueuePairConfig config = new QueuePairConfig(
                    Service.RC,
                    attr.getSend_cq().queue,
                    attr.getRecv_cq().queue,
                    null,
                    Math.max(1, cap.getMax_send_wr()),
                    Math.max(1, cap.getMax_recv_wr()),
                    Math.max(1, cap.getMax_send_sge()),
                    Math.max(1, cap.getMax_recv_sge()),
                    cap.getMax_inline_data());
            qpObj = new IbvQP(pd, attr, pd.domain.queuePair(config));
        } catch (IllegalArgumentException | IllegalStateException e) {
            throw new IOException("no queue pair: " + e.getMessage(), e);
        }
        qpObj.prepare(Access.ALL);
        return qpObj;
    }

    /**
     * Takes an address to listen at.
     *
     * @param address a port of this machine
     * @throws IOException it cannot be bound, or there is no engine
     */
    public synchronized void bindAddr(SocketAddress address) throws IOException {
        verbs = IbvContext.of(Device.context());
        listener = new ServerSocket();
        listener.setReuseAddress(true);
        destination = address;
    }

    /**
     * Listens. Each request is an event.
     *
     * @param backlog connections that wait, at most
     * @throws IOException the address cannot be had
     */
    public synchronized void listen(int backlog) throws IOException {
        if (listener == null) {
            throw new IOException("no address is bound");
        }
        listener.bind(destination, backlog);
        listens = Thread.ofVirtual().name("disni-listen").start(this::listen);
    }

    private void listen() {
        while (isOpen) {
            try {
                Socket heard = listener.accept();
                Thread.ofVirtual().name("disni-greet").start(() -> greet(heard));
            } catch (IOException e) {
                // The listener was closed; else the next client may succeed.
            }
        }
    }

    private void greet(Socket heard) {
        try {
            heard.setTcpNoDelay(true);
            heard.setSoTimeout(ANSWER_MILLIS);
            RdmaCmId connection = new RdmaCmId(cmChannel);
            connection.peer = Endpoint.parse(Lines.hear(heard, Lines.HELLO));
            connection.socket = heard;
            connection.destination = heard.getRemoteSocketAddress();
            connection.verbs = verbs;
            cmChannel.report(EventType.RDMA_CM_EVENT_CONNECT_REQUEST, this, connection, null);
        } catch (IOException | IllegalArgumentException e) {
            // The peer gets the reason, and no one else needs it.
            try (heard) {
                Lines.say(heard, Lines.NO + e.getMessage());
            } catch (IOException gone) {
                return;
            }
        }
    }

    /**
     * Finds the device for a peer; reported as an event.
     *
     * @param source is ignored
     * @param address where the peer listens
     * @param timeout milliseconds to reach it in
     * @throws IOException there is no engine
     */
    public synchronized void resolveAddr(SocketAddress source, SocketAddress address, int timeout) throws IOException {
        this.timeout = timeout;
        this.destination = address;
        verbs = IbvContext.of(Device.context());
        boolean isKnown = address instanceof InetSocketAddress inet && !inet.isUnresolved();
        cmChannel.report(
                isKnown ? EventType.RDMA_CM_EVENT_ADDR_RESOLVED : EventType.RDMA_CM_EVENT_ADDR_ERROR,
                null, this, isKnown ? null : address + " is no address");
    }

    /**
     * Reported as an event; the way is the network's.
     *
     * @param timeout milliseconds to reach the peer in
     * @throws IOException no address was resolved
     */
    public synchronized void resolveRoute(int timeout) throws IOException {
        if (destination == null) {
            throw new IOException("no address is resolved");
        }
        this.timeout = timeout;
        cmChannel.report(EventType.RDMA_CM_EVENT_ROUTE_RESOLVED, null, this, null);
    }

    /**
     * Connects; the result is reported as an event.
     *
     * @param param how
     * @throws IOException there is no queue pair
     */
    public synchronized void connect(RdmaConnParam param) throws IOException {
        if (qpObj == null || destination == null) {
            throw new IOException("a queue pair and a resolved address come first");
        }
        socket = new Socket();
        ConnectOptions options = options(param);
        Thread.ofVirtual().name("disni-connect").start(() -> connect(options));
    }

    private void connect(ConnectOptions options) {
        try {
            socket.setTcpNoDelay(true);
            socket.connect(destination, timeout);
        } catch (ConnectException e) {
            cmChannel.report(EventType.RDMA_CM_EVENT_REJECTED, null, this, "nobody listens at " + destination + " (" + e.getMessage() + ")");
            return;
        } catch (IOException e) {
            cmChannel.report(EventType.RDMA_CM_EVENT_UNREACHABLE, null, this, destination + ": " + e.getMessage());
            return;
        }
        try {
            socket.setSoTimeout(ANSWER_MILLIS);
            Lines.say(socket, Lines.HELLO + qpObj.endpoint());
            Endpoint server = Endpoint.parse(Lines.hear(socket, Lines.OK));
            synchronized (this) {
                qpObj.connect(server, options);
            }
            Lines.say(socket, Lines.READY);
        } catch (IOException | IllegalArgumentException | IllegalStateException e) {
            cmChannel.report(EventType.RDMA_CM_EVENT_REJECTED, null, this, destination + ": " + e.getMessage());
            close(socket);
            return;
        }
        established();
    }

    /**
     * Accepts a request; an event reports whether the client comes.
     *
     * @param param how
     * @throws IOException the client has gone, or there is no queue pair
     */
    public synchronized void accept(RdmaConnParam param) throws IOException {
        if (qpObj == null || peer == null) {
            throw new IOException("a request and a queue pair come first");
        }
        qpObj.connect(peer, options(param));
        Lines.say(socket, Lines.OK + qpObj.endpoint());
        Thread.ofVirtual().name("disni-accept").start(this::awaitReady);
    }

    private void awaitReady() {
        try {
            Lines.hear(socket, Lines.READY);
        } catch (IOException e) {
            cmChannel.report(EventType.RDMA_CM_EVENT_CONNECT_ERROR, null, this, e.getMessage());
            close(socket);
            return;
        }
        established();
    }

    /** From here on the TCP connection is a sign of life, over which no data goes. */
    private void established() {
        cmChannel.report(EventType.RDMA_CM_EVENT_ESTABLISHED, null, this, null);
        try {
            socket.setSoTimeout(0);
            while (socket.getInputStream().read() >= 0) {
                // The protocol has no such message, so it is ignored.
            }
        } catch (IOException e) {
            // The connection ends anyway.
        }
        ended();
    }

    private synchronized void ended() {
        if (hasReportedEnd) {
            return;
        }
        hasReportedEnd = true;
        try {
            if (qpObj != null && qpObj.isOpen()) {
                qpObj.queuePair.modify(new QpAttr().state(QpState.ERROR));
            }
        } catch (IOException | IllegalStateException e) {
            // The engine has gone, and took the queue pair along.
        }
        cmChannel.report(EventType.RDMA_CM_EVENT_DISCONNECTED, null, this, null);
    }

    /**
     * Ends the connection: both ends get an event, and their queue pairs go into the error state.
     *
     * @return 0
     * @throws IOException never
     */
    public int disconnect() throws IOException {
        close(socket);
        ended();
        return 0;
    }

    /**
     * Closes the queue pair.
     *
     * @return 0
     * @throws IOException a peer works on it at this moment
     */
    public synchronized int destroyQP() throws IOException {
        if (qpObj != null) {
            qpObj.queuePair.close();
        }
        return 0;
    }

    /**
     * Ends the listener, or the connection. The queue pair stays.
     *
     * @return 0
     * @throws IOException never
     */
    public int destroyId() throws IOException {
        isOpen = false;
        close(socket);
        if (listener != null) {
            listener.close();
        }
        awaitListening();
        return 0;
    }

    /** The kernel has the port until the thread that accepts has let go of it, which is after the close. */
    private void awaitListening() {
        try {
            if (listens != null) {
                listens.join();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    /**
     * The same and the queue pair with it.
     *
     * @return 0
     * @throws IOException a peer works on the queue pair at this moment
     */
    public int destroyEp() throws IOException {
        destroyId();
        return destroyQP();
    }

    /** {@return this end's address; of a listener, where it listens} */
    public SocketAddress getSource() {
        return listener != null ? listener.getLocalSocketAddress() : socket == null ? null : socket.getLocalSocketAddress();
    }

    /** {@return the peer's address} */
    public SocketAddress getDestination() {
        return destination;
    }

    private static void close(Socket socket) {
        try {
            if (socket != null) {
                socket.close();
            }
        } catch (IOException e) {
            // The kernel closes it even if it reports an error.
        }
    }

    private static ConnectOptions options(RdmaConnParam param) {
        if (param == null) {
            return DEFAULT;
        }
        return new ConnectOptions(
                DEFAULT.access(), DEFAULT.mtu(), DEFAULT.irn(), DEFAULT.timeout(), param.getRetry_count() & 7, param.getRnr_retry_count() & 7);
    }
}
