package highwire.netty;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;

/**
 * What the two ends say to each other over the TCP connection, after the client was told by datagram that the server has Highwire: the server's introduction, the client's, and
 * that the server is ready. A refusal in place of any of them makes the rest of the connection plain TCP.
 *
 * <pre>
 *  0 +-----------------+----------+------------+--------------------+
 *    | nonce, 16 bytes | kind u16 | length u16 | length bytes UTF-8 |   big-endian
 *    +-----------------+----------+------------+--------------------+
 * </pre>
 *
 * <p>The nonce is the client's. Nothing is read beyond a message, since the bytes of the application may follow.
 */
final class Greeting {
    static final int NONCE_BYTES = 16;
    static final int INTRODUCTION = 1;
    static final int READY = 2;
    static final int REFUSAL = 3;
    private static final int TEXT_BYTES_MAX = 512;

    private final byte[] nonce;
    private ByteBuffer header = ByteBuffer.allocate(NONCE_BYTES + 4);
    private ByteBuffer text;

    Greeting(byte[] nonce) {
        this.nonce = nonce;
    }

    /** Continues to read a message; returns whether it is complete. */
    boolean read(SocketChannel from) throws IOException {
        if (text == null) {
            fill(from, header);
            if (header.hasRemaining()) {
                return false;
            }
            if (!Arrays.equals(nonce, 0, NONCE_BYTES, header.array(), 0, NONCE_BYTES) || kind() < INTRODUCTION || kind() > REFUSAL || length() > TEXT_BYTES_MAX) {
                throw new IOException("the peer's greeting is none");
            }
            text = ByteBuffer.allocate(length());
        }
        fill(from, text);
        return !text.hasRemaining();
    }

    int kind() {
        return Short.toUnsignedInt(header.getShort(NONCE_BYTES));
    }

    private int length() {
        return Short.toUnsignedInt(header.getShort(NONCE_BYTES + 2));
    }

    String text() {
        return new String(text.array(), StandardCharsets.UTF_8);
    }

    /** The next message is another one. */
    void restart() {
        header = ByteBuffer.allocate(NONCE_BYTES + 4);
        text = null;
    }

    private static void fill(SocketChannel from, ByteBuffer buffer) throws IOException {
        if (buffer.hasRemaining() && from.read(buffer) < 0) {
            throw new IOException("the peer hung up in place of a greeting");
        }
    }

    void say(SocketChannel to, int kind, String said) throws IOException {
        byte[] bytes = said.getBytes(StandardCharsets.UTF_8);
        int length = Math.min(bytes.length, TEXT_BYTES_MAX);
        ByteBuffer message = ByteBuffer.allocate(NONCE_BYTES + 4 + length);
        message.put(nonce).putShort((short) kind).putShort((short) length).put(bytes, 0, length).flip();
        // Any empty socket buffer takes this little at once.
        to.write(message);
        if (message.hasRemaining()) {
            throw new IOException("the peer takes no greeting");
        }
    }
}
