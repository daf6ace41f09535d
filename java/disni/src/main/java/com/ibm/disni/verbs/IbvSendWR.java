package com.ibm.disni.verbs;

import java.util.LinkedList;

/** A send request as it is described once, as {@code ibv_send_wr}; {@link IbvQP#postSend} serialises it. */
public class IbvSendWR {
    /** Writes the peer's memory. */
    public static final int IBV_WR_RDMA_WRITE = 0;
    /** Writes the peer's memory, and completes a receive there. */
    public static final int IBV_WR_RDMA_WRITE_WITH_IMM = 1;
    /** Sends a message. */
    public static final int IBV_WR_SEND = 2;
    /** Sends a message with four bytes in its completion. */
    public static final int IBV_WR_SEND_WITH_IMM = 3;
    /** Reads the peer's memory. */
    public static final int IBV_WR_RDMA_READ = 4;
    /** Compares eight bytes and stores others if they are equal. */
    public static final int IBV_WR_ATOMIC_CMP_AND_SWP = 5;
    /** Adds to eight bytes and reads what was there. */
    public static final int IBV_WR_ATOMIC_FETCH_AND_ADD = 6;

    /** The request waits for READs and atomics before it. */
    public static final int IBV_SEND_FENCE = 1;
    /** Success makes a completion. */
    public static final int IBV_SEND_SIGNALED = 1 << 1;
    /** The peer's queue reports the message as solicited. */
    public static final int IBV_SEND_SOLICITED = 1 << 2;
    /** The bytes are copied into the request. */
    public static final int IBV_SEND_INLINE = 1 << 3;

    /** The number that comes back in the completion. */
    protected long wr_id;
    /** The pieces of memory. */
    protected LinkedList<IbvSge> sg_list = new LinkedList<>();
    /** How many pieces of memory it has. */
    protected int num_sge;
    /** The operation. */
    protected int opcode;
    /** Flags, as bits {@code IBV_SEND_}. */
    protected int send_flags;
    /** Four bytes that go along. */
    protected int imm_data;
    /** The peer's memory, for READ and WRITE. */
    protected Rdma rdma = new Rdma();
    /** The peer's memory and the operands, for atomics. */
    protected Atomic atomic = new Atomic();

    /** A request without memory, to be filled in. */
    public IbvSendWR() {}

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

    /** {@return the pieces of memory} */
    public LinkedList<IbvSge> getSg_list() {
        return sg_list;
    }

    /**
     * {@return one piece of memory}
     *
     * @param index from 0
     */
    public IbvSge getSge(int index) {
        return sg_list.get(index);
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

    /** {@return the operation} */
    public int getOpcode() {
        return opcode;
    }

    /**
     * Sets the operation.
     *
     * @param opcode the operation
     */
    public void setOpcode(int opcode) {
        this.opcode = opcode;
    }

    /** {@return flags, as bits {@code IBV_SEND_}} */
    public int getSend_flags() {
        return send_flags;
    }

    /**
     * Sets flags, as bits {@code IBV_SEND_}.
     *
     * @param send_flags flags, as bits {@code IBV_SEND_}
     */
    public void setSend_flags(int send_flags) {
        this.send_flags = send_flags;
    }

    /** {@return four bytes that go along} */
    public int getImm_data() {
        return imm_data;
    }

    /**
     * Sets four bytes that go along.
     *
     * @param imm_data four bytes that go along
     */
    public void setImm_data(int imm_data) {
        this.imm_data = imm_data;
    }

    /** {@return what READ and WRITE need} */
    public Rdma getRdma() {
        return rdma;
    }

    /** {@return what atomics need} */
    public Atomic getAtomic() {
        return atomic;
    }

    /** The names of {@code ibv_wr_opcode}, whose ordinals are the numbers. */
    public enum IbvWrOcode {
        /** Writes the peer's memory. */
        IBV_WR_RDMA_WRITE,
        /** Writes the peer's memory, and completes a receive there. */
        IBV_WR_RDMA_WRITE_WITH_IMM,
        /** Sends a message. */
        IBV_WR_SEND,
        /** Sends a message with four bytes in its completion. */
        IBV_WR_SEND_WITH_IMM,
        /** Reads the peer's memory. */
        IBV_WR_RDMA_READ,
        /** Compares eight bytes and stores others if they are equal. */
        IBV_WR_ATOMIC_CMP_AND_SWP,
        /** Adds to eight bytes and reads what was there. */
        IBV_WR_ATOMIC_FETCH_AND_ADD
    }

    /** The peer's memory of a READ or WRITE. */
    public static class Rdma {
        /** The address in the peer's memory. */
        protected long remote_addr;
        /** The key of the memory for peers. */
        protected int rkey;
        /** A number without meaning. */
        protected int reserved;

        /** An empty one. */
        public Rdma() {}

        /** {@return the address in the peer's memory} */
        public long getRemote_addr() {
            return remote_addr;
        }

        /**
         * Sets the address in the peer's memory.
         *
         * @param remote_addr the address in the peer's memory
         */
        public void setRemote_addr(long remote_addr) {
            this.remote_addr = remote_addr;
        }

        /** {@return the key of the memory for peers} */
        public int getRkey() {
            return rkey;
        }

        /**
         * Sets the key of the memory for peers.
         *
         * @param rkey the key of the memory for peers
         */
        public void setRkey(int rkey) {
            this.rkey = rkey;
        }

        /** {@return a number without meaning} */
        public int getReserved() {
            return reserved;
        }

        /**
         * Sets a number without meaning.
         *
         * @param reserved a number without meaning
         */
        public void setReserved(int reserved) {
            this.reserved = reserved;
        }
    }

    /** The peer's word and the operands of an atomic. */
    public static class Atomic {
        /** The address in the peer's memory. */
        protected long remote_addr;
        /** What must be there, or what is added. */
        protected long compare_add;
        /** What is stored if the comparison succeeds. */
        protected long swap;
        /** The key of the memory for peers. */
        protected int rkey;
        /** A number without meaning. */
        protected int reserved;

        /** An empty one. */
        public Atomic() {}

        /** {@return the address in the peer's memory} */
        public long getRemote_addr() {
            return remote_addr;
        }

        /**
         * Sets the address in the peer's memory.
         *
         * @param remote_addr the address in the peer's memory
         */
        public void setRemote_addr(long remote_addr) {
            this.remote_addr = remote_addr;
        }

        /** {@return what must be there, or what is added} */
        public long getCompare_add() {
            return compare_add;
        }

        /**
         * Sets what must be there, or what is added.
         *
         * @param compare_add what must be there, or what is added
         */
        public void setCompare_add(long compare_add) {
            this.compare_add = compare_add;
        }

        /** {@return what is stored if the comparison succeeds} */
        public long getSwap() {
            return swap;
        }

        /**
         * Sets what is stored if the comparison succeeds.
         *
         * @param swap what is stored if the comparison succeeds
         */
        public void setSwap(long swap) {
            this.swap = swap;
        }

        /** {@return the key of the memory for peers} */
        public int getRkey() {
            return rkey;
        }

        /**
         * Sets the key of the memory for peers.
         *
         * @param rkey the key of the memory for peers
         */
        public void setRkey(int rkey) {
            this.rkey = rkey;
        }

        /** {@return a number without meaning} */
        public int getReserved() {
            return reserved;
        }

        /**
         * Sets a number without meaning.
         *
         * @param reserved a number without meaning
         */
        public void setReserved(int reserved) {
            this.reserved = reserved;
        }
    }
}
