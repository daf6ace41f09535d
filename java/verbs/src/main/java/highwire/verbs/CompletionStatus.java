package highwire.verbs;

/** How work ended, in the order of {@code ibv_wc_status}. */
public enum CompletionStatus {
    /** It worked. */
    SUCCESS,
    /** A receive was too short for its message. */
    LOCAL_LENGTH,
    /** The request or its queue pair was invalid. */
    LOCAL_QP_OPERATION,
    /** Not used. */
    LOCAL_EEC_OPERATION,
    /** A local key does not cover the memory. */
    LOCAL_PROTECTION,
    /** The queue pair went into error before it was this request's turn. */
    FLUSHED,
    /** A window was not bound. */
    WINDOW_BIND,
    /** The peer's answer was not the one expected. */
    BAD_RESPONSE,
    /** Local memory could not be written. */
    LOCAL_ACCESS,
    /** The peer does not accept this request. */
    REMOTE_INVALID_REQUEST,
    /** A remote key does not permit it. */
    REMOTE_ACCESS,
    /** The peer failed. */
    REMOTE_OPERATION,
    /** The peer stayed silent through every retry. */
    RETRY_EXCEEDED,
    /** The peer had no receive posted through every retry. */
    RNR_RETRY_EXCEEDED,
    /** Not used. */
    LOCAL_RDD_VIOLATION,
    /** Not used. */
    REMOTE_INVALID_RD_REQUEST,
    /** Not used. */
    REMOTE_ABORTED,
    /** Not used. */
    INVALID_EECN,
    /** Not used. */
    INVALID_EEC_STATE,
    /** The device failed. */
    FATAL,
    /** There was no answer. */
    RESPONSE_TIMEOUT,
    /** Any other failure. */
    GENERAL,
    /** A tag did not match. */
    TAG;

    private static final CompletionStatus[] ALL = values();

    static CompletionStatus of(int number) {
        return number < ALL.length ? ALL[number] : GENERAL;
    }
}
