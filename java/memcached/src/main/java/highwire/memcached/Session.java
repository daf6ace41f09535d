package highwire.memcached;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.function.BiConsumer;

/** A client's conversation: input that is not parsed yet, and output. Knows no sockets. */
final class Session {
    private static final int INPUT = 16 << 10;

    /** The result of parsing input. */
    enum Progress {
        /** A whole command was taken. */
        DONE,
        /** The command is incomplete. */
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
    private boolean hasBegun;
    private boolean isBinary;
    /** Bytes of a value that is too large, to be skipped. */
    private long skip;
    private boolean isClosing;
    private boolean isPaused;
    /** Whether the server owes the line that answers the last command. */
    private boolean isWaiting;

    /** A session's calls to its server. */
    interface Server {
        /** Opens the store to a reader that introduces itself; returns the line to answer with, or null if {@link Session#answer} will get it. */
        String admit(Session session, String introduction);

        /** Figures of the process. */
        void stats(BiConsumer<String, Object> visitor);
    }

    Session(Store store, Server server) {
        this.store = store;
        this.server = server;
        this.text = new TextProtocol(this);
        this.binary = new BinaryProtocol(this);
    }

    /** Room for further input. */
    ByteBuffer room() {
        input.compact();
        if (!input.hasRemaining()) {
            input = ByteBuffer.allocate(2 * input.capacity()).put(input.flip());
        }
        return input;
    }

    /** Parses the input, until the output is full; {@link #room}'s buffer has been filled. */
    void received() {
        input.flip();
        proceed();
    }

    /** Asks the server to open the store to this client. */
    void admit(String introduction) {
        String line = server.admit(this, introduction);
        isWaiting = line == null;
        if (!isWaiting) {
            output.line(line);
        }
    }

    /** The line that the server owed; {@link #proceed} goes on with what the client has asked meanwhile. */
    void answer(String line) {
        isWaiting = false;
        output.line(line);
    }

    /** Whether the server owes an answer, before which nothing else is answered. */
    boolean isWaiting() {
        return isWaiting;
    }

    /** Continues with answers that are under way, and with input that has come already. */
    void proceed() {
        while (!isClosing) {
            isPaused = output.isFull();
            if (isPaused || isWaiting) {
                return;
            }
            if (text.isAnswering()) {
                text.proceed();
                continue;
            }
            if (!input.hasRemaining()) {
                break;
            }
            if (skip > 0) {
                int some = (int) Math.min(skip, input.remaining());
                input.position(input.position() + some);
                skip -= some;
                continue;
            }
            if (!hasBegun) {
                hasBegun = true;
                isBinary = input.get(input.position()) == BinaryProtocol.REQUEST;
            }
            switch (isBinary ? binary.next() : text.next()) {
                case DONE -> { }
                case MORE -> {
                    return;
                }
                case CLOSE -> isClosing = true;
            }
        }
        isPaused = false;
        if (!input.hasRemaining() && input.capacity() > INPUT) {
            input = ByteBuffer.allocate(INPUT).flip();
        }
    }

    /** Whether there is more to do as soon as the client has taken some of the output, without further input. */
    boolean isPaused() {
        return isPaused;
    }

    boolean isClosing() {
        return isClosing;
    }

    /** Bytes that the session holds for its client. */
    long held() {
        return (long) input.capacity() + output.held();
    }

    /** Skips this many bytes from here on, even if they have not all come. */
    void skip(long bytes) {
        skip = bytes;
    }

    /** Whether a key is valid for the clients of this project: not too long, and without blanks and controls. */
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
