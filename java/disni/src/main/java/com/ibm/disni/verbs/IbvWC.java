package com.ibm.disni.verbs;

/** A completion, as {@code ibv_wc}. After a failure only the number, the status and the queue pair mean something. */
public class IbvWC implements Cloneable {
    protected long wr_id;
    protected int status;
    protected int opcode;
    protected int vendor_err;
    protected int byte_len;
    protected int imm_data;
    protected int qp_num;
    protected int src_qp;
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

    public long getWr_id() {
        return wr_id;
    }

    public void setWr_id(long wr_id) {
        this.wr_id = wr_id;
    }

    public int getStatus() {
        return status;
    }

    public void setStatus(int status) {
        this.status = status;
    }

    public int getOpcode() {
        return opcode;
    }

    public void setOpcode(int opcode) {
        this.opcode = opcode;
    }

    public int getVendor_err() {
        return vendor_err;
    }

    public void setVendor_err(int vendor_err) {
        this.vendor_err = vendor_err;
    }

    public int getByte_len() {
        return byte_len;
    }

    public void setByte_len(int byte_len) {
        this.byte_len = byte_len;
    }

    public int getImm_data() {
        return imm_data;
    }

    public void setImm_data(int imm_data) {
        this.imm_data = imm_data;
    }

    public int getQp_num() {
        return qp_num;
    }

    public void setQp_num(int qp_num) {
        this.qp_num = qp_num;
    }

    public int getSrc_qp() {
        return src_qp;
    }

    public void setSrc_qp(int src_qp) {
        this.src_qp = src_qp;
    }

    public int getWc_flags() {
        return wc_flags;
    }

    public void setWc_flags(int wc_flags) {
        this.wc_flags = wc_flags;
    }

    /** How work ended, in the order of {@code ibv_wc_status}. */
    public enum IbvWcStatus {
        IBV_WC_SUCCESS,
        IBV_WC_LOC_LEN_ERR,
        IBV_WC_LOC_QP_OP_ERR,
        IBV_WC_LOC_EEC_OP_ERR,
        IBV_WC_LOC_PROT_ERR,
        IBV_WC_WR_FLUSH_ERR,
        IBV_WC_MW_BIND_ERR,
        IBV_WC_BAD_RESP_ERR,
        IBV_WC_LOC_ACCESS_ERR,
        IBV_WC_REM_INV_REQ_ERR,
        IBV_WC_REM_ACCESS_ERR,
        IBV_WC_REM_OP_ERR,
        IBV_WC_RETRY_EXC_ERR,
        IBV_WC_RNR_RETRY_EXC_ERR,
        IBV_WC_LOC_RDD_VIOL_ERR,
        IBV_WC_REM_INV_RD_REQ_ERR,
        IBV_WC_REM_ABORT_ERR,
        IBV_WC_INV_EECN_ERR,
        IBV_WC_INV_EEC_STATE_ERR,
        IBV_WC_FATAL_ERR,
        IBV_WC_RESP_TIMEOUT_ERR,
        IBV_WC_GENERAL_ERR;

        private static final IbvWcStatus[] ALL = values();

        /** @param number as {@link IbvWC#getStatus} says. @return its name */
        public static IbvWcStatus valueOf(int number) {
            return number >= 0 && number < ALL.length ? ALL[number] : IBV_WC_GENERAL_ERR;
        }
    }

    /** What completed, as {@code ibv_wc_opcode}. */
    public enum IbvWcOpcode {
        IBV_WC_SEND(0),
        IBV_WC_RDMA_WRITE(1),
        IBV_WC_RDMA_READ(2),
        IBV_WC_COMP_SWAP(3),
        IBV_WC_FETCH_ADD(4),
        IBV_WC_BIND_MW(5),
        IBV_WC_RECV(1 << 7),
        IBV_WC_RECV_RDMA_WITH_IMM((1 << 7) + 1);

        private static final IbvWcOpcode[] ALL = values();
        private final int number;

        IbvWcOpcode(int number) {
            this.number = number;
        }

        /** @return as {@link IbvWC#getOpcode} says. */
        public int getOpcode() {
            return number;
        }

        /** @param number as {@link IbvWC#getOpcode} says. @return its name, or null */
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
