package highwire.verbs;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

/** Accesses to mapped memory, with the memory order in the name. All words are aligned and little-endian. */
final class Mapped {
    static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();
    static final VarHandle INT = ValueLayout.JAVA_INT.varHandle();
    static final VarHandle SHORT = ValueLayout.JAVA_SHORT.varHandle();
    static final VarHandle BYTE = ValueLayout.JAVA_BYTE.varHandle();
    static final ValueLayout.OfLong ANY_LONG = ValueLayout.JAVA_LONG_UNALIGNED;

    private Mapped() {}

    /** Maps a whole file. {@code FileChannel.map} is no restricted method. */
    static MemorySegment map(Path file, Arena arena) throws IOException {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ, StandardOpenOption.WRITE)) {
            return channel.map(FileChannel.MapMode.READ_WRITE, 0, channel.size(), arena);
        }
    }

    /** Maps a whole file that only the engine may write. */
    static MemorySegment mapReadOnly(Path file, Arena arena) throws IOException {
        try (FileChannel channel = FileChannel.open(file, StandardOpenOption.READ)) {
            return channel.map(FileChannel.MapMode.READ_ONLY, 0, channel.size(), arena);
        }
    }

    static long getLong(MemorySegment memory, long offset) {
        return (long) LONG.get(memory, offset);
    }

    /** A plain load without a look at the alignment: it may be torn or old, so it only says where to look again. */
    static long hint(MemorySegment memory, long offset) {
        return memory.get(ANY_LONG, offset);
    }

    static void putLong(MemorySegment memory, long offset, long value) {
        LONG.set(memory, offset, value);
    }

    static int getInt(MemorySegment memory, long offset) {
        return (int) INT.get(memory, offset);
    }

    static void putInt(MemorySegment memory, long offset, int value) {
        INT.set(memory, offset, value);
    }

    static long getLongOpaque(MemorySegment memory, long offset) {
        return (long) LONG.getOpaque(memory, offset);
    }

    static void putLongOpaque(MemorySegment memory, long offset, long value) {
        LONG.setOpaque(memory, offset, value);
    }

    static long getLongAcquire(MemorySegment memory, long offset) {
        return (long) LONG.getAcquire(memory, offset);
    }

    static void putLongRelease(MemorySegment memory, long offset, long value) {
        LONG.setRelease(memory, offset, value);
    }

    static int getIntAcquire(MemorySegment memory, long offset) {
        return (int) INT.getAcquire(memory, offset);
    }
}
