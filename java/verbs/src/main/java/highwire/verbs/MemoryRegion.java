package highwire.verbs;

import java.lang.foreign.MemorySegment;

/** Registered memory. Its keys stop working when it is closed. */
public final class MemoryRegion extends VerbsObject {
    final ProtectionDomain domain;
    /** The arena's memory, and where in it the region begins. */
    final MemorySegment base;
    final long start;
    final int access;
    private final long handle;
    private final int key;
    private final MemorySegment memory;

    MemoryRegion(ProtectionDomain domain, RdmaArena arena, MemorySegment memory, long start, int access, long[] made) {
        super(domain.context, "memory region", domain, arena);
        this.domain = domain;
        this.base = arena.segment();
        this.start = start;
        this.access = access;
        this.memory = memory;
        this.handle = made[0];
        this.key = (int) made[1];
        begin();
    }

    /** {@return the key for requests of this program} */
    public int lkey() {
        return key;
    }

    /** {@return the key for peers} */
    public int rkey() {
        return key;
    }

    /** {@return the address of the first byte, as peers name it} */
    public long address() {
        return memory.address();
    }

    /** {@return how many bytes} */
    public long length() {
        return memory.byteSize();
    }

    /** {@return the memory itself} */
    public MemorySegment segment() {
        return memory;
    }

    @Override
    void destroy() throws VerbsException {
        context.frames.askUninterrupted(Frames.DEREGISTER, handle);
    }
}
