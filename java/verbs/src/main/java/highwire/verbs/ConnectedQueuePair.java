package highwire.verbs;

/**
 * A queue pair that is connected to one other by data that programs exchange themselves: over this library's queues, over a native {@code libibverbs}, or behind
 * another interface. A program that connects and ends queue pairs need not know which.
 */
public interface ConnectedQueuePair extends AutoCloseable {
    /** {@return its number} */
    int qpn();

    /** {@return the data that a peer needs to connect to it} */
    Endpoint endpoint();

    /**
     * Takes it from RESET to INIT, where receives can be posted before the peer can send.
     *
     * @param access what the peer may do, bits of {@link Access}
     * @throws VerbsException why not
     */
    void prepare(int access) throws VerbsException;

    /**
     * Connects it: through INIT, unless it was prepared, and RTR to RTS.
     *
     * @param peer the other end
     * @param options how
     * @throws VerbsException why not; the queue pair stays in the state that it had reached
     */
    void connect(Endpoint peer, ConnectOptions options) throws VerbsException;

    /** {@return whether it was closed} */
    boolean isClosed();

    /**
     * Closes it. Closing it again has no effect.
     *
     * @throws VerbsException it stays open, or its engine has gone
     */
    @Override
    void close() throws VerbsException;

    /**
     * Connects two queue pairs of this process, of any kind. Both are prepared before either can send.
     *
     * @param one an end
     * @param other the other end
     * @param options how
     * @throws VerbsException why not
     */
    static void connect(ConnectedQueuePair one, ConnectedQueuePair other, ConnectOptions options) throws VerbsException {
        one.prepare(options.access());
        other.prepare(options.access());
        one.connect(other.endpoint(), options);
        other.connect(one.endpoint(), options);
    }
}
