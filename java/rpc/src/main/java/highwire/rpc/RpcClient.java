package highwire.rpc;

import highwire.rpc.RpcClient.RpcCall;
import highwire.verbs.Context;
import highwire.verbs.IdleStrategy;
import highwire.verbs.Timeouts;
import highwire.verbs.VerbsException;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.net.SocketTimeoutException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.time.Duration;

/** A session with a server. One thread at a time. Several calls may be in flight, each in a slot. */
public final class RpcClient implements AutoCloseable {
    private static final int SPINS_PER_LOOK = 1 << 12;
    /** The same if an engine has to run before a message can arrive: that may want this very core, each time. */
    private static final int SPINS_FOR_ENGINE = 1;
    private static final long LOOK_NANOS = 50_000_000;

    private final SocketChannel channel;
    private final ByteBuffer scratch = ByteBuffer.allocateDirect(8);
    private final Slots slots;
    private final RpcCall[] calls;
    private final IdleStrategy idle;
    private long begun;

    private RpcClient(SocketChannel channel, Slots slots, IdleStrategy idle) {
        this.idle = idle;
        this.channel = channel;
        this.slots = slots;
        this.calls = new RpcCall[slots.options.slots()];
        for (int slot = 0; slot < calls.length; slot++) {
            calls[slot] = new RpcCall(this, slots, slot);
        }
    }

    /**
     * Connects to a server.
     *
     * @param context the engine to use
     * @param server where it listens
     * @param timeout how long to wait for each of its answers
     * @return the session
     * @throws RpcException the server is not there, refuses, or is silent
     * @throws VerbsException the engine refuses
     */
    public static RpcClient connect(Context context, InetSocketAddress server, Duration timeout)
            throws RpcException, VerbsException {
        return connect(context, server, timeout, null);
    }

    /**
     * Connects to a server, with a thread that waits in its own way if the session polls.
     *
     * @param context the engine to use
     * @param server where it listens
     * @param timeout how long to wait for each of its answers
     * @param idle how long the thread looks for an answer before others may run; null for what suits the way to the server
     * @return the session
     * @throws RpcException the server is not there, refuses, or is silent
     * @throws VerbsException the engine refuses
     */
    public static RpcClient connect(Context context, InetSocketAddress server, Duration timeout, IdleStrategy idle)
            throws RpcException, VerbsException {
        SocketChannel channel = null;
        Slots slots = null;
        try {
            channel = SocketChannel.open();
            Socket socket = channel.socket();
            socket.setTcpNoDelay(true);
            socket.connect(server, Timeouts.socketMillis(timeout));
            slots = new Slots(context, Greeting.offer(Greeting.hear(socket, timeout)));
            Greeting.say(socket, slots.introduction());
            slots.connect(Greeting.hear(socket, timeout));
            Greeting.leaveOpen(channel);
            return new RpcClient(channel, slots, idle != null ? idle : IdleStrategy.spinning(slots.isNear() ? SPINS_PER_LOOK : SPINS_FOR_ENGINE));
        } catch (VerbsException | RpcException | RuntimeException e) {
            closeAfter(e, channel, slots);
            throw e;
        } catch (SocketTimeoutException e) {
            closeAfter(e, channel, slots);
            throw new RpcTimeoutException("the server at " + server + " was silent for " + Timeouts.millis(timeout) + " ms");
        } catch (IOException e) {
            closeAfter(e, channel, slots);
            throw new RpcClosedException("no session with " + server + ": " + e.getMessage(), e);
        }
    }

    /** What keeps an object open must not hide why there is no session. */
    private static void closeAfter(Exception reason, SocketChannel channel, Slots slots) {
        try {
            close(channel, slots);
        } catch (VerbsException e) {
            reason.addSuppressed(e);
        }
    }

    private static void close(SocketChannel channel, Slots slots) throws VerbsException {
        try {
            if (channel != null) {
                channel.close();
            }
        } catch (IOException e) {
            // The kernel closes it even if it reports an error.
        }
        if (slots != null) {
            slots.close();
        }
    }

    /**
     * Takes the next slot for a call. The slots go round, so the oldest call must have ended. A call that is never sent is forgotten by
     * the next one.
     *
     * @param method the method's number
     * @return the call, to marshal its arguments into
     * @throws IllegalStateException as many calls are in flight as there are slots
     */
    public RpcCall begin(int method) {
        RpcCall call = calls[(int) begun & calls.length - 1];
        call.begin(method, begun);
        return call;
    }

    /** Sends the call that was begun; the next one takes the next slot. */
    private void sent() {
        begun++;
    }

    /** Waits until a slot's answer has come. */
    void await(int slot, int sequence, long deadline) throws RpcException, VerbsException, InterruptedException {
        if (slots.options.mode() == RpcMode.POLLING) {
            poll(slot, sequence, deadline);
            return;
        }
        while (!slots.hasCome(slot, sequence)) {
            long left = deadline - System.nanoTime();
            if (left <= 0) {
                throw late();
            }
            if (!slots.sleep(Duration.ofNanos(Math.min(left, LOOK_NANOS)))) {
                look();
            }
        }
    }

    private void poll(int slot, int sequence, long deadline) throws RpcException {
        long looked = System.nanoTime();
        idle.begin();
        while (!hasComeSoon(slot, sequence)) {
            long now = System.nanoTime();
            if (now - deadline >= 0) {
                throw late();
            }
            slots.reap();
            // The server may be waiting for this very core.
            Thread.yield();
            if (now - looked > LOOK_NANOS) {
                look();
                looked = System.nanoTime();
            }
        }
    }

    /** Small, so that it is compiled for itself and soon. */
    private boolean hasComeSoon(int slot, int sequence) {
        do {
            if (slots.hasCome(slot, sequence)) {
                return true;
            }
        } while (idle.goOn());
        return false;
    }

    private RpcTimeoutException late() {
        return new RpcTimeoutException("the answer did not come within its deadline");
    }

    private void look() throws RpcClosedException {
        slots.checkEngine();
        if (!Greeting.isAlive(channel, scratch)) {
            throw new RpcClosedException("the server has gone");
        }
    }

    /**
     * Room for arguments and for an answer.
     *
     * @return bytes
     */
    public int maxBytes() {
        return slots.options.maxBytes();
    }

    /** {@return whether the server is there and both ends' engine serves, as far as this end can tell without asking} */
    public boolean valid() {
        return slots.isServed() && Greeting.isAlive(channel, scratch);
    }

    /**
     * Ends the session; calls in flight are forgotten.
     *
     * @throws VerbsException something could not be closed, since the server works on it at this moment; it may be tried again
     */
    @Override
    public void close() throws VerbsException {
        close(channel, slots);
    }

    /** A call: marshal, send, await, unmarshal. Belongs to its client and is used again. */
    public static final class RpcCall {
        private final RpcClient client;
        private final Slots slots;
        private final int slot;
        private final MemorySegment arguments;
        private int method;
        private long id;
        private boolean isInFlight;

        RpcCall(RpcClient client, Slots slots, int slot) {
            this.client = client;
            this.slots = slots;
            this.slot = slot;
            this.arguments = slots.outgoing(slot);
        }

        private int sequence() {
            // Never 0, the content of untouched memory.
            return (int) (id / slots.options.slots()) + 1;
        }

        void begin(int method, long id) {
            if (isInFlight) {
                throw new IllegalStateException("as many calls are in flight as there are slots");
            }
            this.method = method;
            this.id = id;
        }

        /** {@return where to marshal the arguments} */
        public MemorySegment arguments() {
            return arguments;
        }

        /**
         * Sends the call.
         *
         * @param length bytes of arguments
         * @return this call
         * @throws RpcClosedException the connection has failed
         */
        public RpcCall send(int length) throws RpcClosedException {
            if (isInFlight) {
                throw new IllegalStateException("the call was sent already");
            }
            slots.send(slot, method, id, length, sequence());
            isInFlight = true;
            client.sent();
            return this;
        }

        /**
         * Waits for the answer.
         *
         * @param timeout how long at most
         * @return bytes of the answer, which {@link #answer} shows until the slot is used again
         * @throws RpcTimeoutException it did not come in time; it may be awaited again
         * @throws RpcClosedException it will not come
         * @throws RpcException the service threw
         * @throws VerbsException the engine is gone
         * @throws InterruptedException the thread was interrupted while it slept
         */
        public int await(Duration timeout) throws RpcException, VerbsException, InterruptedException {
            if (!isInFlight) {
                throw new IllegalStateException("the call was not sent");
            }
            if (!slots.hasCome(slot, sequence())) {
                client.await(slot, sequence(), System.nanoTime() + Timeouts.nanos(timeout));
            }
            isInFlight = false;
            int length = slots.length(slot);
            if (slots.callId(slot) != id) {
                throw new RpcClosedException("the answer is of another call");
            }
            if (slots.code(slot) != 0) {
                byte[] text = new byte[length];
                MemorySegment.copy(answer(length), java.lang.foreign.ValueLayout.JAVA_BYTE, 0, text, 0, length);
                throw new RpcException(new String(text, java.nio.charset.StandardCharsets.UTF_8));
            }
            return length;
        }

        /**
         * The answer.
         *
         * @param length as {@link #await} returned
         * @return its bytes, rounded up to eight
         */
        public MemorySegment answer(int length) {
            return slots.incoming(slot, length);
        }
    }
}
