package highwire.hdfs;

import highwire.rpc.RpcMode;
import highwire.rpc.RpcOptions;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import org.apache.hadoop.conf.Configuration;

/**
 * The content of a slot of jvRPC, little-endian.
 *
 * <pre>
 *  INTRODUCE  lines of text                                              → caller u64
 *  CALL       caller u64 │ call i32 │ retry i32 │ bytes as over TCP      → status u32 │ length u32 │ bytes
 *  FETCH      kept u64 │ offset u64                                      → bytes, as many as fit
 * </pre>
 */
public final class Wire {
    /**
     * Introduces a caller: version, user, the real user or nothing, the client's number in hexadecimal
     * digits, its address.
     */
    public static final int INTRODUCE = 1;
    /** A call of a caller. */
    public static final int CALL = 2;
    /** More of an answer that did not fit. */
    public static final int FETCH = 3;

    /** The answer follows, as over TCP. */
    public static final int OK = 0;
    /** The name of an exception's class follows, a new line, and its text. */
    public static final int FAILED = 1;
    /** The server keeps the answer: its number follows, u64. The stated length is the answer's. */
    public static final int KEPT = 2;
    /** The server does not know the caller, and has done nothing. */
    public static final int UNKNOWN = 3;

    /** Of these messages. */
    public static final String VERSION = "highwire-hadoop 1";

    /** Where a call's bytes begin. */
    public static final int CALL_BYTES = 16;
    /** Where an answer's bytes begin. */
    public static final int ANSWER_BYTES = 8;

    /** Whether to use jvRPC at all: true unless set to false. */
    public static final String ENABLED = "highwire.hadoop.enabled";
    /** Added to a server's port: where jvRPC listens. */
    public static final String PORT_OFFSET = "highwire.hadoop.port.offset";
    /** How threads wait: {@code polling} or {@code blocking}. */
    public static final String MODE = "highwire.hadoop.mode";
    /** Bytes of a slot. */
    public static final String SLOT = "highwire.hadoop.slot.bytes";

    private Wire() {}

    /**
     * Whether to use jvRPC.
     *
     * @param conf Hadoop's configuration
     * @return whether to use jvRPC
     */
    public static boolean isEnabled(Configuration conf) {
        return conf.getBoolean(ENABLED, true);
    }

    /**
     * Finds the port of jvRPC beside a server's port.
     *
     * @param conf Hadoop's configuration
     * @return added to a server's port
     */
    public static int portOffset(Configuration conf) {
        return conf.getInt(PORT_OFFSET, 1);
    }

    /**
     * Finds what a server offers.
     *
     * @param conf Hadoop's configuration
     * @return what a server offers: one call at a time in each session
     */
    public static RpcOptions options(Configuration conf) {
        RpcMode mode = RpcMode.valueOf(conf.get(MODE, "polling").toUpperCase(Locale.ROOT));
        return new RpcOptions(mode, 1, conf.getInt(SLOT, 1 << 16));
    }

    /**
     * Reads a number of eight bytes.
     *
     * @param from memory
     * @param at where
     * @return a number
     */
    public static long getLong(MemorySegment from, long at) {
        return from.get(ValueLayout.JAVA_LONG_UNALIGNED, at);
    }

    /**
     * Reads a number of four bytes.
     *
     * @param from memory
     * @param at where
     * @return a number
     */
    public static int getInt(MemorySegment from, long at) {
        return from.get(ValueLayout.JAVA_INT_UNALIGNED, at);
    }

    /**
     * Writes into memory.
     *
     * @param to memory
     * @param at where
     * @param value is put there
     */
    public static void put(MemorySegment to, long at, long value) {
        to.set(ValueLayout.JAVA_LONG_UNALIGNED, at, value);
    }

    /**
     * Writes into memory.
     *
     * @param to memory
     * @param at where
     * @param value is put there
     */
    public static void put(MemorySegment to, long at, int value) {
        to.set(ValueLayout.JAVA_INT_UNALIGNED, at, value);
    }

    /**
     * Writes into memory.
     *
     * @param to memory
     * @param at where
     * @param bytes are put there
     * @param first of them
     * @param count of them
     */
    public static void put(MemorySegment to, long at, byte[] bytes, int first, int count) {
        MemorySegment.copy(bytes, first, to, ValueLayout.JAVA_BYTE, at, count);
    }

    /**
     * Reads bytes.
     *
     * @param from memory
     * @param at where
     * @param count bytes
     * @return them
     */
    public static byte[] bytes(MemorySegment from, long at, int count) {
        byte[] bytes = new byte[count];
        MemorySegment.copy(from, ValueLayout.JAVA_BYTE, at, bytes, 0, count);
        return bytes;
    }

    /**
     * Reads a text.
     *
     * @param from memory
     * @param at where
     * @param count bytes
     * @return the text
     */
    public static String text(MemorySegment from, long at, int count) {
        return new String(bytes(from, at, count), StandardCharsets.UTF_8);
    }
}
