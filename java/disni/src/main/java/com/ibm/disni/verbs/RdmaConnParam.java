package com.ibm.disni.verbs;

/** How a connection is made, as {@code rdma_conn_param}. Used are the two counts of retries; there is no private data. */
public class RdmaConnParam {
    protected byte responder_resources = 16;
    protected byte initiator_depth = 16;
    protected byte flow_control;
    protected byte retry_count = 7;
    protected byte rnr_retry_count = 7;
    protected byte srq;
    protected int qp_num;

    /** An empty one. */
    public RdmaConnParam() {}

    public byte getResponder_resources() {
        return responder_resources;
    }

    public void setResponder_resources(byte responder_resources) {
        this.responder_resources = responder_resources;
    }

    public byte getInitiator_depth() {
        return initiator_depth;
    }

    public void setInitiator_depth(byte initiator_depth) {
        this.initiator_depth = initiator_depth;
    }

    public byte getFlow_control() {
        return flow_control;
    }

    public void setFlow_control(byte flow_control) {
        this.flow_control = flow_control;
    }

    public byte getRetry_count() {
        return retry_count;
    }

    public void setRetry_count(byte retry_count) {
        this.retry_count = retry_count;
    }

    public byte getRnr_retry_count() {
        return rnr_retry_count;
    }

    public void setRnr_retry_count(byte rnr_retry_count) {
        this.rnr_retry_count = rnr_retry_count;
    }

    public byte getSrq() {
        return srq;
    }

    public void setSrq(byte srq) {
        this.srq = srq;
    }

    public int getQp_num() {
        return qp_num;
    }

    public void setQp_num(int qp_num) {
        this.qp_num = qp_num;
    }
}
