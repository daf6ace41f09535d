package highwire.memcached;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.WritableByteChannel;
import java.nio.charset.StandardCharsets;

/** Bytes for a client. */
final class Output {
    private static final int SMALL = 4096;

    private ByteBuffer buffer = ByteBuffer.allocate(SMALL);

    Output put(byte[] bytes) {
        room(bytes.length).put(bytes);
        return this;
    }

    Output put(String text) {
        return put(text.getBytes(StandardCharsets.UTF_8));
    }

    /** A line, with its end. */
    Output line(String text) {
        return put(text).put("\r\n");
    }

    /** The buffer, with this much room at its position. */
    ByteBuffer room(int bytes) {
        if (buffer.remaining() < bytes) {
            int wanted = Math.max(buffer.position() + bytes, 2 * buffer.capacity());
            buffer = ByteBuffer.allocate(wanted).put(buffer.flip());
        }
        return buffer;
    }

    int pending() {
        return buffer.position();
    }

    /** Sends as much as the socket takes; returns how much. */
    int flush(WritableByteChannel channel) throws IOException {
        buffer.flip();
        try {
            return buffer.hasRemaining() ? channel.write(buffer) : 0;
        } finally {
            buffer.compact();
            if (buffer.position() == 0 && buffer.capacity() > 64 * SMALL) {
                buffer = ByteBuffer.allocate(SMALL);
            }
        }
    }
}
