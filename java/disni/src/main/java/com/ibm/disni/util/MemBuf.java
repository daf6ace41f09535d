package com.ibm.disni.util;

import highwire.verbs.RdmaArena;
import highwire.verbs.VerbsException;
import java.lang.foreign.MemorySegment;
import java.nio.ByteBuffer;

/** A piece of memory that can be registered. */
public class MemBuf {
    private final RdmaArena arena;
    private final MemorySegment memory;
    private final ByteBuffer buffer;

    MemBuf(RdmaArena arena, MemorySegment memory) {
        this.arena = arena;
        this.memory = memory;
        this.buffer = memory.asByteBuffer();
    }

    /** {@return where it begins} */
    public final long address() {
        return memory.address();
    }

    /** {@return the memory, big-endian as every new buffer; always the same object} */
    public final ByteBuffer getBuffer() {
        return buffer;
    }

    /** {@return how many bytes} */
    public final int size() {
        return buffer.capacity();
    }

    /**
     * Gives it back. The buffer throws when it is touched afterwards.
     *
     * @throws IllegalStateException a region of it still is registered
     */
    public void free() {
        try {
            arena.close();
        } catch (VerbsException e) {
            throw new IllegalStateException("the memory cannot be given back: " + e.getMessage(), e);
        }
    }
}
