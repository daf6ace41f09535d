package com.ibm.disni.verbs;

import java.util.LinkedList;

/** A receive as it is described once, as {@code ibv_recv_wr}; {@link IbvQP#postRecv} serialises it. */
public class IbvRecvWR {
    protected long wr_id;
    protected LinkedList<IbvSge> sg_list = new LinkedList<>();
    protected int num_sge;

    /** A receive for messages without bytes. */
    public IbvRecvWR() {}

    public long getWr_id() {
        return wr_id;
    }

    public void setWr_id(long wr_id) {
        this.wr_id = wr_id;
    }

    public int getNum_sge() {
        return num_sge;
    }

    public void setNum_sge(int num_sge) {
        this.num_sge = num_sge;
    }

    public LinkedList<IbvSge> getSg_list() {
        return sg_list;
    }

    public void setSg_list(LinkedList<IbvSge> sg_list) {
        this.sg_list = sg_list;
        this.num_sge = sg_list.size();
    }
}
