package highwire.verbs;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.foreign.MemorySegment;

/** Rings, boards and tables in the heap: the same accesses as to mapped memory, and cheap to make anew for each trial. */
final class Rings {
    static final int SLOT_BYTES = 64;
    /** A thread that is woken here has looked at the board. */
    private static final EngineWaker WAKER = new EngineWaker() {
        @Override
        void wake() {}

        @Override
        void close() {}
    };

    private Rings() {}

    static MemorySegment heap(long bytes) {
        return MemorySegment.ofArray(new long[(int) (bytes / 8)]);
    }

    static MemorySegment ring(int slots) {
        MemorySegment memory = heap(Layout.RING_HEADER_BYTES + (long) slots * SLOT_BYTES);
        Mapped.putInt(memory, Layout.RING_SLOT_BYTES_OFFSET, SLOT_BYTES);
        Mapped.putInt(memory, Layout.RING_SLOT_COUNT_OFFSET, slots);
        return memory;
    }

    static MemorySegment boardMemory() {
        MemorySegment memory = heap(Layout.BOARD_WORDS_OFFSET + 64);
        Mapped.putLong(memory, 0, Integer.toUnsignedLong(Layout.BOARD_MAGIC) | (long) Layout.RING_VERSION << 32);
        Mapped.putInt(memory, Layout.BOARD_BITS_OFFSET, 64);
        return memory;
    }

    static DoorbellBoard board(MemorySegment memory) {
        try {
            return new DoorbellBoard(memory, WAKER);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /**
     * The engine's part at the board: takes the summary, then the word; returns whether this bell had rung.
     */
    static boolean take(MemorySegment board, int bell) {
        if (Mapped.getLongOpaque(board, Layout.BOARD_SUMMARY_OFFSET) == 0) {
            return false;
        }
        long summary = (long) Mapped.LONG.getAndSet(board, Layout.BOARD_SUMMARY_OFFSET, 0L);
        return (summary & 1) != 0 && ((long) Mapped.LONG.getAndSet(board, Layout.BOARD_WORDS_OFFSET, 0L) & 1L << bell) != 0;
    }

    /** The engine's part before it sleeps: announces it, and looks once more; returns whether it sleeps. */
    static boolean sleeps(MemorySegment board) {
        Mapped.LONG.setVolatile(board, Layout.BOARD_SLEEPING_OFFSET, 1L);
        return (long) Mapped.LONG.getVolatile(board, Layout.BOARD_SUMMARY_OFFSET) == 0;
    }
}
