package com.ibm.disni.verbs;

/** What a queue pair is made with, as {@code ibv_qp_init_attr}. There is RC, and no shared receive queue. */
public class IbvQPInitAttr {
    protected byte qp_type = IbvQP.IBV_QPT_RC;
    protected byte sq_sig_all;
    protected IbvCQ send_cq;
    protected IbvCQ recv_cq;
    private final IbvQPCap cap = new IbvQPCap();

    /** An empty one. */
    public IbvQPInitAttr() {}

    public byte getQp_type() {
        return qp_type;
    }

    public void setQp_type(byte qp_type) {
        this.qp_type = qp_type;
    }

    public byte getSq_sig_all() {
        return sq_sig_all;
    }

    public void setSq_sig_all(byte sq_sig_all) {
        this.sq_sig_all = sq_sig_all;
    }

    public IbvCQ getSend_cq() {
        return send_cq;
    }

    public void setSend_cq(IbvCQ send_cq) {
        this.send_cq = send_cq;
    }

    public IbvCQ getRecv_cq() {
        return recv_cq;
    }

    public void setRecv_cq(IbvCQ recv_cq) {
        this.recv_cq = recv_cq;
    }

    /** @return how much the queue pair holds, to be set. */
    public IbvQPCap cap() {
        return cap;
    }
}
