package highwire.verbs;

/**
 * How a queue pair is connected.
 *
 * @param access what the peer may do, bits of {@link Access}
 * @param mtu the path MTU in bytes; 0 for the device's. Both ends must choose the same
 * @param irn whether to recover losses as IRN does if the peer can; otherwise go-back-N
 * @param timeout local ACK timeout: 4.096 µs × 2^n; 0 waits for ever
 * @param retryCount timeouts in a row before giving up, at most 7
 * @param rnrRetry RNR NAKs in a row before giving up; 7 never gives up
 */
public record ConnectOptions(int access, int mtu, boolean irn, int timeout, int retryCount, int rnrRetry) {
    /** The defaults, which suit most programs. */
    public static final ConnectOptions DEFAULT = new ConnectOptions(Access.ALL, 0, true, 14, 7, 7);
}
