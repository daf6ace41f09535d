package com.ibm.disni.verbs;

import java.util.LinkedList;

/** A receive as it is described once, as {@code ibv_recv_wr}; {@link IbvQP#postRecv} serialises it. */
public class IbvRecvWR {
    /** The number that comes back in the completion. */
    protected long wr_id;
    /** The pieces of memory. */
    protected LinkedList<IbvSge> sg_list = new LinkedList<>();
    /** How many pieces of memory it has. */
    protected int num_sge;

    /** A receive for messages without bytes. */
    public IbvRecvWR() {}

    /** {@return the number that comes back in the completion} */
    public long getWr_id() {
        return wr_id;
    }

    /**
     * Sets the number that comes back in the completion.
     *
     * @param wr_id the number that comes back in the completion
     */
    public void setWr_id(long wr_id) {
        this.wr_id = wr_id;
    }

    /** {@return how many pieces of memory it has} */
    public int getNum_sge() {
        return num_sge;
    }

    /**
     * Sets how many pieces of memory it has.
     *
     * @param num_sge how many pieces of memory it has
     */
    public void setNum_sge(int num_sge) {
        this.num_sge = num_sge;
    }

    /** {@return the pieces of memory} */
    public LinkedList<IbvSge> getSg_list() {
        return sg_list;
    }

    /**
     * Sets the pieces of memory.
     *
     * @param sg_list the pieces of memory
     */
    public void setSg_list(LinkedList<IbvSge> sg_list) {
        this.sg_list = sg_list;
        this.num_sge = sg_list.size();
    }
}
