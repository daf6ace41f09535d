package highwire.verbs;

/** A state of a queue pair (IBTA §10.3.1), in the order of {@code ibv_qp_state}. */
public enum QpState {
    /** New: nothing is accepted. */
    RESET,
    /** Receives may be posted; nothing flows. */
    INIT,
    /** Ready to receive. */
    RTR,
    /** Ready to send. */
    RTS,
    /** Send queue drained: posted sends wait. */
    SQD,
    /** Send queue error: sends are flushed, receives work (UC and UD). */
    SQE,
    /** Everything is flushed. */
    ERROR
}
