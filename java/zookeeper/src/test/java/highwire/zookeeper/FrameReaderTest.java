package highwire.zookeeper;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.Random;
import org.junit.jupiter.api.Test;

/** Frames out of a stream that is cut anywhere. */
class FrameReaderTest {
    private static final FrameReader.Limit LIMIT = length -> {
        if (length < 0 || length > 1000) {
            throw new IOException("too long");
        }
    };

    @Test
    void framesComeOutAsTheyWentInWhereverTheStreamIsCut() throws IOException {
        Random random = new Random(3);
        for (int round = 0; round < 200; round++) {
            ByteBuffer stream = ByteBuffer.allocate(10_000);
            Queue<ByteBuffer> sent = new ArrayDeque<>();
            for (int i = 0; i < 8; i++) {
                byte[] bytes = new byte[random.nextInt(4) == 0 ? 0 : random.nextInt(1000)];
                random.nextBytes(bytes);
                sent.add(ByteBuffer.wrap(bytes));
                stream.putInt(bytes.length).put(bytes);
            }
            stream.flip();
            FrameReader reader = new FrameReader(LIMIT);
            Queue<ByteBuffer> got = new ArrayDeque<>();
            while (stream.hasRemaining()) {
                int count = Math.min(stream.remaining(), 1 + random.nextInt(1 << random.nextInt(11)));
                reader.take(stream.slice(stream.position(), count), got);
                stream.position(stream.position() + count);
            }
            assertEquals(sent.size(), got.size());
            while (!sent.isEmpty()) {
                assertEquals(sent.remove(), got.remove());
            }
        }
    }

    @Test
    void aLengthOutOfRangeIsRefusedBeforeAnythingIsKeptForIt() {
        for (int length : new int[] {-1, 1001, Integer.MAX_VALUE, Integer.MIN_VALUE}) {
            ByteBuffer stream = ByteBuffer.allocate(4).putInt(length).flip();
            Queue<ByteBuffer> frames = new ArrayDeque<>();
            assertThrows(IOException.class, () -> new FrameReader(LIMIT).take(stream, frames));
            assertTrue(frames.isEmpty());
        }
    }
}
