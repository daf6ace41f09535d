package highwire.verbs;

/** The permissions of a key: bits, as in {@code ibv_access_flags}. */
public final class Access {
    /** Only its own program may read here. */
    public static final int NONE = 0;
    /** The device may place receives, READs and results of atomics here. */
    public static final int LOCAL_WRITE = 1;
    /** A peer may WRITE here. */
    public static final int REMOTE_WRITE = 1 << 1;
    /** A peer may READ here. */
    public static final int REMOTE_READ = 1 << 2;
    /** A peer may execute atomics here. */
    public static final int REMOTE_ATOMIC = 1 << 3;
    /** All permissions. */
    public static final int ALL = LOCAL_WRITE | REMOTE_WRITE | REMOTE_READ | REMOTE_ATOMIC;

    private Access() {}
}
