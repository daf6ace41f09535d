package com.ibm.disni.util;

import highwire.disni.Device;
import highwire.verbs.RdmaArena;
import highwire.verbs.VerbsException;

/**
 * The source of memory that can be registered. DiSNI registers any direct buffer, as its native code pins
 * pages; here memory must be shared with the engine from the start, so {@code ByteBuffer.allocateDirect(n)}
 * becomes {@code MemoryAllocation.getInstance().allocate(n).getBuffer()}, which DiSNI has as well.
 */
public class MemoryAllocation {
    private static final MemoryAllocation INSTANCE = new MemoryAllocation();

    private MemoryAllocation() {}

    /** {@return the only one} */
    public static synchronized MemoryAllocation getInstance() {
        return INSTANCE;
    }

    /**
     * Makes memory, filled with zeros. Each call makes a file of whole pages: allocate once and cut slices.
     *
     * @param size how many bytes
     * @return the memory
     * @throws IllegalStateException there is no engine, or it has no more
     */
    public MemBuf allocate(int size) {
        try {
            RdmaArena arena = Device.context().arena(size);
            return new MemBuf(arena, arena.allocate(size, 8));
        } catch (VerbsException e) {
            throw new IllegalStateException("no memory of " + size + " bytes: " + e.getMessage(), e);
        }
    }
}
