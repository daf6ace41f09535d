package com.ibm.disni.verbs;

/** How much a queue pair holds, as {@code ibv_qp_cap}. */
public class IbvQPCap {
    protected int max_send_wr;
    protected int max_recv_wr;
    protected int max_send_sge;
    protected int max_recv_sge;
    protected int max_inline_data;

    /** For {@link IbvQPInitAttr}. */
    protected IbvQPCap() {}

    public int getMax_send_wr() {
        return max_send_wr;
    }

    public void setMax_send_wr(int max_send_wr) {
        this.max_send_wr = max_send_wr;
    }

    public int getMax_recv_wr() {
        return max_recv_wr;
    }

    public void setMax_recv_wr(int max_recv_wr) {
        this.max_recv_wr = max_recv_wr;
    }

    public int getMax_send_sge() {
        return max_send_sge;
    }

    public void setMax_send_sge(int max_send_sge) {
        this.max_send_sge = max_send_sge;
    }

    public int getMax_recv_sge() {
        return max_recv_sge;
    }

    public void setMax_recv_sge(int max_recv_sge) {
        this.max_recv_sge = max_recv_sge;
    }

    public int getMax_inline_data() {
        return max_inline_data;
    }

    public void setMax_inline_data(int max_inline_data) {
        this.max_inline_data = max_inline_data;
    }
}
