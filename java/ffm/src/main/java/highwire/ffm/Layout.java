package highwire.ffm;

/**
 * Offsets of the fields of libibverbs' public structures on 64-bit Linux. They are the library's ABI; a test
 * compares them with the listing in {@code vectors/abi}.
 */
final class Layout {
    static final long CONTEXT_OPS = 8;
    static final long OPS_POLL_CQ = 88;
    static final long OPS_REQ_NOTIFY_CQ = 96;
    static final long OPS_POST_SEND = 200;
    static final long OPS_POST_RECV = 208;

    static final long MR_LKEY = 36;
    static final long MR_RKEY = 40;
    static final long QP_NUM = 52;
    static final long CHANNEL_FD = 8;

    static final long PORT_BYTES = 56;
    static final long PORT_STATE = 0;
    static final long PORT_ACTIVE_MTU = 8;
    static final long PORT_GID_TBL_LEN = 12;

    static final long GID_ENTRY_BYTES = 32;
    static final long GID_ENTRY_GID_TYPE = 24;

    static final long INIT_BYTES = 64;
    static final long INIT_SEND_CQ = 8;
    static final long INIT_RECV_CQ = 16;
    static final long INIT_CAP = 32;
    static final long INIT_QP_TYPE = 52;

    static final long ATTR_BYTES = 144;
    static final long ATTR_QP_STATE = 0;
    static final long ATTR_PATH_MTU = 8;
    static final long ATTR_RQ_PSN = 20;
    static final long ATTR_SQ_PSN = 24;
    static final long ATTR_DEST_QP_NUM = 28;
    static final long ATTR_ACCESS = 32;
    static final long ATTR_AH = 56;
    static final long ATTR_PKEY_INDEX = 120;
    static final long ATTR_MAX_RD_ATOMIC = 126;
    static final long ATTR_MAX_DEST_RD_ATOMIC = 127;
    static final long ATTR_MIN_RNR_TIMER = 128;
    static final long ATTR_PORT_NUM = 129;
    static final long ATTR_TIMEOUT = 130;
    static final long ATTR_RETRY_CNT = 131;
    static final long ATTR_RNR_RETRY = 132;

    static final long AH_SGID_INDEX = 20;
    static final long AH_HOP_LIMIT = 21;
    static final long AH_IS_GLOBAL = 29;
    static final long AH_PORT_NUM = 30;

    static final long SEND_BYTES = 128;
    static final long SEND_SG_LIST = 16;
    static final long SEND_NUM_SGE = 24;
    static final long SEND_OPCODE = 28;
    static final long SEND_FLAGS = 32;
    static final long SEND_IMM = 36;
    static final long SEND_REMOTE_ADDR = 40;
    /** Of READ and WRITE. */
    static final long SEND_RKEY = 48;
    static final long SEND_COMPARE_ADD = 48;
    static final long SEND_SWAP = 56;
    /** Of atomics. */
    static final long SEND_ATOMIC_RKEY = 64;

    static final long RECV_BYTES = 32;
    static final long RECV_SG_LIST = 16;
    static final long RECV_NUM_SGE = 24;

    static final long SGE_BYTES = 16;
    static final long SGE_LENGTH = 8;
    static final long SGE_LKEY = 12;

    static final long WC_BYTES = 48;
    static final long WC_STATUS = 8;
    static final long WC_OPCODE = 12;
    static final long WC_BYTE_LEN = 20;
    static final long WC_IMM = 24;
    static final long WC_QP_NUM = 28;
    static final long WC_SRC_QP = 32;
    static final long WC_FLAGS = 36;

    private Layout() {}
}
