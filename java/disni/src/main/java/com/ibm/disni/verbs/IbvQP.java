package com.ibm.disni.verbs;

import highwire.verbs.ConnectOptions;
import highwire.verbs.ConnectedQueuePair;
import highwire.verbs.Endpoint;
import highwire.verbs.QueuePair;
import highwire.verbs.VerbsException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;

/** A queue pair. One thread posts sends at a time, and one posts receives. */
public class IbvQP implements ConnectedQueuePair {
    /** The reliable, connected service, which is the one that queue pairs have. */
    public static final byte IBV_QPT_RC = 2;
    /** The unreliable, connected service. */
    public static final byte IBV_QPT_UC = 3;
    /** The service of datagrams. */
    public static final byte IBV_QPT_UD = 4;
    /** New, or reset. */
    public static final int IBV_QPS_RESET = 0;
    /** Takes receives. */
    public static final int IBV_QPS_INIT = 1;
    /** Ready to receive. */
    public static final int IBV_QPS_RTR = 2;
    /** Ready to send. */
    public static final int IBV_QPS_RTS = 3;
    /** The send queue drains. */
    public static final int IBV_QPS_SQD = 4;
    /** The send queue has failed. */
    public static final int IBV_QPS_SQE = 5;
    /** The queue pair has failed, and flushes its requests. */
    public static final int IBV_QPS_ERR = 6;

    /** The protection domain. */
    protected IbvPd pd;
    /** Where sends complete. */
    protected IbvCQ send_cq;
    /** Where receives complete. */
    protected IbvCQ recv_cq;
    final QueuePair queuePair;
    final boolean isAllSignaled;

    IbvQP(IbvPd pd, IbvQPInitAttr attr, QueuePair queuePair) {
        this.pd = pd;
        this.send_cq = attr.getSend_cq();
        this.recv_cq = attr.getRecv_cq();
        this.isAllSignaled = attr.getSq_sig_all() != 0;
        this.queuePair = queuePair;
    }

    /** {@return the device that it belongs to} */
    public IbvContext getContext() {
        return pd.getContext();
    }

    /** {@return the protection domain} */
    public IbvPd getPd() {
        return pd;
    }

    /** {@return where sends complete} */
    public IbvCQ getSend_cq() {
        return send_cq;
    }

    /** {@return where receives complete} */
    public IbvCQ getRecv_cq() {
        return recv_cq;
    }

    /** {@return its number} */
    public int getQp_num() {
        return queuePair.qpn();
    }

    /** {@return the state that this program has brought it to} */
    public int getState() {
        return queuePair.state().ordinal();
    }

    /** {@return the service, which is RC} */
    public int getQp_type() {
        return IBV_QPT_RC;
    }

    /** {@return whether it was not closed} */
    public boolean isOpen() {
        return !queuePair.isClosed();
    }

    /**
     * A call that posts send requests, in order.
     *
     * @param requests what they are now; later changes are made in the call
     * @param bad is ignored
     * @return the call
     * @throws IOException a request names memory that is not registered, or cannot be
     */
    public SVCPostSend postSend(List<IbvSendWR> requests, List<IbvSendWR> bad) throws IOException {
        return new PostSendCall(this, requests);
    }

    /**
     * A call that posts receives, in order.
     *
     * @param requests what they are now
     * @param bad is ignored
     * @return the call
     * @throws IOException a receive names memory that is not registered
     */
    public SVCPostRecv postRecv(List<IbvRecvWR> requests, List<IbvRecvWR> bad) throws IOException {
        return new PostRecvCall(this, requests);
    }

    @Override
    public int qpn() {
        return queuePair.qpn();
    }

    @Override
    public Endpoint endpoint() {
        return queuePair.endpoint();
    }

    @Override
    public void prepare(int access) throws VerbsException {
        queuePair.prepare(access);
    }

    @Override
    public void connect(Endpoint peer, ConnectOptions options) throws VerbsException {
        queuePair.connect(peer, options);
    }

    @Override
    public boolean isClosed() {
        return queuePair.isClosed();
    }

    /**
     * Closes it, as DiSNI's does without an exception of its own.
     *
     * @throws UncheckedIOException it stays open, or its engine has gone
     */
    @Override
    public void close() {
        try {
            queuePair.close();
        } catch (VerbsException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public String toString() {
        return "queue pair " + Integer.toHexString(getQp_num()) + ", " + queuePair.state();
    }
}
