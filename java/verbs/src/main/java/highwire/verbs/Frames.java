package highwire.verbs;

import java.io.IOException;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.ClosedSelectorException;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.concurrent.locks.ReentrantLock;

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
    static final int CREATE_BELL = 17;
    static final int DESTROY_BELL = 18;

    /** Words of a good answer, by kind. */
    private static final int[] ANSWER_WORDS = {0, 13, 1, 2, 0, 3, 0, 2, 0, 3, 0, 4, 0, 9, 0, 0, 18, 2, 0};

    private static final int HEADER_BYTES = 8;
    private static final int BODY_BYTES_MAX = 1024;

    private final SocketChannel socket;
    private final Selector selector;
    private final ReentrantLock asking = new ReentrantLock();
    /** A request, and then the words of a channel. */
    private final ByteBuffer buffer = newBuffer();
    /** An answer, of which the first bytes may have come when its caller was interrupted. */
    private final ByteBuffer answer = newBuffer();
    /** The kind of the request whose caller was interrupted and whose answer the engine owes; 0 for none. */
    private int owed;
    private final long timeoutNanos;
    /** Why the connection has ended; null while it has not. */
    private volatile String ended;
    private volatile boolean isClosed;
    /** What is done once when the connection has ended by itself. */
    private volatile Runnable onEnd = () -> { };
    private boolean hasRung;

    private Frames(SocketChannel socket, Selector selector, Duration timeout) {
        this.socket = socket;
        this.selector = selector;
        this.timeoutNanos = Timeouts.nanos(timeout);
    }

    private static ByteBuffer newBuffer() {
        return ByteBuffer.allocateDirect(HEADER_BYTES + BODY_BYTES_MAX).order(ByteOrder.LITTLE_ENDIAN);
    }

    static Frames connect(Path door, Duration timeout) throws IOException {
        SocketChannel socket = SocketChannel.open(UnixDomainSocketAddress.of(door));
        Selector selector = null;
        boolean isMade = false;
        try {
            selector = Selector.open();
            socket.configureBlocking(false);
            socket.register(selector, SelectionKey.OP_READ);
            Frames made = new Frames(socket, selector, timeout);
            isMade = true;
            return made;
        } finally {
            if (!isMade) {
                if (selector != null) {
                    selector.close();
                }
                socket.close();
            }
        }
    }

    /**
     * Sends a request, and waits for the answer. After any failure but a refusal and an interrupt the connection
     * is closed.
     *
     * <p>An interrupt ends this call only. The answer is still owed then; the next call takes it first, and has the engine
     * take down again what it says was made.
     *
     * @throws CallInterruptedException the thread was interrupted
     */
    long[] ask(int kind, long... words) throws VerbsException {
        try {
            asking.lockInterruptibly();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw interrupted();
        }
        try {
            return exchange(true, kind, words);
        } finally {
            asking.unlock();
        }
    }

    /**
     * The same whether or not the thread is interrupted, for what gives something back: a thread that unwinds
     * after an interrupt closes its objects.
     */
    long[] askUninterrupted(int kind, long... words) throws VerbsException {
        asking.lock();
        // An interrupted thread cannot sleep in a selector.
        boolean wasInterrupted = Thread.interrupted();
        try {
            return exchange(false, kind, words);
        } finally {
            asking.unlock();
            if (wasInterrupted) {
                Thread.currentThread().interrupt();
            }
        }
    }

    private long[] exchange(boolean isInterruptible, int kind, long[] words) throws VerbsException {
        checkOpen();
        if (isInterruptible && Thread.currentThread().isInterrupted()) {
            throw interrupted();
        }
        try {
            long deadline = System.nanoTime() + timeoutNanos;
            settle(deadline, isInterruptible);
            request(kind, words);
            return read(deadline, isInterruptible);
        } catch (EngineGoneException | EngineTimeoutException e) {
            end(e.getMessage());
            throw e;
        } catch (VerbsException e) {
            throw e;
        } catch (IOException | ClosedSelectorException e) {
            checkOpen();
            end("the engine has ended: " + describe(e));
            throw new EngineGoneException(ended);
        }
    }

    /** Takes the answer that is owed. What was made for a caller that was interrupted has no owner, and goes again. */
    private void settle(long deadline, boolean isInterruptible) throws IOException {
        while (owed != 0) {
            int kind = owed;
            long[] made;
            try {
                made = read(deadline, isInterruptible);
            } catch (EngineGoneException | EngineTimeoutException | CallInterruptedException e) {
                throw e;
            } catch (VerbsException e) {
                // The request was refused, so that nothing was made.
                continue;
            }
            boolean isMaker = kind >= CREATE_PD && kind <= CREATE_QP || kind == CREATE_BELL;
            if (isMaker && made.length > 0) {
                request(kind + 1, made[0]);
            }
        }
    }

    /** From here on the engine owes an answer. */
    private void request(int kind, long... words) throws IOException {
        send(kind, words);
        owed = kind;
        answer.clear().limit(HEADER_BYTES);
    }

    private long[] read(long deadline, boolean isInterruptible) throws IOException {
        int kind = owed;
        fill(deadline, isInterruptible);
        int length = answer.getInt(0);
        if (length < 0 || length > BODY_BYTES_MAX || answer.getShort(4) != kind) {
            throw new EngineGoneException("what answers at the door is no engine of Highwire");
        }
        answer.limit(HEADER_BYTES + length);
        fill(deadline, isInterruptible);
        owed = 0;
        answer.flip().position(HEADER_BYTES);
        int status = Short.toUnsignedInt(answer.getShort(6));
        if (status != 0) {
            throw VerbsException.of(status, StandardCharsets.UTF_8.decode(answer).toString());
        }
        if (length != 8 * ANSWER_WORDS[kind]) {
            throw new EngineGoneException("the engine's answer has " + length + " bytes, which is no answer");
        }
        long[] words = new long[length / 8];
        answer.asLongBuffer().get(words);
        return words;
    }

    private void send(int kind, long... words) throws IOException {
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

    private void fill(long deadline, boolean isInterruptible) throws IOException {
        while (answer.hasRemaining()) {
            int got = socket.read(answer);
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
                if (isInterruptible && Thread.currentThread().isInterrupted()) {
                    throw interrupted();
                }
                if (!isInterruptible && Thread.interrupted()) {
                    // Kept for the caller, who must not be told before the answer has come.
                    fillInterrupted(deadline);
                }
            }
        }
    }

    private void fillInterrupted(long deadline) throws IOException {
        try {
            fill(deadline, false);
        } finally {
            Thread.currentThread().interrupt();
        }
    }

    private static CallInterruptedException interrupted() {
        return new CallInterruptedException("the thread was interrupted before the engine answered");
    }

    private static String describe(Exception e) {
        return e.getMessage() == null ? e.getClass().getSimpleName() : e.getMessage();
    }

    private void checkOpen() throws EngineGoneException {
        if (isClosed) {
            throw new IllegalStateException("the context is closed");
        }
        if (ended != null) {
            throw new EngineGoneException("the context has ended: " + ended + "; open a new one");
        }
    }

    private void end(String reason) {
        if (ended == null) {
            ended = reason;
            FlightEvents.ContextEnd event = new FlightEvents.ContextEnd();
            event.reason = reason;
            event.commit();
        }
        shut();
        onEnd.run();
    }

    void onEnd(Runnable action) {
        onEnd = action;
    }

    /** Why the connection has ended; null while this end knows of no reason. */
    String ended() {
        return ended;
    }

    /** From now on the bell ends waits for words. A thread that waits already does so without it. */
    void listen(Bell bell) throws IOException {
        bell.listen(selector);
        selector.wakeup();
    }

    /** Whether the bell has rung since the last call. */
    boolean takeRing() {
        boolean was = hasRung;
        hasRung = false;
        return was;
    }

    /** Takes what the last look at the selector has found; whether a bell has rung. */
    private boolean hear() throws IOException {
        for (SelectionKey key : selector.selectedKeys()) {
            hasRung |= key.attachment() instanceof Bell bell && bell.hear(key);
        }
        selector.selectedKeys().clear();
        return hasRung;
    }

    /**
     * Waits for the next word that the engine sends without a request; false if the time passes, a bell
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
                if (ready == 0 ? deadline - System.nanoTime() > 0 : hear()) {
                    return false;
                }
            }
        } catch (EngineGoneException e) {
            throw e;
        } catch (IOException e) {
            throw new EngineGoneException("the engine has ended: " + describe(e));
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

    /** Whether the other end is there, as far as this end can tell without asking it or waiting for a thread that asks. */
    boolean isAlive() {
        if (isClosed || ended != null || !socket.isOpen()) {
            return false;
        }
        if (!asking.tryLock()) {
            return true;
        }
        try {
            // The engine sends nothing on this connection but an answer that is owed, so a read finds that or the end.
            int got = socket.read(owed == 0 ? ByteBuffer.allocate(1) : answer);
            if (got < 0 || got > 0 && owed == 0) {
                end("the engine has ended or has closed the connection");
            }
        } catch (IOException e) {
            end("the engine has ended: " + describe(e));
        } finally {
            asking.unlock();
        }
        return ended == null;
    }

    /** Ends the connection. From now on it is this program that has ended it. */
    @Override
    public void close() {
        isClosed = true;
        shut();
    }

    private void shut() {
        try {
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
