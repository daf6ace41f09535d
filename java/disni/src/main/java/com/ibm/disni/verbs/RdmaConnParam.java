package com.ibm.disni.verbs;

/** How a connection is made, as {@code rdma_conn_param}. Used are the two counts of retries; there is no private data. */
public class RdmaConnParam {
    /** READs and atomics that this end accepts at once. */
    protected byte responder_resources = 16;
    /** READs and atomics that this end sends at once. */
    protected byte initiator_depth = 16;
    /** Whether there is flow control; has no effect. */
    protected byte flow_control;
    /** Timeouts in a row before this end gives up. */
    protected byte retry_count = 7;
    /** RNR NAKs in a row before this end gives up; 7 never gives up. */
    protected byte rnr_retry_count = 7;
    /** Whether receives are shared; has no effect. */
    protected byte srq;
    /** The number of the queue pair. */
    protected int qp_num;

    /** An empty one. */
    public RdmaConnParam() {}

    /** {@return READs and atomics that this end accepts at once} */
    public byte getResponder_resources() {
        return responder_resources;
    }

    /**
     * Sets READs and atomics that this end accepts at once.
     *
     * @param responder_resources READs and atomics that this end accepts at once
     */
    public void setResponder_resources(byte responder_resources) {
        this.responder_resources = responder_resources;
    }

    /** {@return READs and atomics that this end sends at once} */
    public byte getInitiator_depth() {
        return initiator_depth;
    }

    /**
     * Sets READs and atomics that this end sends at once.
     *
     * @param initiator_depth READs and atomics that this end sends at once
     */
    public void setInitiator_depth(byte initiator_depth) {
        this.initiator_depth = initiator_depth;
    }

    /** {@return whether there is flow control; has no effect} */
    public byte getFlow_control() {
        return flow_control;
    }

    /**
     * Sets whether there is flow control.
     *
     * @param flow_control whether there is flow control; has no effect
     */
    public void setFlow_control(byte flow_control) {
        this.flow_control = flow_control;
    }

    /** {@return timeouts in a row before this end gives up} */
    public byte getRetry_count() {
        return retry_count;
    }

    /**
     * Sets timeouts in a row before this end gives up.
     *
     * @param retry_count timeouts in a row before this end gives up
     */
    public void setRetry_count(byte retry_count) {
        this.retry_count = retry_count;
    }

    /** {@return RNR NAKs in a row before this end gives up; 7 never gives up} */
    public byte getRnr_retry_count() {
        return rnr_retry_count;
    }

    /**
     * Sets RNR NAKs in a row before this end gives up.
     *
     * @param rnr_retry_count RNR NAKs in a row before this end gives up; 7 never gives up
     */
    public void setRnr_retry_count(byte rnr_retry_count) {
        this.rnr_retry_count = rnr_retry_count;
    }

    /** {@return whether receives are shared; has no effect} */
    public byte getSrq() {
        return srq;
    }

    /**
     * Sets whether receives are shared.
     *
     * @param srq whether receives are shared; has no effect
     */
    public void setSrq(byte srq) {
        this.srq = srq;
    }

    /** {@return the number of the queue pair} */
    public int getQp_num() {
        return qp_num;
    }

    /**
     * Sets the number of the queue pair.
     *
     * @param qp_num the number of the queue pair
     */
    public void setQp_num(int qp_num) {
        this.qp_num = qp_num;
    }
}
