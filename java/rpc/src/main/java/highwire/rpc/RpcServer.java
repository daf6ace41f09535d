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
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** Serves calls: one thread accepts sessions, one serves all that poll, and each that blocks has a thread of its own. */
public final class RpcServer implements AutoCloseable {
    private static final int GREETING_MILLIS = 5_000;
    private static final int TURNS_PER_LOOK = 1 << 16;
    private static final int IDLE_TURNS_PER_YIELD = 1 << 12;
    /** The same if an engine has to run before a message can arrive from one of the sessions. */
    private static final int IDLE_TURNS_FOR_ENGINE = 1 << 5;
    private static final Duration LOOK = Duration.ofMillis(50);

    private final Context context;
    private final RpcOptions options;
    private final RpcService service;
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

        /** A blocking session's thread. */
        private void run() {
            try {
                while (!isClosing) {
                    while (turn()) {
                        // All calls that have come.
                    }
                    if (!slots.sleep(LOOK) && !Greeting.isAlive(channel, scratch)) {
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
        this.context = context;
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

    /** @return where clients find it. */
    public InetSocketAddress address() {
        return address;
    }

    /** @return how many clients it has. */
    public int sessions() {
        return sessions.size();
    }

    private void accept() {
        while (!isClosing) {
            try {
                SocketChannel channel = listener.accept();
                try {
                    greet(channel);
                } catch (IOException e) {
                    // The peer is no client, or has gone already.
                    channel.close();
                }
            } catch (IOException e) {
                if (!isClosing) {
                    Thread.yield();
                }
            }
        }
    }

    private void greet(SocketChannel channel) throws IOException {
        Socket socket = channel.socket();
        socket.setTcpNoDelay(true);
        socket.setSoTimeout(GREETING_MILLIS);
        Greeting.say(socket, Greeting.offer(options));
        String client = Greeting.hear(socket);
        Slots slots = new Slots(context, options);
        try {
            slots.connect(client);
            Greeting.say(socket, slots.introduction());
            Greeting.leaveOpen(channel);
        } catch (IOException e) {
            slots.close();
            throw e;
        }
        Session session = new Session(channel, slots);
        sessions.add(session);
        if (session.thread != null) {
            threads.removeIf(thread -> !thread.isAlive());
            session.thread.start();
            threads.add(session.thread);
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
                if (!Greeting.isAlive(session.channel, session.scratch)) {
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
            try {
                session.channel.close();
                session.slots.close();
            } catch (IOException e) {
                // A peer may be in the middle of a WRITE; the engine takes the rest when the context ends.
            }
        }
    }

    /** Ends every session. */
    @Override
    public void close() throws IOException {
        isClosing = true;
        listener.close();
        try {
            acceptor.join();
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
    }
}
