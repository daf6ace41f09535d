package highwire.verbs;

/** What a key permits: bits, as {@code ibv_access_flags} has them. */
public final class Access {
    /** Nothing but being read by its own program. */
    public static final int NONE = 0;
    /** Receives, READs and results of atomics may land here. */
    public static final int LOCAL_WRITE = 1;
    /** A peer may WRITE here. */
    public static final int REMOTE_WRITE = 1 << 1;
    /** A peer may READ here. */
    public static final int REMOTE_READ = 1 << 2;
    /** A peer may execute atomics here. */
    public static final int REMOTE_ATOMIC = 1 << 3;
    /** All of it. */
    public static final int ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;

    private Access() {}
}
