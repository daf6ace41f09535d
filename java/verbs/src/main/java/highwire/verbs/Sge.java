package highwire.verbs;

import java.lang.foreign.MemorySegment;

/** A piece of memory as a request names it. */
record Sge(long address, int length, int lkey) {
    void put(MemorySegment image, long at) {
        Mapped.putLong(image, at, address);
        Mapped.putInt(image, at + 8, length);
        Mapped.putInt(image, at + 12, lkey);
    }
}
