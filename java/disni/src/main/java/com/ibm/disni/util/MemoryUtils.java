package com.ibm.disni.util;

import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;

/** Addresses of buffers. */
public class MemoryUtils {
    /** For DiSNI's sake, whose class has an instance, too. */
    public MemoryUtils() {}

    /**
     * Where a direct buffer begins, wherever its position is.
     *
     * @param buffer the buffer
     * @return the address of its first byte
     */
    public static long getAddress(ByteBuffer buffer) {
        return MemorySegment.ofBuffer(buffer.duplicate().clear()).address();
    }
}
