package com.ibm.disni.verbs;

import java.util.LinkedList;

/** A send request as it is described once, as {@code ibv_send_wr}; {@link IbvQP#postSend} serialises it. */
public class IbvSendWR {
    public static final int IBV_WR_RDMA_WRITE = 0;
    public static final int IBV_WR_RDMA_WRITE_WITH_IMM = 1;
    public static final int IBV_WR_SEND = 2;
    public static final int IBV_WR_SEND_WITH_IMM = 3;
    public static final int IBV_WR_RDMA_READ = 4;
    public static final int IBV_WR_ATOMIC_CMP_AND_SWP = 5;
    public static final int IBV_WR_ATOMIC_FETCH_AND_ADD = 6;

    public static final int IBV_SEND_FENCE = 1;
    public static final int IBV_SEND_SIGNALED = 1 << 1;
    public static final int IBV_SEND_SOLICITED = 1 << 2;
    public static final int IBV_SEND_INLINE = 1 << 3;

    protected long wr_id;
    protected LinkedList<IbvSge> sg_list = new LinkedList<>();
    protected int num_sge;
    protected int opcode;
    protected int send_flags;
    protected int imm_data;
    protected Rdma rdma = new Rdma();
    protected Atomic atomic = new Atomic();

    /** A request without memory, to be filled in. */
    public IbvSendWR() {}

    public long getWr_id() {
        return wr_id;
    }

    public void setWr_id(long wr_id) {
        this.wr_id = wr_id;
    }

    public LinkedList<IbvSge> getSg_list() {
        return sg_list;
    }

    public IbvSge getSge(int index) {
        return sg_list.get(index);
    }

    public void setSg_list(LinkedList<IbvSge> sg_list) {
        this.sg_list = sg_list;
        this.num_sge = sg_list.size();
    }

    public int getNum_sge() {
        return num_sge;
    }

    public void setNum_sge(int num_sge) {
        this.num_sge = num_sge;
    }

    public int getOpcode() {
        return opcode;
    }

    public void setOpcode(int opcode) {
        this.opcode = opcode;
    }

    public int getSend_flags() {
        return send_flags;
    }

    public void setSend_flags(int send_flags) {
        this.send_flags = send_flags;
    }

    public int getImm_data() {
        return imm_data;
    }

    public void setImm_data(int imm_data) {
        this.imm_data = imm_data;
    }

    /** @return what READ and WRITE need. */
    public Rdma getRdma() {
        return rdma;
    }

    /** @return what atomics need. */
    public Atomic getAtomic() {
        return atomic;
    }

    /** The names of {@code ibv_wr_opcode}, whose ordinals are the numbers. */
    public enum IbvWrOcode {
        IBV_WR_RDMA_WRITE,
        IBV_WR_RDMA_WRITE_WITH_IMM,
        IBV_WR_SEND,
        IBV_WR_SEND_WITH_IMM,
        IBV_WR_RDMA_READ,
        IBV_WR_ATOMIC_CMP_AND_SWP,
        IBV_WR_ATOMIC_FETCH_AND_ADD
    }

    /** The peer's memory of a READ or WRITE. */
    public static class Rdma {
        protected long remote_addr;
        protected int rkey;
        protected int reserved;

        /** An empty one. */
        public Rdma() {}

        public long getRemote_addr() {
            return remote_addr;
        }

        public void setRemote_addr(long remote_addr) {
            this.remote_addr = remote_addr;
        }

        public int getRkey() {
            return rkey;
        }

        public void setRkey(int rkey) {
            this.rkey = rkey;
        }

        public int getReserved() {
            return reserved;
        }

        public void setReserved(int reserved) {
            this.reserved = reserved;
        }
    }

    /** The peer's word and the operands of an atomic. */
    public static class Atomic {
        protected long remote_addr;
        protected long compare_add;
        protected long swap;
        protected int rkey;
        protected int reserved;

        /** An empty one. */
        public Atomic() {}

        public long getRemote_addr() {
            return remote_addr;
        }

        public void setRemote_addr(long remote_addr) {
            this.remote_addr = remote_addr;
        }

        public long getCompare_add() {
            return compare_add;
        }

        public void setCompare_add(long compare_add) {
            this.compare_add = compare_add;
        }

        public long getSwap() {
            return swap;
        }

        public void setSwap(long swap) {
            this.swap = swap;
        }

        public int getRkey() {
            return rkey;
        }

        public void setRkey(int rkey) {
            this.rkey = rkey;
        }

        public int getReserved() {
            return reserved;
        }

        public void setReserved(int reserved) {
            this.reserved = reserved;
        }
    }
}
