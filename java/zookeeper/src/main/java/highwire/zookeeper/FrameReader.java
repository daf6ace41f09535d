package highwire.zookeeper;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.Queue;

/** Puts frames together: a length of four bytes, then so many bytes. SENDs carry a stream of them, cut anywhere. */
public final class FrameReader {
    /** Judges how long a frame may be. */
    @FunctionalInterface
    public interface Limit {
        /**
         * Checks a length before memory is allocated for it.
         *
         * @param length the peer's number
         * @throws IOException it is out of range
         */
        void check(int length) throws IOException;
    }

    private final Limit limit;
    private final ByteBuffer length = ByteBuffer.allocate(4);
    private ByteBuffer frame;

    /**
     * A reader of frames of limited length.
     *
     * @param limit how long a frame may be
     */
    public FrameReader(Limit limit) {
        this.limit = limit;
    }

    /**
     * Takes all of a piece of the stream.
     *
     * @param piece the next bytes
     * @param frames gets those that are complete, without their lengths
     * @throws IOException a length is out of range
     */
    void take(ByteBuffer piece, Queue<ByteBuffer> frames) throws IOException {
        while (piece.hasRemaining()) {
            if (frame == null) {
                move(piece, length);
                if (length.hasRemaining()) {
                    return;
                }
                int bytes = length.getInt(0);
                limit.check(bytes);
                length.clear();
                frame = ByteBuffer.allocate(bytes);
            }
            move(piece, frame);
            if (!frame.hasRemaining()) {
                frames.add(frame.flip());
                frame = null;
            }
        }
    }

    static void move(ByteBuffer from, ByteBuffer to) {
        int count = Math.min(from.remaining(), to.remaining());
        to.put(to.position(), from, from.position(), count);
        from.position(from.position() + count);
        to.position(to.position() + count);
    }
}
