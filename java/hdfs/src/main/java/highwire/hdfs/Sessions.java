package highwire.hdfs;

import highwire.rpc.RpcClient;
import highwire.rpc.RpcClient.RpcCall;
import highwire.rpc.RpcClosedException;
import highwire.rpc.RpcTimeoutException;
import java.io.EOFException;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.lang.foreign.MemorySegment;
import java.net.InetSocketAddress;
import java.net.SocketTimeoutException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedDeque;
import java.util.concurrent.atomic.AtomicLong;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Sessions with one server. Each serves one thread at a time, so there are as many as there are threads that call at once. */
public final class Sessions {
    private static final Logger LOG = LoggerFactory.getLogger(Sessions.class);
    private static final Map<InetSocketAddress, Sessions> ALL = new ConcurrentHashMap<>();
    private static final Duration GREETING = Duration.ofSeconds(5);
    /** How long this JVM does not ask a server without jvRPC again. */
    private static final long PAUSE_NANOS = 10_000_000_000L;
    /** A session that was idle for this long is checked before it is used. */
    private static final long LOOK_NANOS = 100_000_000;
    /** Without a time-out a call lasts until the server has answered or is gone, as over TCP. */
    private static final Duration LOOK = Duration.ofMinutes(1);

    private final InetSocketAddress server;
    private final ConcurrentLinkedDeque<Session> idle = new ConcurrentLinkedDeque<>();
    private final AtomicLong calls = new AtomicLong();
    private volatile long failedAt = System.nanoTime() - PAUSE_NANOS;

    private Sessions(InetSocketAddress server) {
        this.server = server;
    }

    /**
     * Finds this JVM's sessions with a server.
     *
     * @param server where jvRPC listens
     * @return this JVM's sessions with it
     */
    public static Sessions with(InetSocketAddress server) {
        return ALL.computeIfAbsent(server, Sessions::new);
    }

    /**
     * The server's answer.
     *
     * @param status a status of {@link Wire}
     * @param bytes what it answers
     */
    public record Answer(int status, byte[] bytes) {}

    /** A session, while one thread has it. */
    public static final class Session {
        private final RpcClient client;
        private final Map<String, Long> callers = new ConcurrentHashMap<>();
        private long usedAt = System.nanoTime();

        private Session(RpcClient client) {
            this.client = client;
        }

        /** {@return the longest request} */
        public int room() {
            return client.maxBytes() - Wire.CALL_BYTES;
        }

        /**
         * Calls.
         *
         * @param caller the caller, as in {@link Wire#INTRODUCE}
         * @param callId the call's number
         * @param retry how often it was tried before
         * @param request as over TCP
         * @param timeoutMillis how long to wait for the answer; 0 for as long as the server is there
         * @return what it answered
         * @throws IOException it has not answered
         */
        public Answer call(String caller, int callId, int retry, byte[] request, int timeoutMillis) throws IOException {
            for (boolean isSecond = false;; isSecond = true) {
                Long known = callers.get(caller);
                if (known == null) {
                    known = introduce(caller, timeoutMillis);
                    callers.put(caller, known);
                }
                RpcCall call = client.begin(Wire.CALL);
                MemorySegment arguments = call.arguments();
                Wire.put(arguments, 0, known);
                Wire.put(arguments, 8, callId);
                Wire.put(arguments, 12, retry);
                Wire.put(arguments, Wire.CALL_BYTES, request, 0, request.length);
                MemorySegment answer = await(call.send(Wire.CALL_BYTES + request.length), timeoutMillis);
                int status = Wire.getInt(answer, 0);
                int length = Wire.getInt(answer, 4);
                if (status == Wire.KEPT) {
                    return new Answer(Wire.OK, fetch(Wire.getLong(answer, Wire.ANSWER_BYTES), length, timeoutMillis));
                }
                if (status == Wire.UNKNOWN && !isSecond) {
                    callers.remove(caller);
                    continue;
                }
                return new Answer(status, Wire.bytes(answer, Wire.ANSWER_BYTES, length));
            }
        }

        private long introduce(String caller, int timeoutMillis) throws IOException {
            byte[] text = caller.getBytes(StandardCharsets.UTF_8);
            RpcCall call = client.begin(Wire.INTRODUCE);
            Wire.put(call.arguments(), 0, text, 0, text.length);
            return Wire.getLong(await(call.send(text.length), timeoutMillis), 0);
        }

        private byte[] fetch(long kept, int length, int timeoutMillis) throws IOException {
            byte[] whole = new byte[length];
            for (int at = 0; at < length;) {
                RpcCall call = client.begin(Wire.FETCH);
                Wire.put(call.arguments(), 0, kept);
                Wire.put(call.arguments(), 8, (long) at);
                MemorySegment part = await(call.send(16), timeoutMillis);
                int count = Math.min(length - at, (int) part.byteSize());
                System.arraycopy(Wire.bytes(part, 0, count), 0, whole, at, count);
                at += count;
            }
            return whole;
        }

        private MemorySegment await(RpcCall call, int timeoutMillis) throws IOException {
            try {
                while (true) {
                    try {
                        return call.answer(call.await(timeoutMillis > 0 ? Duration.ofMillis(timeoutMillis) : LOOK));
                    } catch (RpcTimeoutException e) {
                        if (timeoutMillis > 0) {
                            throw (IOException) new SocketTimeoutException(timeoutMillis + " millis timeout while waiting for the answer").initCause(e);
                        }
                    }
                }
            } catch (RpcClosedException e) {
                throw (IOException) new EOFException("the server has gone: " + e.getMessage()).initCause(e);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw (IOException) new InterruptedIOException("interrupted while waiting for the answer").initCause(e);
            }
        }

        private void end() {
            try {
                client.close();
            } catch (IOException | IllegalStateException e) {
                LOG.debug("A session ended with its engine", e);
            }
        }
    }

    /** {@return a session for this thread; null if the server or this JVM has none to offer, so that TCP it is} */
    public Session borrow() {
        for (Session session = idle.pollFirst(); session != null; session = idle.pollFirst()) {
            if (System.nanoTime() - session.usedAt < LOOK_NANOS || session.client.valid()) {
                return session;
            }
            session.end();
        }
        if (System.nanoTime() - failedAt < PAUSE_NANOS) {
            return null;
        }
        try {
            return new Session(RpcClient.connect(Engine.context(), server, GREETING));
        } catch (IOException e) {
            failedAt = System.nanoTime();
            LOG.info("Calls go over TCP, not over jvRPC at {}: {}", server, e.getMessage());
            return null;
        }
    }

    /** {@return how many times any of this JVM's sessions was used, so far} */
    public static long allCalls() {
        return ALL.values().stream().mapToLong(Sessions::calls).sum();
    }

    /** {@return how many times a session was used, so far} */
    public long calls() {
        return calls.get();
    }

    /**
     * Ends the use of a session.
     *
     * @param session is not used any more
     * @param works whether another thread may have it
     */
    public void giveBack(Session session, boolean works) {
        if (works) {
            calls.incrementAndGet();
            session.usedAt = System.nanoTime();
            idle.addFirst(session);
        } else {
            session.end();
        }
    }
}
