package highwire.rpc;

import highwire.verbs.Context;
import highwire.verbs.VerbsException;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.net.InetSocketAddress;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;

/**
 * Serves calls: one thread accepts sessions, one serves all that poll, and each that blocks has a thread of its own.
 *
 * <p>Each client is greeted by a thread of its own, so that one that says nothing delays no other. If the engine ends, or does not answer in time, the
 * sessions end; the server goes on listening, and serves the next client over a {@linkplain Context#reopen context of its own} as soon as an
 * engine serves behind the same door.
 */
public final class RpcServer implements AutoCloseable {
    private static final Duration GREETING = Duration.ofSeconds(5);
    /** Clients that are being greeted at one time. */
    static final int GREETINGS_MAX = 64;
    private static final int TURNS_PER_LOOK = 1 << 16;
    private static final int IDLE_TURNS_PER_YIELD = 1 << 12;
    /** The same if an engine has to run before a message can arrive from one of the sessions: that may want this very core, each time. */
    private static final int IDLE_TURNS_FOR_ENGINE = 1;
    private static final Duration LOOK = Duration.ofMillis(50);
    /** After an attempt to reach an engine that failed. */
    private static final long PAUSE_NANOS = 1_000_000_000;

    private final Context given;
    private final RpcOptions options;
    private final RpcService service;
    /** The context for new sessions; guarded by the lock. */
    private final Object reopening = new Object();
    private Context current;
    private VerbsException unreached;
    private long unreachedAt;
    /** Clients that have not introduced themselves, oldest first, and how many more are being connected. Guarded by itself. */
    private final LinkedHashSet<SocketChannel> silent = new LinkedHashSet<>();
    private int greetings;
    private final ExecutorService greeters = Executors.newCachedThreadPool(
            Thread.ofPlatform().daemon().name("highwire-rpc-greet-", 0).factory());
    /** Ends of sessions whose objects a peer was using when they were to be closed. */
    private final Queue<Slots> leftover = new ConcurrentLinkedQueue<>();
    private final ServerSocketChannel listener;
    private final InetSocketAddress address;
    private final List<Session> sessions = new CopyOnWriteArrayList<>();
    /** Threads of blocking sessions; one that has ended may still be closing its objects. */
    private final List<Thread> threads = new CopyOnWriteArrayList<>();
    private final Thread acceptor;
    private final Thread poller;
    private volatile boolean isClosing;

    private final class Session {
        final SocketChannel channel;
        final ByteBuffer scratch = ByteBuffer.allocateDirect(8);
        final Slots slots;
        final Thread thread;
        private int slot;
        private int sequence = 1;

        Session(SocketChannel channel, Slots slots) {
            this.channel = channel;
            this.slots = slots;
            this.thread = options.mode() == RpcMode.BLOCKING
                    ? Thread.ofPlatform().name("highwire-rpc-session").unstarted(this::run)
                    : null;
        }

        /** Answers the next call, if it has come. */
        boolean turn() throws RpcException {
            if (!slots.hasCome(slot, sequence)) {
                return false;
            }
            answer();
            if (++slot == options.slots()) {
                slot = 0;
                sequence++;
            }
            return true;
        }

        private void answer() throws RpcException {
            int length = slots.length(slot);
            MemorySegment outgoing = slots.outgoing(slot);
            int code = 0;
            int answered;
            try {
                answered = service.serve(slots.code(slot), slots.incoming(slot, length), length, outgoing);
            } catch (Throwable e) {
                // An Error, too, is the call's: the thread serves other calls, and the client waits for an
                // answer.
                byte[] text = String.valueOf(e.getMessage()).getBytes(StandardCharsets.UTF_8);
                answered = Math.min(text.length, options.maxBytes());
                MemorySegment.copy(MemorySegment.ofArray(text), 0, outgoing, 0, answered);
                code = 1;
            }
            slots.send(slot, code, slots.callId(slot), answered, sequence);
        }

        boolean isThere() {
            return slots.isServed() && Greeting.isAlive(channel, scratch);
        }

        /** A blocking session's thread. */
        private void run() {
            try {
                while (!isClosing) {
                    while (turn()) {
                        // All calls that have come.
                    }
                    if (!slots.sleep(LOOK) && !isThere()) {
                        break;
                    }
                }
            } catch (IOException | InterruptedException | IllegalStateException e) {
                // The client has gone, or its engine.
            }
            end(this);
        }
    }

    private RpcServer(Context context, ServerSocketChannel listener, RpcService service, RpcOptions options)
            throws IOException {
        this.given = context;
        this.current = context;
        this.listener = listener;
        this.address = (InetSocketAddress) listener.getLocalAddress();
        this.service = service;
        this.options = options;
        this.acceptor = Thread.ofPlatform().name("highwire-rpc-accept").daemon().start(this::accept);
        this.poller = options.mode() == RpcMode.POLLING
                ? Thread.ofPlatform().name("highwire-rpc-poll").daemon().start(this::poll)
                : null;
    }

    /**
     * Opens a server.
     *
     * @param context the engine to use
     * @param address where clients connect; port 0 takes any
     * @param service the methods
     * @param options the offer
     * @return the server
     * @throws RpcException it cannot listen there
     */
    public static RpcServer open(Context context, InetSocketAddress address, RpcService service, RpcOptions options)
            throws RpcException {
        try {
            return new RpcServer(context, ServerSocketChannel.open().bind(address), service, options);
        } catch (IOException e) {
            throw new RpcException("cannot listen at " + address + ": " + e.getMessage(), e);
        }
    }

    /** {@return where clients find it} */
    public InetSocketAddress address() {
        return address;
    }

    /** {@return how many clients it has} */
    public int sessions() {
        return sessions.size();
    }

    private void accept() {
        while (!isClosing) {
            try {
                SocketChannel channel = listener.accept();
                closeLeftover();
                if (admit(channel)) {
                    greeters.execute(() -> greet(channel));
                } else {
                    channel.close();
                }
            } catch (IOException | RejectedExecutionException e) {
                if (!isClosing) {
                    Thread.yield();
                }
            }
        }
    }

    /**
     * Whether there is a place for another client to be greeted. Of those that have said nothing yet the oldest makes
     * room; a client introduces itself as soon as it is connected.
     */
    private boolean admit(SocketChannel channel) throws IOException {
        SocketChannel oldest = null;
        synchronized (silent) {
            if (greetings >= GREETINGS_MAX) {
                Iterator<SocketChannel> first = silent.iterator();
                if (!first.hasNext()) {
                    return false;
                }
                oldest = first.next();
                first.remove();
                greetings--;
            }
            silent.add(channel);
            greetings++;
        }
        if (oldest != null) {
            oldest.close();
        }
        return true;
    }

    /** The client is heard: it cannot be made to give way any more. */
    private boolean isHeard(SocketChannel channel) {
        synchronized (silent) {
            return silent.remove(channel);
        }
    }

    /** How many clients are being greeted. */
    int greetings() {
        synchronized (silent) {
            return greetings;
        }
    }

    private void greet(SocketChannel channel) {
        boolean isCounted = false;
        try {
            Socket socket = channel.socket();
            socket.setTcpNoDelay(true);
            Greeting.say(socket, Greeting.offer(options));
            String client = Greeting.hear(socket, GREETING);
            isCounted = isHeard(channel);
            if (isCounted) {
                begin(channel, client);
            }
        } catch (IOException | RuntimeException e) {
            // The peer is no client, or has gone already, or the engine has.
            close(channel);
        } finally {
            synchronized (silent) {
                if (silent.remove(channel) || isCounted) {
                    greetings--;
                }
            }
        }
    }

    private void begin(SocketChannel channel, String client) throws IOException {
        Slots slots = new Slots(context(), options);
        boolean isMade = false;
        try {
            slots.connect(client);
            Greeting.say(channel.socket(), slots.introduction());
            Greeting.leaveOpen(channel);
            isMade = true;
        } finally {
            if (!isMade) {
                close(slots);
            }
        }
        Session session = new Session(channel, slots);
        synchronized (this) {
            if (isClosing) {
                close(channel);
                close(slots);
                return;
            }
            sessions.add(session);
            if (session.thread != null) {
                threads.removeIf(thread -> !thread.isAlive());
                session.thread.start();
                threads.add(session.thread);
            }
        }
    }

    /** The context for a new session: the one that was given, or once its engine has ended, one of the server's own. */
    private Context context() throws VerbsException {
        synchronized (reopening) {
            if (current.valid()) {
                return current;
            }
            // An engine that does not answer is not waited for by each client in turn.
            if (unreached != null && System.nanoTime() - unreachedAt < PAUSE_NANOS) {
                throw unreached;
            }
            try {
                Context fresh = given.reopen();
                closeOwn();
                current = fresh;
                unreached = null;
                return current;
            } catch (VerbsException e) {
                unreached = e;
                unreachedAt = System.nanoTime();
                throw e;
            }
        }
    }

    private void closeOwn() {
        if (current != given) {
            try {
                current.close();
            } catch (VerbsException e) {
                // Its sessions have not noticed yet that their engine has ended; it is closed when they are collected.
            }
        }
    }

    private static void close(SocketChannel channel) {
        try {
            channel.close();
        } catch (IOException e) {
            // The kernel closes it even if it reports an error.
        }
    }

    /** Closes a session's end, now or later. */
    private void close(Slots slots) {
        try {
            slots.close();
        } catch (VerbsException e) {
            // A peer is in the middle of a WRITE.
            leftover.add(slots);
        }
    }

    private void closeLeftover() {
        for (int count = leftover.size(); count > 0; count--) {
            Slots slots = leftover.poll();
            if (slots != null) {
                close(slots);
            }
        }
    }

    /** The thread of all sessions that poll. */
    private void poll() {
        int idle = 0;
        for (int turns = 0; !isClosing; turns++) {
            if (sessions.isEmpty()) {
                Thread.yield();
            }
            boolean hasServed = false;
            int turnsPerYield = IDLE_TURNS_PER_YIELD;
            for (Session session : sessions) {
                hasServed |= serve(session, turns % TURNS_PER_LOOK == 0);
                turnsPerYield = session.slots.isNear() ? turnsPerYield : IDLE_TURNS_FOR_ENGINE;
            }
            idle = hasServed ? 0 : idle + 1;
            if (idle % turnsPerYield == turnsPerYield - 1) {
                // A client may be waiting for this very core.
                Thread.yield();
            }
        }
    }

    private boolean serve(Session session, boolean looks) {
        try {
            if (session.turn()) {
                return true;
            }
            Thread.onSpinWait();
            if (looks) {
                session.slots.reap();
                if (!session.isThere()) {
                    end(session);
                }
            }
        } catch (IOException | IllegalStateException e) {
            end(session);
        }
        return false;
    }

    private void end(Session session) {
        if (sessions.remove(session)) {
            close(session.channel);
            close(session.slots);
        }
    }

    /** Ends every session. */
    @Override
    public void close() throws IOException {
        synchronized (this) {
            isClosing = true;
        }
        listener.close();
        synchronized (silent) {
            silent.forEach(RpcServer::close);
        }
        try {
            acceptor.join();
            greeters.shutdown();
            greeters.awaitTermination(Long.MAX_VALUE, TimeUnit.NANOSECONDS);
            if (poller != null) {
                poller.join();
            }
            for (Thread thread : threads) {
                thread.join();
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        for (Session session : sessions) {
            end(session);
        }
        closeLeftover();
        synchronized (reopening) {
            closeOwn();
        }
    }
}
