package highwire.netty;

/** The settings from system properties. */
final class Settings {
    /** Bytes of one block of a channel's receive memory. */
    static final String BLOCK = "highwire.netty.block";
    /** Blocks of a channel's receive memory. */
    static final String BLOCKS = "highwire.netty.blocks";
    /** How long an event loop looks for more before it sleeps, in microseconds. */
    static final String SPIN = "highwire.netty.spin";
    /** How long a peer may take to say that it has Highwire, in milliseconds. */
    static final String PROBE = "highwire.netty.probe";
    /** Seconds after which a peer without Highwire is asked again. */
    static final String RETRY = "highwire.netty.retry";
    /** Milliseconds for an exchange of introductions, and for what a peer has sent before its end. */
    static final String PATIENCE = "highwire.netty.patience";

    private Settings() {}

    static int block() {
        return number(BLOCK, 16 << 10, 64, 1 << 20) & -64;
    }

    static int blocks() {
        return number(BLOCKS, 32, 2, Memory.BLOCKS_MAX);
    }

    static long spinNanos() {
        return 1000L * number(SPIN, 50, 0, 1_000_000);
    }

    static int probeMillis() {
        return number(PROBE, 500, 1, 60_000);
    }

    static long retryNanos() {
        return 1_000_000_000L * number(RETRY, 30, 0, 1_000_000);
    }

    static int patienceMillis() {
        return number(PATIENCE, 10_000, 1, 1_000_000);
    }

    private static int number(String name, int otherwise, int least, int most) {
        Integer set = Integer.getInteger(name, otherwise);
        if (set < least || set > most) {
            throw new IllegalArgumentException(name + "=" + set + " is not from " + least + " to " + most);
        }
        return set;
    }
}
