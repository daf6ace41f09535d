package highwire.memcached;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** A client's conversation: what has come and not been understood yet, and what is to be answered. Knows no sockets. */
final class Session {
    /** Longest line of a command, keys of a multiple get included. */
    static final int LINE_MAX = 1 << 16;
    private static final int INPUT = 16 << 10;

    /** How a protocol understood what has come. */
    enum Progress {
        /** A whole command was taken. */
        DONE,
        /** More has to come. */
        MORE,
        /** The conversation is over once the answer is out. */
        CLOSE
    }

    final Store store;
    final Server server;
    final Output output = new Output();
    ByteBuffer input = ByteBuffer.allocate(INPUT).flip();
    private final TextProtocol text;
    private final BinaryProtocol binary;
    /** Bytes of a value that is too large, to be passed over. */
    private long skip;
    private boolean skipsLine;
    private boolean isClosing;

    /** What a session asks of the server that it is part of. */
    interface Server {
        /** Opens the store to a reader that introduces itself; the line to answer with. */
        String admit(Session session, String introduction);

        /** Figures of the process. */
        void stats(java.util.function.BiConsumer<String, Object> visitor);
    }

    Session(Store store, Server server) {
        this.store = store;
        this.server = server;
        this.text = new TextProtocol(this);
        this.binary = new BinaryProtocol(this);
    }

    /** Room for what comes next. */
    ByteBuffer room() {
        input.compact();
        if (!input.hasRemaining()) {
            input = ByteBuffer.allocate(2 * input.capacity()).put(input.flip());
        }
        return input;
    }

    /** Understands what has come, until the output is full; {@link #room}'s buffer has been filled. */
    void received() {
        input.flip();
        proceed();
    }

    /** Goes on with what has come already. */
    void proceed() {
        while (!isClosing && !isFull() && input.hasRemaining()) {
            if (skip > 0) {
                int some = (int) Math.min(skip, input.remaining());
                input.position(input.position() + some);
                skip -= some;
                continue;
            }
            if (skipsLine) {
                skipsLine = input.get() != '\n';
                continue;
            }
            boolean isBinary = input.get(input.position()) == BinaryProtocol.REQUEST;
            switch (isBinary ? binary.next() : text.next()) {
                case DONE -> { }
                case MORE -> {
                    return;
                }
                case CLOSE -> isClosing = true;
            }
        }
        if (!input.hasRemaining() && input.capacity() > 4 * INPUT) {
            input = ByteBuffer.allocate(INPUT).flip();
        }
    }

    /** Whether as much waits to be sent as may. */
    boolean isFull() {
        return output.pending() > 4 << 20;
    }

    boolean isClosing() {
        return isClosing;
    }

    /** Passes over so many bytes from here on, however many of them have come. */
    void skip(long bytes) {
        skip = bytes;
    }

    /** Passes over everything up to the end of the line. */
    void skipLine() {
        skipsLine = true;
    }

    /** Whether a key is one: not too long, and without blanks and controls where it stands in a line. */
    static boolean isKey(byte[] key) {
        if (key.length == 0 || key.length > Store.KEY_MAX) {
            return false;
        }
        for (byte letter : key) {
            if (letter >= 0 && letter <= ' ' || letter == 0x7F) {
                return false;
            }
        }
        return true;
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }
}
