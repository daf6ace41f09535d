package highwire.verbs;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.SegmentAllocator;

/**
 * Memory that the engine and peers on this machine see, too: the only kind that a program can register.
 *
 * <p>Allocation moves a mark forwards; the arena gives everything back together when it is closed, which is
 * refused while a region of it is registered. Segments of a closed arena throw when they are touched.
 */
public final class RdmaArena extends VerbsObject implements SegmentAllocator {
    final long handle;
    private final Arena arena;
    private final MemorySegment memory;
    private long used;

    private RdmaArena(Context context, long handle, Arena arena, MemorySegment memory) {
        super(context, "arena");
        this.handle = handle;
        this.arena = arena;
        this.memory = memory;
        begin();
        context.arenas.add(this);
    }

    static RdmaArena create(Context context, long bytes) throws VerbsException {
        if (bytes <= 0) {
            throw new IllegalArgumentException("an arena of " + bytes + " bytes holds nothing");
        }
        long[] made = context.frames.ask(Frames.ALLOCATE, bytes);
        Arena arena = context.resources.open();
        boolean isMade = false;
        try {
            RdmaArena memory = new RdmaArena(context, made[0], arena, context.mapSegment(made[1], made[2], arena));
            isMade = true;
            return memory;
        } catch (IOException e) {
            throw Context.cannotMap("the arena", e);
        } finally {
            if (!isMade) {
                context.resources.close(arena);
                context.frames.askUninterrupted(Frames.FREE, made[0]);
            }
        }
    }

    @Override
    public synchronized MemorySegment allocate(long byteSize, long byteAlignment) {
        checkOpen();
        if (byteSize < 0 || byteAlignment <= 0 || Long.bitCount(byteAlignment) != 1) {
            throw new IllegalArgumentException(byteSize + " bytes aligned to " + byteAlignment + " cannot be");
        }
        // The mapping begins on a page; beyond that the address counts.
        long base = memory.address();
        long start = ((base + used + byteAlignment - 1) & -byteAlignment) - base;
        if (start < 0 || byteSize > memory.byteSize() - start) {
            throw new IndexOutOfBoundsException(
                    "the arena has " + (memory.byteSize() - used) + " bytes left, not " + byteSize);
        }
        used = start + byteSize;
        return memory.asSlice(start, byteSize, byteAlignment);
    }

    /** {@return all of it} */
    public MemorySegment segment() {
        checkOpen();
        return memory;
    }

    boolean contains(MemorySegment other) {
        return !isClosed()
                && other.isNative()
                && other.scope().equals(memory.scope())
                && other.address() >= memory.address()
                && other.address() + other.byteSize() <= memory.address() + memory.byteSize();
    }

    @Override
    void destroy() throws VerbsException {
        context.frames.askUninterrupted(Frames.FREE, handle);
    }

    @Override
    void release() {
        context.arenas.remove(this);
        context.resources.close(arena);
    }
}
