package com.ibm.disni.verbs;

/** What a queue pair is made with, as {@code ibv_qp_init_attr}. There is RC, and no shared receive queue. */
public class IbvQPInitAttr {
    /** The service, which is RC. */
    protected byte qp_type = IbvQP.IBV_QPT_RC;
    /** Whether every send makes a completion. */
    protected byte sq_sig_all;
    /** Where sends complete. */
    protected IbvCQ send_cq;
    /** Where receives complete. */
    protected IbvCQ recv_cq;
    private final IbvQPCap cap = new IbvQPCap();

    /** An empty one. */
    public IbvQPInitAttr() {}

    /** {@return the service, which is RC} */
    public byte getQp_type() {
        return qp_type;
    }

    /**
     * Sets the service, which is RC.
     *
     * @param qp_type the service, which is RC
     */
    public void setQp_type(byte qp_type) {
        this.qp_type = qp_type;
    }

    /** {@return whether every send makes a completion} */
    public byte getSq_sig_all() {
        return sq_sig_all;
    }

    /**
     * Sets whether every send makes a completion.
     *
     * @param sq_sig_all whether every send makes a completion
     */
    public void setSq_sig_all(byte sq_sig_all) {
        this.sq_sig_all = sq_sig_all;
    }

    /** {@return where sends complete} */
    public IbvCQ getSend_cq() {
        return send_cq;
    }

    /**
     * Sets where sends complete.
     *
     * @param send_cq where sends complete
     */
    public void setSend_cq(IbvCQ send_cq) {
        this.send_cq = send_cq;
    }

    /** {@return where receives complete} */
    public IbvCQ getRecv_cq() {
        return recv_cq;
    }

    /**
     * Sets where receives complete.
     *
     * @param recv_cq where receives complete
     */
    public void setRecv_cq(IbvCQ recv_cq) {
        this.recv_cq = recv_cq;
    }

    /** {@return how much the queue pair holds, to be set} */
    public IbvQPCap cap() {
        return cap;
    }
}
