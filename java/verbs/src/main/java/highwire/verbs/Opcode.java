package highwire.verbs;

/** The operation of a send request; the numbers are those of {@code ibv_wr_opcode}. */
public enum Opcode {
    /** Writes to the peer's memory. */
    WRITE(0, 1),
    /** Writes, and completes one of the peer's receives with four bytes. */
    WRITE_WITH_IMM(1, 1),
    /** A message into one of the peer's receives. */
    SEND(2, 0),
    /** The same with four bytes more. */
    SEND_WITH_IMM(3, 0),
    /** Reads from the peer's memory. */
    READ(4, 2),
    /** Stores {@code swap} in the peer's word if that is {@code compare}; returns its former value. */
    COMPARE_SWAP(5, 3),
    /** Adds to the peer's word; returns its former value. */
    FETCH_ADD(6, 4);

    final int number;
    /** The completion's number for it, as in {@code ibv_wc_opcode}. */
    final int completed;

    Opcode(int number, int completed) {
        this.number = number;
        this.completed = completed;
    }

    /** {@return as {@code ibv_wr_opcode} counts} */
    public int number() {
        return number;
    }

    boolean isRemote() {
        return this != SEND && this != SEND_WITH_IMM;
    }

    boolean isAtomic() {
        return this == COMPARE_SWAP || this == FETCH_ADD;
    }

    boolean writesLocally() {
        return this == READ || isAtomic();
    }
}
