package com.ibm.disni.verbs;

/** A completion, as {@code ibv_wc}. After a failure only the number, the status and the queue pair mean something. */
public class IbvWC implements Cloneable {
    /** The number that comes back in the completion. */
    protected long wr_id;
    /** How it ended; 0 is success. */
    protected int status;
    /** The operation. */
    protected int opcode;
    /** The device's own error number. */
    protected int vendor_err;
    /** Bytes received or read. */
    protected int byte_len;
    /** Four bytes that go along. */
    protected int imm_data;
    /** The number of the queue pair. */
    protected int qp_num;
    /** The queue pair that sent it, for datagrams. */
    protected int src_qp;
    /** What else is valid in the completion. */
    protected int wc_flags;

    /** An empty one to poll into. */
    public IbvWC() {}

    @Override
    public IbvWC clone() {
        try {
            return (IbvWC) super.clone();
        } catch (CloneNotSupportedException e) {
            throw new AssertionError("the class is Cloneable", e);
        }
    }

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

    /** {@return how it ended; 0 is success} */
    public int getStatus() {
        return status;
    }

    /**
     * Sets how it ended.
     *
     * @param status how it ended; 0 is success
     */
    public void setStatus(int status) {
        this.status = status;
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

    /** {@return the device's own error number} */
    public int getVendor_err() {
        return vendor_err;
    }

    /**
     * Sets the device's own error number.
     *
     * @param vendor_err the device's own error number
     */
    public void setVendor_err(int vendor_err) {
        this.vendor_err = vendor_err;
    }

    /** {@return bytes received or read} */
    public int getByte_len() {
        return byte_len;
    }

    /**
     * Sets bytes received or read.
     *
     * @param byte_len bytes received or read
     */
    public void setByte_len(int byte_len) {
        this.byte_len = byte_len;
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

    /** {@return the queue pair that sent it, for datagrams} */
    public int getSrc_qp() {
        return src_qp;
    }

    /**
     * Sets the queue pair that sent it, for datagrams.
     *
     * @param src_qp the queue pair that sent it, for datagrams
     */
    public void setSrc_qp(int src_qp) {
        this.src_qp = src_qp;
    }

    /** {@return what else is valid in the completion} */
    public int getWc_flags() {
        return wc_flags;
    }

    /**
     * Sets what else is valid in the completion.
     *
     * @param wc_flags what else is valid in the completion
     */
    public void setWc_flags(int wc_flags) {
        this.wc_flags = wc_flags;
    }

    /** How work ended, in the order of {@code ibv_wc_status}. */
    public enum IbvWcStatus {
        /** Success. */
        IBV_WC_SUCCESS,
        /** A message was longer than its receive, or a request too long. */
        IBV_WC_LOC_LEN_ERR,
        /** The queue pair could not execute the request. */
        IBV_WC_LOC_QP_OP_ERR,
        /** An error of reliable datagrams. */
        IBV_WC_LOC_EEC_OP_ERR,
        /** The request names memory that is not registered so. */
        IBV_WC_LOC_PROT_ERR,
        /** The queue pair had failed before. */
        IBV_WC_WR_FLUSH_ERR,
        /** A memory window could not be bound. */
        IBV_WC_MW_BIND_ERR,
        /** The peer gave an invalid response. */
        IBV_WC_BAD_RESP_ERR,
        /** A peer was not allowed what it did here. */
        IBV_WC_LOC_ACCESS_ERR,
        /** The peer found the request invalid. */
        IBV_WC_REM_INV_REQ_ERR,
        /** The peer does not allow it. */
        IBV_WC_REM_ACCESS_ERR,
        /** The peer could not execute the request. */
        IBV_WC_REM_OP_ERR,
        /** The peer was silent. */
        IBV_WC_RETRY_EXC_ERR,
        /** The peer had no receive. */
        IBV_WC_RNR_RETRY_EXC_ERR,
        /** A local error of reliable datagrams. */
        IBV_WC_LOC_RDD_VIOL_ERR,
        /** A peer's error of reliable datagrams. */
        IBV_WC_REM_INV_RD_REQ_ERR,
        /** The peer aborted the request. */
        IBV_WC_REM_ABORT_ERR,
        /** An invalid context of reliable datagrams. */
        IBV_WC_INV_EECN_ERR,
        /** A context of reliable datagrams in the wrong state. */
        IBV_WC_INV_EEC_STATE_ERR,
        /** A fatal error of the device. */
        IBV_WC_FATAL_ERR,
        /** A response did not come in time. */
        IBV_WC_RESP_TIMEOUT_ERR,
        /** Another error. */
        IBV_WC_GENERAL_ERR;

        private static final IbvWcStatus[] ALL = values();

        /**
         * Names a number.
         *
         * @param number as {@link IbvWC#getStatus} says
         * @return its name
         */
        public static IbvWcStatus valueOf(int number) {
            return number >= 0 && number < ALL.length ? ALL[number] : IBV_WC_GENERAL_ERR;
        }
    }

    /** What completed, as {@code ibv_wc_opcode}. */
    public enum IbvWcOpcode {
        /** A message was sent. */
        IBV_WC_SEND(0),
        /** A WRITE was executed. */
        IBV_WC_RDMA_WRITE(1),
        /** A READ was executed. */
        IBV_WC_RDMA_READ(2),
        /** A compare-and-swap was executed. */
        IBV_WC_COMP_SWAP(3),
        /** A fetch-and-add was executed. */
        IBV_WC_FETCH_ADD(4),
        /** A memory window was bound. */
        IBV_WC_BIND_MW(5),
        /** A message was received. */
        IBV_WC_RECV(1 << 7),
        /** A WRITE with immediate has arrived. */
        IBV_WC_RECV_RDMA_WITH_IMM((1 << 7) + 1);

        private static final IbvWcOpcode[] ALL = values();
        private final int number;

        IbvWcOpcode(int number) {
            this.number = number;
        }

        /** {@return as {@link IbvWC#getOpcode} says} */
        public int getOpcode() {
            return number;
        }

        /**
         * Names a number.
         *
         * @param number as {@link IbvWC#getOpcode} says
         * @return its name, or null
         */
        public static IbvWcOpcode valueOf(int number) {
            for (IbvWcOpcode opcode : ALL) {
                if (opcode.number == number) {
                    return opcode;
                }
            }
            return null;
        }
    }
}
