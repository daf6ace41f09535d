package highwire.memcached;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;
import java.nio.charset.StandardCharsets;

/** Bytes for a client. Whoever writes answers stops while it {@link #isFull}, so that it holds one answer beyond that at most. */
final class Output {
    /** From here on no further answer is written. */
    static final int FULL = 64 << 10;
    private static final int SMALL = 4096;

    private ByteBuffer buffer = ByteBuffer.allocate(SMALL);

    Output put(byte[] bytes) {
        room(bytes.length).put(bytes);
        return this;
    }

    /** Puts a text of bytes: keys of any bytes come back as they were. */
    Output put(String text) {
        return put(text.getBytes(StandardCharsets.ISO_8859_1));
    }

    /** A line, with its end. */
    Output line(String text) {
        return put(text).put("\r\n");
    }

    /** The buffer, with this much room at its position. */
    ByteBuffer room(int bytes) {
        if (buffer.remaining() < bytes) {
            int wanted = Math.max(Math.addExact(buffer.position(), bytes), 2 * Math.min(buffer.capacity(), FULL));
            buffer = ByteBuffer.allocate(wanted).put(buffer.flip());
        }
        return buffer;
    }

    int pending() {
        return buffer.position();
    }

    /** Whether the client has to take what there is before it gets more. */
    boolean isFull() {
        return pending() >= FULL;
    }

    /** Takes back what was written since it had this length. */
    void cutTo(int length) {
        buffer.position(length);
    }

    /** Bytes that are held, used or not. */
    int held() {
        return buffer.capacity();
    }

    /** Sends as much as the socket takes; returns how much. */
    int flush(WritableByteChannel channel) throws IOException {
        buffer.flip();
        try {
            return buffer.hasRemaining() ? channel.write(buffer) : 0;
        } finally {
            buffer.compact();
            if (buffer.position() == 0 && buffer.capacity() > 4 * SMALL) {
                buffer = ByteBuffer.allocate(SMALL);
            }
        }
    }
}
