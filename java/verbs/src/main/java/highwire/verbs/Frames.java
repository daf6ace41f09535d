package highwire.verbs;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.DatagramChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;

/**
 * A connection to a door: one request at a time, each with its answer or the end of the connection.
 *
 * <pre>
 *  0 +------------+----------+------------+------------------------------------+
 *    | length u32 | kind u16 | status u16 | length bytes: words u64, or a text |
 *    +------------+----------+------------+------------------------------------+
 * </pre>
 */
final class Frames implements AutoCloseable {
    static final int HELLO = 1;
    static final int EVENTS = 2;
    static final int CREATE_PD = 3;
    static final int DESTROY_PD = 4;
    static final int ALLOCATE = 5;
    static final int FREE = 6;
    static final int REGISTER = 7;
    static final int DEREGISTER = 8;
    static final int CREATE_CQ = 9;
    static final int DESTROY_CQ = 10;
    static final int CREATE_SRQ = 11;
    static final int DESTROY_SRQ = 12;
    static final int CREATE_QP = 13;
    static final int DESTROY_QP = 14;
    static final int MODIFY_QP = 15;
    static final int QUERY_QP = 16;

    /** Words of a good answer, by kind. */
    private static final int[] ANSWER_WORDS = {0, 13, 1, 2, 0, 3, 0, 2, 0, 3, 0, 4, 0, 9, 0, 0, 18};

    private static final int HEADER_BYTES = 8;
    private static final int BODY_BYTES_MAX = 1024;

    private final SocketChannel socket;
    private final Selector selector;
    private final ByteBuffer buffer =
            ByteBuffer.allocateDirect(HEADER_BYTES + BODY_BYTES_MAX).order(ByteOrder.LITTLE_ENDIAN);
    private long timeoutNanos;
    /**
     * The socket by which other programs wake the thread that waits for words; null until a program is told of it.
     */
    private volatile DatagramChannel bell;
    private boolean hasRung;

    private Frames(SocketChannel socket, Selector selector, Duration timeout) {
        this.socket = socket;
        this.selector = selector;
        this.timeoutNanos = timeout.toNanos();
    }

    static Frames connect(Path door, Duration timeout) throws IOException {
        SocketChannel socket = SocketChannel.open(UnixDomainSocketAddress.of(door));
        try {
            Selector selector = Selector.open();
            socket.configureBlocking(false);
            socket.register(selector, SelectionKey.OP_READ);
            return new Frames(socket, selector, timeout);
        } catch (IOException e) {
            socket.close();
            throw e;
        }
    }

    /**
     * Sends a request, and waits for the answer. After any failure but a refusal the connection is closed.
     */
    synchronized long[] ask(int kind, long... words) throws VerbsException {
        try {
            send(kind, words);
            long deadline = System.nanoTime() + timeoutNanos;
            buffer.clear().limit(HEADER_BYTES);
            fill(deadline);
            int length = buffer.getInt(0);
            int status = Short.toUnsignedInt(buffer.getShort(6));
            if (length < 0 || length > BODY_BYTES_MAX || buffer.getShort(4) != kind) {
                throw new EngineGoneException("what answers at the door is no engine of Highwire");
            }
            buffer.clear().limit(length);
            fill(deadline);
            buffer.flip();
            if (status != 0) {
                throw VerbsException.of(status, StandardCharsets.UTF_8.decode(buffer).toString());
            }
            if (length != 8 * ANSWER_WORDS[kind]) {
                throw new EngineGoneException("the engine's answer has " + length + " bytes, which is no answer");
            }
            long[] answer = new long[length / 8];
            buffer.asLongBuffer().get(answer);
            return answer;
        } catch (EngineGoneException | EngineTimeoutException e) {
            close();
            throw e;
        } catch (VerbsException e) {
            throw e;
        } catch (IOException e) {
            close();
            throw new EngineGoneException("the engine has ended: " + e.getMessage());
        }
    }

    private void send(int kind, long[] words) throws IOException {
        buffer.clear();
        buffer.putInt(8 * words.length).putShort((short) kind).putShort((short) 0);
        for (long word : words) {
            buffer.putLong(word);
        }
        buffer.flip();
        while (buffer.hasRemaining()) {
            // A request is shorter than any socket's buffer, and the last one was answered.
            if (socket.write(buffer) == 0) {
                throw new EngineGoneException("the engine does not read");
            }
        }
    }

    private void fill(long deadline) throws IOException {
        while (buffer.hasRemaining()) {
            int got = socket.read(buffer);
            if (got < 0) {
                throw new EngineGoneException("the engine has ended or has closed the connection");
            }
            if (got == 0) {
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    throw new EngineTimeoutException(
                            "the engine has not answered for " + timeoutNanos / 1_000_000 + " ms");
                }
                selector.select(Math.max(1, left / 1_000_000));
                selector.selectedKeys().clear();
                if (Thread.currentThread().isInterrupted()) {
                    throw new EngineTimeoutException("the thread was interrupted before the engine answered");
                }
            }
        }
    }

    /** Opens the bell, once. */
    synchronized InetSocketAddress bell() throws IOException {
        if (bell == null) {
            DatagramChannel opened = DatagramChannel.open();
            try {
                opened.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0)).configureBlocking(false);
                opened.register(selector, SelectionKey.OP_READ);
            } catch (IOException e) {
                opened.close();
                throw e;
            }
            bell = opened;
            // A thread that sleeps already does so without the bell.
            selector.wakeup();
        }
        return (InetSocketAddress) bell.getLocalAddress();
    }

    /** Whether the bell has rung since the last call. */
    boolean takeRing() {
        boolean was = hasRung;
        hasRung = false;
        return was;
    }

    /** One datagram at a time: a further one ends the next wait. */
    private boolean hasRung() throws IOException {
        DatagramChannel rung = bell;
        if (rung != null && rung.receive(ByteBuffer.allocate(0)) != null) {
            hasRung = true;
        }
        return hasRung;
    }

    /**
     * Waits for the next word that the engine sends without a request; false if the time passes, the bell
     * rings or {@link #wakeup} is called first.
     */
    boolean awaitWord(long nanos, long[] word) throws EngineGoneException {
        long deadline = System.nanoTime() + nanos;
        try {
            while (true) {
                int got = socket.read(buffer);
                if (got < 0) {
                    throw new EngineGoneException("the engine has ended or has closed the connection");
                }
                if (buffer.position() >= 8) {
                    word[0] = buffer.getLong(0);
                    buffer.flip().position(8);
                    buffer.compact();
                    buffer.limit(buffer.capacity());
                    return true;
                }
                long left = deadline - System.nanoTime();
                if (left <= 0) {
                    return false;
                }
                int ready = selector.select(Math.max(1, left / 1_000_000));
                selector.selectedKeys().clear();
                if (ready == 0 ? deadline - System.nanoTime() > 0 : hasRung()) {
                    return false;
                }
            }
        } catch (EngineGoneException e) {
            throw e;
        } catch (IOException e) {
            throw new EngineGoneException("the engine has ended: " + e.getMessage());
        }
    }

    /** From now on {@link #awaitWord} may be called. */
    void expectWords() {
        buffer.clear();
    }

    /** Ends a wait in another thread. */
    void wakeup() {
        selector.wakeup();
    }

    /** Whether the other end is there, as far as this end can tell without asking it. */
    synchronized boolean isAlive() {
        try {
            // The engine sends nothing unasked on this connection, so a read finds nothing or the end.
            return socket.isOpen() && socket.read(ByteBuffer.allocate(1)) == 0;
        } catch (ClosedChannelException e) {
            return false;
        } catch (IOException e) {
            return false;
        }
    }

    @Override
    public void close() {
        try {
            if (bell != null) {
                bell.close();
            }
            selector.close();
        } catch (IOException e) {
            // A selector without descriptors left is closed as well.
        }
        try {
            socket.close();
        } catch (IOException e) {
            // The kernel closes it even if it reports an error.
        }
    }
}
