package highwire.memcached;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.util.Arrays;
import java.util.zip.CRC32C;

/**
 * A value as readers find it in the server's memory. It is written once, and a reader can tell whether it is
 * complete.
 *
 * <pre>
 *   0  version    u64   of this record alone; 0: nothing here any more, or not yet
 *   8  checksum   u32   CRC-32C of the version, of the record's place in the server's memory, and of everything from 12 on
 *  12  flags      u32
 *  16  expiry     u64   milliseconds since 1970; 0: never
 *  24  cas        u64   what clients of the protocols call its unique number
 *  32  value_len  u32
 *  36  key_len    u16
 *  38  zero       u16
 *  40  key, value, zeros up to a multiple of 8
 *   n  version    u64   the same again
 * </pre>
 *
 * <p>The version goes to 0 before the change that made the record obsolete is acknowledged: a client that reads a version that is not 0 reads a value that was
 * current at that moment. A chunk that is used again while it is read shows two versions, or fails the checksum.
 *
 * <p>A page's chunks may change their size. Before that all its versions go to 0 and then all its bytes; as the checksum covers the place, a value that
 * contains the bytes of a record is none where a reader looks for one.
 */
final class Record {
    static final int KEY = 40;
    static final int TAIL_BYTES = 8;
    /** Versions are compared and cleared as words; everything else may be read in any order. */
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();
    private static final ValueLayout.OfLong WORD = ValueLayout.JAVA_LONG;
    private static final ValueLayout.OfInt HALF = ValueLayout.JAVA_INT;
    private static final int SUMMED = 12;

    /** A reader's finding. */
    enum Verdict {
        /** A whole record of the key. */
        GOOD,
        /** A whole record of another key. */
        OTHER_KEY,
        /** No record any more, or not yet. */
        GONE,
        /** Parts of more than one record. */
        TORN
    }

    private Record() {}

    /** Bytes of a record. */
    static long bytes(int keyLength, long valueLength) {
        return KEY + (keyLength + valueLength + 7 & ~7L) + TAIL_BYTES;
    }

    /** Writes a record into a chunk whose version is 0. Its last store makes it valid. */
    static void write(MemorySegment memory, long at, long version, Item item, byte[] value) {
        int keyLength = item.key.length;
        long bytes = bytes(keyLength, value.length);
        // No byte of the new record is visible before the cleared version.
        VarHandle.storeStoreFence();
        memory.set(HALF, at + 12, item.flags);
        memory.set(WORD, at + 16, item.expiry);
        memory.set(WORD, at + 24, item.cas);
        memory.set(HALF, at + 32, value.length);
        memory.set(HALF, at + 36, keyLength);
        memory.set(WORD, at + bytes - 2 * TAIL_BYTES, 0);
        MemorySegment.copy(MemorySegment.ofArray(item.key), 0, memory, at + KEY, keyLength);
        MemorySegment.copy(MemorySegment.ofArray(value), 0, memory, at + KEY + keyLength, value.length);
        memory.set(WORD, at + bytes - TAIL_BYTES, version);
        memory.set(HALF, at + 8, checksum(memory, at, version, at, keyLength + value.length));
        // Release: the record is whole before it has a version.
        LONG.setRelease(memory, at, version);
    }

    /** Ends a record. */
    static void clear(MemorySegment memory, long at) {
        LONG.setRelease(memory, at, 0L);
    }

    static long version(MemorySegment memory, long at) {
        return (long) LONG.getAcquire(memory, at);
    }

    /** The value of a record that no thread writes meanwhile. */
    static byte[] value(MemorySegment memory, long at) {
        byte[] value = new byte[memory.get(HALF, at + 32)];
        MemorySegment.copy(memory, at + KEY + keyLength(memory, at), MemorySegment.ofArray(value), 0, value.length);
        return value;
    }

    static byte[] key(MemorySegment memory, long at) {
        return memory.asSlice(at + KEY, keyLength(memory, at)).toArray(ValueLayout.JAVA_BYTE);
    }

    static int flags(MemorySegment memory, long at) {
        return memory.get(HALF, at + 12);
    }

    static long expiry(MemorySegment memory, long at) {
        return memory.get(WORD, at + 16);
    }

    static long cas(MemorySegment memory, long at) {
        return memory.get(WORD, at + 24);
    }

    private static int keyLength(MemorySegment memory, long at) {
        return memory.get(ValueLayout.JAVA_SHORT, at + 36) & 0xFFFF;
    }

    /**
     * Judges a copy that was read while the server may have written.
     *
     * @param memory the copy
     * @param at where it begins
     * @param length bytes that were read
     * @param place where it was in the server's memory
     * @param key of which a record is sought
     * @return what it is
     */
    static Verdict judge(MemorySegment memory, long at, long length, long place, byte[] key) {
        long version = memory.get(WORD, at);
        if (version == 0) {
            return Verdict.GONE;
        }
        long valueLength = Integer.toUnsignedLong(memory.get(HALF, at + 32));
        int keyLength = keyLength(memory, at);
        long bytes = bytes(keyLength, valueLength);
        if (bytes > length
                || memory.get(WORD, at + bytes - TAIL_BYTES) != version
                || memory.get(HALF, at + 8) != checksum(memory, at, version, place, (int) (keyLength + valueLength))) {
            return Verdict.TORN;
        }
        return isOf(memory, at, key) ? Verdict.GOOD : Verdict.OTHER_KEY;
    }

    /** Whether the record's key is this one, however whole the record is. */
    static boolean isOf(MemorySegment memory, long at, byte[] key) {
        return keyLength(memory, at) == key.length
                && MemorySegment.mismatch(memory, at + KEY, at + KEY + key.length, MemorySegment.ofArray(key), 0, key.length) < 0;
    }

    private static int checksum(MemorySegment memory, long at, long version, long place, int payload) {
        CRC32C sum = new CRC32C();
        for (int shift = 0; shift < 64; shift += 8) {
            sum.update((int) (version >>> shift) & 0xFF);
        }
        for (int shift = 0; shift < 64; shift += 8) {
            sum.update((int) (place >>> shift) & 0xFF);
        }
        sum.update(memory.asSlice(at + SUMMED, KEY - SUMMED + payload).asByteBuffer());
        return (int) sum.getValue();
    }

    static long hash(byte[] key) {
        long hash = Arrays.hashCode(key) * 0x9E37_79B9_7F4A_7C15L;
        for (byte letter : key) {
            hash = (hash ^ letter) * 0x100_0000_01B3L;
        }
        hash = (hash ^ hash >>> 32) * 0xD6E8_FEB8_6659_FD93L;
        return hash ^ hash >>> 32;
    }
}
