package highwire.zookeeper;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;

/**
 * How two ends find each other: one message each way over ZooKeeper's own TCP port. The connection stays open afterwards as a sign of life.
 *
 * <pre>
 *  0 +------------+-------------+----------+------------+--------------------+
 *    | magic u32  | version u16 | kind u16 | length u32 | length bytes UTF-8 |   big-endian
 *    +------------+-------------+----------+------------+--------------------+
 * </pre>
 *
 * <p>The magic number is larger than any length that ZooKeeper takes and no command of four letters, so a server without Highwire hangs up on it, and one with
 * Highwire tells both kinds of clients apart by it. The text of an introduction is an endpoint and how many bytes its receives hold; that of a refusal is the reason.
 */
public final class Greeting {
    /** {@code HwZk}. */
    public static final int MAGIC = 0x48775A6B;

    static final int VERSION = 1;
    static final int INTRODUCTION = 1;
    static final int REFUSAL = 2;

    private static final int HEADER_BYTES = 12;
    private static final int TEXT_BYTES_MAX = 1024;

    private final ByteBuffer header = ByteBuffer.allocate(HEADER_BYTES);
    private ByteBuffer text;

    /** The peer's message, to be read. */
    public Greeting() {}

    /** The accepting thread has read the magic number. */
    public void skipMagic() {
        header.putInt(MAGIC);
    }

    /**
     * Continues reading.
     *
     * @param from a channel that does not block
     * @return the introduction; null while some of it is missing
     * @throws GreetingException the peer refuses, or is no Highwire of this version
     * @throws IOException the connection broke
     */
    public String read(SocketChannel from) throws IOException {
        if (header.hasRemaining()) {
            fill(from, header);
            if (header.hasRemaining()) {
                return null;
            }
            text = ByteBuffer.allocate(check());
        }
        fill(from, text);
        if (text.hasRemaining()) {
            return null;
        }
        String said = new String(text.array(), StandardCharsets.UTF_8);
        if (header.getShort(6) == REFUSAL) {
            throw new GreetingException("the peer refuses: " + said);
        }
        return said;
    }

    private int check() throws GreetingException {
        int version = Short.toUnsignedInt(header.getShort(4));
        int kind = Short.toUnsignedInt(header.getShort(6));
        int length = header.getInt(8);
        if (header.getInt(0) != MAGIC) {
            throw new GreetingException("what listens there does not speak ZooKeeper over queue pairs");
        }
        // Refusals have the same form in every version, so that every version understands them.
        if (version != VERSION && kind != REFUSAL) {
            throw new GreetingException("the peer speaks version " + version + ", and this end " + VERSION);
        }
        if (kind != INTRODUCTION && kind != REFUSAL || length < 0 || length > TEXT_BYTES_MAX) {
            throw new GreetingException("the peer's greeting of kind " + kind + " with " + length + " bytes is none");
        }
        return length;
    }

    private static void fill(SocketChannel from, ByteBuffer buffer) throws IOException {
        if (buffer.hasRemaining() && from.read(buffer) < 0) {
            throw new GreetingException("the peer hung up in place of a greeting: is its factory Highwire's?");
        }
    }

    /**
     * Sends an introduction.
     *
     * @param to a channel to which nothing was written yet
     * @param introduction the text
     * @throws IOException the connection broke
     */
    public static void introduce(SocketChannel to, String introduction) throws IOException {
        say(to, INTRODUCTION, introduction);
    }

    /**
     * Sends a refusal.
     *
     * @param to a channel to which nothing was written yet
     * @param reason the text
     * @throws IOException the connection broke
     */
    public static void refuse(SocketChannel to, String reason) throws IOException {
        say(to, REFUSAL, reason);
    }

    private static void say(SocketChannel to, int kind, String said) throws IOException {
        byte[] bytes = said.getBytes(StandardCharsets.UTF_8);
        int length = Math.min(bytes.length, TEXT_BYTES_MAX);
        ByteBuffer message = ByteBuffer.allocate(HEADER_BYTES + length);
        message.putInt(MAGIC).putShort((short) VERSION).putShort((short) kind).putInt(length).put(bytes, 0, length).flip();
        // Any empty socket buffer takes this little at once.
        to.write(message);
        if (message.hasRemaining()) {
            throw new GreetingException("the peer takes no greeting");
        }
    }
}
