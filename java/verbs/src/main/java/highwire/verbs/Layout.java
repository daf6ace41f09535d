package highwire.verbs;

/**
 * The layout of the memory that the engine shares: rings, the doorbell board, the engine's tables.
 *
 * <p>{@code docs/uapi.md} draws every structure; {@code vectors/uapi/layout.txt} lists these numbers, with
 * which the tests of both languages compare their constants.
 */
final class Layout {
    /** The version of the door and of everything that is mapped through it. */
    static final long DOOR_VERSION = 3;
    /** The first word sent to a door: "HWDOOR". */
    static final long DOOR_MAGIC = 0x0000_524F_4F44_5748L;

    /** "HWRG". */
    static final int RING_MAGIC = 0x4752_5748;
    static final int RING_VERSION = 1;
    static final int RING_KIND_SEND = 1;
    static final int RING_KIND_RECEIVE = 2;
    static final int RING_KIND_COMPLETION = 3;
    static final long RING_MAGIC_OFFSET = 0;
    static final long RING_VERSION_OFFSET = 4;
    static final long RING_KIND_OFFSET = 6;
    static final long RING_SLOT_BYTES_OFFSET = 8;
    static final long RING_SLOT_COUNT_OFFSET = 12;
    static final long RING_SLOTS_OFFSET_OFFSET = 16;
    static final long RING_TOTAL_BYTES_OFFSET = 24;
    static final long RING_TAIL_OFFSET = 128;
    static final long RING_OVERRUN_OFFSET = 136;
    static final long RING_IN_USE_OFFSET = 144;
    static final long RING_COMPLETED_OFFSET = 144;
    static final long RING_HEAD_OFFSET = 256;
    static final long RING_HELD_OFFSET = 264;
    static final long RING_ARM_OFFSET = 384;
    static final long RING_BELL_OFFSET = 392;
    static final long RING_WANTED_OFFSET = 392;
    static final long RING_HEADER_BYTES = 512;

    /** Words of a send WQE, in bytes from its start. */
    static final long WQE_WR_ID = 0;
    static final long WQE_OPCODE = 8;
    static final long WQE_IMM = 16;
    static final long WQE_RKEY = 20;
    static final long WQE_REMOTE_ADDR = 24;
    static final long WQE_COMPARE_ADD = 32;
    static final long WQE_SWAP = 40;
    static final long WQE_QPN = 48;
    static final long WQE_FLOW = 56;
    static final long WQE_DATA = 64;
    static final int SGE_BYTES = 16;
    static final int RECEIVE_WQE_SGES = 8;
    static final int RECEIVE_WQE_DATA = 16;
    /** The number of the receive plus one, once a peer has completed it here. */
    static final int RECEIVE_COMPLETED = 56;

    static final int FLAG_FENCE = 1;
    static final int FLAG_SIGNALED = 2;
    static final int FLAG_SOLICITED = 4;
    static final int FLAG_INLINE = 8;
    static final int FLAG_DATAGRAM = 128;

    static final int CQE_BYTES = 64;
    static final long CQE_WR_ID = 0;
    static final long CQE_STATUS = 8;
    static final long CQE_BYTE_LEN = 16;
    static final long CQE_QPN = 24;
    static final int CQE_OP_RECEIVE = 128;
    static final int CQE_OP_RECEIVE_WRITE = 129;
    static final int CQE_WITH_IMM = 2;

    static final long ARM_SOLICITED = 1;
    static final long ARM_NEXT = 2;

    /** "HWDB". */
    static final int BOARD_MAGIC = 0x4244_5748;
    static final long BOARD_BITS_OFFSET = 8;
    static final long BOARD_SUMMARY_OFFSET = 128;
    static final long BOARD_SLEEPING_OFFSET = 256;
    static final long BOARD_WORDS_OFFSET = 384;

    /** "HWENGINE". */
    static final long ENGINE_MAGIC = 0x454E_4947_4E45_5748L;
    static final int ENGINE_VERSION = 1;
    static final long ENGINE_VERSION_OFFSET = 8;
    static final long ENGINE_LANES_OFFSET = 12;
    static final long ENGINE_QP_SLOTS_OFFSET = 64;
    static final long ENGINE_MR_SLOTS_OFFSET = 68;
    static final long ENGINE_CHANNELS_OFFSET = 72;
    static final long ENGINE_LANE_TABLE_OFFSET = 256;
    static final long ENGINE_LANE_BYTES = 256;
    static final long ENGINE_CHANNEL_BYTES = 256;
    static final long ENTRY_BYTES = 64;
    static final int ENTRY_PROBES = 16;
    static final int ENTRY_LIVE = 1;
    static final int ENTRY_HASH = 0x9E37_79B1;

    private Layout() {}
}
