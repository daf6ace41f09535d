package highwire.verbs;

import java.lang.foreign.MemorySegment;
import java.lang.invoke.VarHandle;

/** Copies whose order peers rely on. Offsets count from a mapping's begin, which is aligned to a page. */
final class Copies {
    private Copies() {}

    /** Copies so that the last bytes become visible last, and eight aligned bytes at once: peers poll on the end of a WRITE. */
    static void copyLastRelease(MemorySegment from, long fromAt, MemorySegment to, long toAt, long length) {
        if (length == 8 && (toAt & 7) == 0) {
            Mapped.LONG.setRelease(to, toAt, from.get(Mapped.ANY_LONG, fromAt));
            return;
        }
        long end = toAt + length;
        long last = Math.min(length, (end & 7) == 0 ? 8 : end & 7);
        MemorySegment.copy(from, fromAt, to, toAt, length - last);
        storeLast(from, fromAt + length - last, to, end - last, last);
    }

    /** Up to eight bytes that lie in one aligned word, each store with Release and the last byte last. */
    private static void storeLast(MemorySegment from, long fromAt, MemorySegment to, long toAt, long length) {
        if (length == 8) {
            Mapped.LONG.setRelease(to, toAt, from.get(Mapped.ANY_LONG, fromAt));
            return;
        }
        for (long at = 0; at < length; at++) {
            Mapped.BYTE.setRelease(to, toAt + at, (byte) Mapped.BYTE.get(from, fromAt + at));
        }
    }

    /** Copies bytes that a peer may be writing; bytes that it had published before are visible afterwards. */
    static void copyAcquire(MemorySegment from, long fromAt, MemorySegment to, long toAt, long length) {
        if (length == 8 && ((fromAt | toAt) & 7) == 0) {
            Mapped.LONG.set(to, toAt, Mapped.getLongAcquire(from, fromAt));
            return;
        }
        MemorySegment.copy(from, fromAt, to, toAt, length);
        VarHandle.acquireFence();
    }
}
