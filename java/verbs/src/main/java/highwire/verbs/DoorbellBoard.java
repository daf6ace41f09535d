package highwire.verbs;

import java.io.IOException;
import java.lang.foreign.MemorySegment;

/**
 * The bits by which the engine finds queues with new work, and the way to wake it.
 *
 * <pre>
 *    0  magic u32 │ version u16 │ … │ 8 bits u32
 *  128  summary u64     bit w is set if word w may have work     set here, taken by the engine
 *  256  sleeping u64    the engine wants to be woken             set by the engine, taken here
 *  384  words u64 …     bit b of word w is queue 64·w + b        set here, taken by the engine
 * </pre>
 *
 * <p>A ringing thread sets its bit before it looks at the summary, and the engine takes the summary before it
 * takes the words, so no bell is lost.
 */
final class DoorbellBoard {
    private final MemorySegment board;
    private final long bits;
    private final EngineWaker waker;

    DoorbellBoard(MemorySegment board, EngineWaker waker) throws IOException {
        long first = Mapped.getLongAcquire(board, 0);
        if ((int) first != Layout.BOARD_MAGIC || (short) (first >>> 32) != Layout.RING_VERSION) {
            throw new VersionException("the doorbell board is not of a version that this library knows");
        }
        this.bits = Mapped.getInt(board, Layout.BOARD_BITS_OFFSET);
        if (Layout.BOARD_WORDS_OFFSET + (bits + 63) / 64 * 8 > board.byteSize()) {
            throw new IOException("the doorbell board is shorter than it says");
        }
        this.board = board;
        this.waker = waker;
    }

    /**
     * Announces work of a queue that has just been published, with a full fence behind it.
     *
     * <p>The first looks are plain: none is taken before that fence, and the mapping is checked once for all of them.
     */
    void ring(int bell) {
        long word = bell >>> 6;
        long at = Layout.BOARD_WORDS_OFFSET + 8 * word;
        long summary = 1L << word;
        // The engine will take a bit that is set here after the fence, and then sees what was published
        // before.
        boolean isSet = (Mapped.getLong(board, at) & 1L << bell) != 0
                && (Mapped.getLong(board, Layout.BOARD_SUMMARY_OFFSET) & summary) != 0;
        if (isSet && Mapped.getLong(board, Layout.BOARD_SLEEPING_OFFSET) == 0) {
            return;
        }
        if (!isSet) {
            set(at, 1L << bell, summary);
        }
        if ((long) Mapped.LONG.getVolatile(board, Layout.BOARD_SLEEPING_OFFSET) != 0) {
            wakeIfTaken();
        }
    }

    private void set(long at, long bit, long summary) {
        Mapped.LONG.getAndBitwiseOr(board, at, bit);
        if (((long) Mapped.LONG.getVolatile(board, Layout.BOARD_SUMMARY_OFFSET) & summary) == 0) {
            Mapped.LONG.getAndBitwiseOr(board, Layout.BOARD_SUMMARY_OFFSET, summary);
        }
    }

    MemorySegment memory() {
        return board;
    }

    boolean has(int bell) {
        return bell >= 0 && bell < bits;
    }

    private void wakeIfTaken() {
        if ((long) Mapped.LONG.getAndSet(board, Layout.BOARD_SLEEPING_OFFSET, 0L) != 0) {
            wake();
        }
    }

    /** Wakes the engine. */
    void wake() {
        waker.wake();
    }
}
