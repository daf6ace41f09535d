package com.ibm.disni.verbs;

/** How much a queue pair holds, as {@code ibv_qp_cap}. */
public class IbvQPCap {
    /** Sends that are in flight at most. */
    protected int max_send_wr;
    /** Receives that wait at most. */
    protected int max_recv_wr;
    /** Pieces of memory that a send may have. */
    protected int max_send_sge;
    /** Pieces of memory that a receive may have. */
    protected int max_recv_sge;
    /** Bytes that a send may carry in itself. */
    protected int max_inline_data;

    /** For {@link IbvQPInitAttr}. */
    protected IbvQPCap() {}

    /** {@return sends that are in flight at most} */
    public int getMax_send_wr() {
        return max_send_wr;
    }

    /**
     * Sets sends that are in flight at most.
     *
     * @param max_send_wr sends that are in flight at most
     */
    public void setMax_send_wr(int max_send_wr) {
        this.max_send_wr = max_send_wr;
    }

    /** {@return receives that wait at most} */
    public int getMax_recv_wr() {
        return max_recv_wr;
    }

    /**
     * Sets receives that wait at most.
     *
     * @param max_recv_wr receives that wait at most
     */
    public void setMax_recv_wr(int max_recv_wr) {
        this.max_recv_wr = max_recv_wr;
    }

    /** {@return pieces of memory that a send may have} */
    public int getMax_send_sge() {
        return max_send_sge;
    }

    /**
     * Sets pieces of memory that a send may have.
     *
     * @param max_send_sge pieces of memory that a send may have
     */
    public void setMax_send_sge(int max_send_sge) {
        this.max_send_sge = max_send_sge;
    }

    /** {@return pieces of memory that a receive may have} */
    public int getMax_recv_sge() {
        return max_recv_sge;
    }

    /**
     * Sets pieces of memory that a receive may have.
     *
     * @param max_recv_sge pieces of memory that a receive may have
     */
    public void setMax_recv_sge(int max_recv_sge) {
        this.max_recv_sge = max_recv_sge;
    }

    /** {@return bytes that a send may carry in itself} */
    public int getMax_inline_data() {
        return max_inline_data;
    }

    /**
     * Sets bytes that a send may carry in itself.
     *
     * @param max_inline_data bytes that a send may carry in itself
     */
    public void setMax_inline_data(int max_inline_data) {
        this.max_inline_data = max_inline_data;
    }
}
