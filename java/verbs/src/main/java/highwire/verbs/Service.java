package highwire.verbs;

/** A transport service. */
public enum Service {
    /** Reliable connection: every operation, in order, exactly once. */
    RC(2),
    /** Unreliable connection: SEND and WRITE; a message with a gap is dropped. */
    UC(3),
    /** Unreliable datagram: SEND of one packet to any peer. */
    UD(4);

    final int number;

    Service(int number) {
        this.number = number;
    }

    /** {@return as {@code ibv_qp_type} counts} */
    public int number() {
        return number;
    }
}
