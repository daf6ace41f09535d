package highwire.benchmarks.echo;

import org.HdrHistogram.Histogram;

/** A way by which a message goes to another JVM and comes back. */
public interface Echo {
    /**
     * Begins to answer one client.
     *
     * @param bytes of every message
     * @return the end that answers
     * @throws Exception it does not work here
     */
    Server serve(int bytes) throws Exception;

    /**
     * Connects to a server.
     *
     * @param server how it introduced itself
     * @param bytes of every message
     * @return the end that asks
     * @throws Exception it does not work here
     */
    Client connect(String server, int bytes) throws Exception;

    /** @return why it does not work on this machine, or null if it does. */
    default String obstacle() {
        return null;
    }

    /** The end that answers, in threads of its own. */
    interface Server extends AutoCloseable {
        /** @return what the client needs to know, in a line. */
        String introduction();

        /**
         * Learns the client's introduction, before it sends anything.
         *
         * @param client how it introduced itself
         * @throws Exception it does not work here
         */
        default void meet(String client) throws Exception {}
    }

    /** The end that asks. */
    interface Client extends AutoCloseable {
        /** @return what the server needs to know, in a line. */
        default String introduction() {
            return "-";
        }

        /**
         * Sends messages, each when the one before has come back as it was sent.
         *
         * @param count how many
         * @param times gets the nanoseconds that each took
         * @throws Exception one has not come back
         */
        void run(int count, Histogram times) throws Exception;
    }
}
