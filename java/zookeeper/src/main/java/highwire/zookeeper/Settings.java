package highwire.zookeeper;

import java.time.Duration;

/** The settings from system properties. */
public final class Settings {
    /** Bytes of one SEND, and of each receive. */
    public static final String SEGMENT = "highwire.zookeeper.segment";
    /** Receives, and SENDs in flight, of each connection. */
    public static final String DEPTH = "highwire.zookeeper.depth";
    /** Connections over queue pairs that a server takes. */
    public static final String CONNECTIONS = "highwire.zookeeper.connections";
    /**
     * Connections that exchange messages in mailboxes if both ends have the same engine; 0 for none, at
     * either end.
     */
    public static final String MAILBOXES = "highwire.zookeeper.mailboxes";
    /** How long a thread looks for messages before it sleeps, in microseconds. */
    public static final String SPIN = "highwire.zookeeper.spin";

    /**
     * Whether a server answers a read at once if no earlier request of its client is unanswered; 0 sends all
     * requests through ZooKeeper's own threads.
     */
    public static final String READS = "highwire.zookeeper.reads";

    /** Whether a client takes TCP where there are no queue pairs; 0 has it lose the connection instead. */
    public static final String FALLBACK = "highwire.zookeeper.fallback";
    /** Seconds after which a client that took TCP looks whether there are queue pairs now. */
    public static final String RETRY = "highwire.zookeeper.retry";

    private Settings() {}

    /** {@return whether a client may take TCP} */
    public static boolean fallback() {
        return number(FALLBACK, 1, 0, 1) == 1;
    }

    /** {@return how long a client keeps to TCP before it looks again} */
    public static Duration retry() {
        return Duration.ofSeconds(number(RETRY, 30, 1, 1_000_000));
    }

    /** {@return bytes of one SEND and of each receive} */
    public static int segment() {
        return number(SEGMENT, 4096, 256, 1 << 20);
    }

    /** {@return receives, and SENDs in flight, of each connection} */
    public static int depth() {
        return number(DEPTH, 16, 2, Link.DEPTH_MAX);
    }

    /** {@return connections over queue pairs that a server takes} */
    public static int connections() {
        return number(CONNECTIONS, 1000, 1, 60_000);
    }

    /** {@return connections that may have mailboxes; the server's thread looks at each of them in every turn} */
    public static int mailboxes() {
        return number(MAILBOXES, 256, 0, 60_000);
    }

    /** {@return how long a thread looks for messages before it sleeps} */
    public static Duration spin() {
        return Duration.ofNanos(1000L * number(SPIN, 200, 0, 1_000_000));
    }

    /** {@return whether the server's thread answers reads itself if it can} */
    public static boolean reads() {
        return number(READS, 1, 0, 1) == 1;
    }

    private static int number(String name, int otherwise, int least, int most) {
        Integer set = Integer.getInteger(name, otherwise);
        if (set < least || set > most) {
            throw new IllegalArgumentException(name + "=" + set + " is not from " + least + " to " + most);
        }
        return set;
    }
}
