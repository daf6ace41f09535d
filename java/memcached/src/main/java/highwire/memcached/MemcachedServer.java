package highwire.memcached;

import highwire.memcached.Counters.Counter;
import highwire.verbs.Context;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.StandardSocketOptions;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.function.BiConsumer;
import java.util.function.LongSupplier;

/**
 * A memcached. One thread serves all TCP connections; with a context, peers may READ the same store, and change it by jvRPC.
 */
public final class MemcachedServer implements AutoCloseable {
    /** Connections at one time; a further client gets an error and is disconnected. */
    static final int CONNECTIONS_MAX = 1024;
    private static final String REFUSAL = "ERROR Too many open connections\r\n";
    /** The thread looks after the store at least this often. */
    private static final long IDLE_MILLIS = 1000;
    private static final long SWEEP_MILLIS = 100;
    /** Bytes that a client gets before the others have their turn. */
    private static final int TURN_BYTES = 1 << 20;
    /** Bytes of all clients' buffers together. */
    private static final long HELD_MAX = Math.max(64L << 20, Runtime.getRuntime().maxMemory() / 2);

    final Store store;
    private final Arena arena;
    private final Readers readers;
    private final ServerSocketChannel listener;
    private final Selector selector;
    private final InetSocketAddress address;
    private final Thread thread;
    private final long started = System.currentTimeMillis();
    private volatile boolean isClosing;
    /** Answers to clients that wait for the engine: one for each of those at most. */
    private final ConcurrentLinkedQueue<Admitted> admitted = new ConcurrentLinkedQueue<>();
    /** Bytes of all clients' buffers. */
    private volatile long held;

    /** The line for a client that asked for a queue pair. */
    private record Admitted(Connection connection, String line) {}

    /** The attachments of the selector's keys. */
    private final class Connection implements Session.Server {
        final SocketChannel channel;
        final Session session = new Session(store, this);
        /** Whether the client sends no more. */
        boolean isInputOver;
        /** Bytes that were counted for it. */
        long held;

        Connection(SocketChannel channel) {
            this.channel = channel;
        }

        @Override
        public String admit(Session session, String introduction) {
            if (readers == null) {
                return "SERVER_ERROR this server has no engine";
            }
            return readers.admit(session, introduction, line -> {
                admitted.add(new Admitted(this, line));
                selector.wakeup();
            });
        }

        @Override
        public void stats(BiConsumer<String, Object> visitor) {
            visitor.accept("pid", ProcessHandle.current().pid());
            visitor.accept("uptime", (System.currentTimeMillis() - started) / 1000);
            visitor.accept("time", System.currentTimeMillis() / 1000);
            visitor.accept("version", TextProtocol.VERSION);
            visitor.accept("pointer_size", 64);
            visitor.accept("max_connections", CONNECTIONS_MAX);
            visitor.accept("threads", 1);
        }
    }

    private MemcachedServer(InetSocketAddress wanted, StoreOptions options, Context context, LongSupplier clock) throws IOException {
        arena = context == null ? Arena.ofShared() : null;
        readers = context == null ? null : new Readers(context, options.bytes());
        MemorySegment memory = readers == null ? arena.allocate(options.bytes(), 64) : readers.memory();
        // Nobody READs a chunk of a server without an engine: it need not rest.
        StoreOptions used = readers == null ? new StoreOptions(options.bytes(), options.itemBytes(), 0) : options;
        store = new Store(used, memory, clock);
        listener = ServerSocketChannel.open();
        selector = Selector.open();
        try {
            listener.setOption(StandardSocketOptions.SO_REUSEADDR, true).bind(wanted, 1024);
            listener.configureBlocking(false).register(selector, SelectionKey.OP_ACCEPT);
            address = (InetSocketAddress) listener.getLocalAddress();
            if (readers != null) {
                readers.serve(context, store, new InetSocketAddress(address.getAddress(), 0));
            }
        } catch (IOException e) {
            release();
            throw e;
        }
        thread = Thread.ofPlatform().name("highwire-memcached").daemon().start(this::run);
    }

    /**
     * Opens a server for TCP alone.
     *
     * @param address where it listens; port 0 takes any
     * @param options how large it is
     * @return the server
     * @throws IOException it cannot listen there
     */
    public static MemcachedServer open(InetSocketAddress address, StoreOptions options) throws IOException {
        return open(address, options, System::currentTimeMillis);
    }

    /** As {@link #open(InetSocketAddress, StoreOptions)}, with a clock. */
    static MemcachedServer open(InetSocketAddress address, StoreOptions options, LongSupplier clock) throws IOException {
        return new MemcachedServer(address, options, null, clock);
    }

    /**
     * Opens a server for TCP and for peers that READ.
     *
     * @param address where it listens; port 0 takes any
     * @param options how large it is
     * @param context the engine through which peers come; stays open
     * @return the server
     * @throws IOException it cannot listen there, or the engine refuses
     */
    public static MemcachedServer open(InetSocketAddress address, StoreOptions options, Context context) throws IOException {
        return new MemcachedServer(address, options, context, System::currentTimeMillis);
    }

    /** {@return where it listens} */
    public InetSocketAddress address() {
        return address;
    }

    /** Bytes of all clients' buffers. */
    long held() {
        return held;
    }

    private void run() {
        long swept = store.now();
        while (!isClosing) {
            try {
                long due = store.nextTick();
                long wait = due == 0 ? IDLE_MILLIS : Math.clamp(due - store.now(), 1, IDLE_MILLIS);
                selector.select(this::ready, wait);
                answerAdmitted();
                long now = store.now();
                store.tick(now);
                if (Math.abs(now - swept) >= SWEEP_MILLIS) {
                    swept = now;
                    store.sweep();
                }
            } catch (IOException e) {
                // The selector is broken, and with it the server.
                return;
            } catch (Throwable e) {
                survive(e);
            }
        }
    }

    /** Counts what a handler has thrown; the others go on, unless the virtual machine is broken. */
    private void survive(Throwable thrown) {
        if (thrown instanceof InternalError || thrown instanceof UnknownError) {
            throw (VirtualMachineError) thrown;
        }
        store.counters.count(Counter.handler_faults);
    }

    private void ready(SelectionKey key) {
        if (key.isAcceptable()) {
            accept();
            return;
        }
        advance(key, (Connection) key.attachment(), key.isReadable());
    }

    /** Goes on with the clients whose queue pairs are made, or refused. */
    private void answerAdmitted() {
        for (Admitted next = admitted.poll(); next != null; next = admitted.poll()) {
            SelectionKey key = next.connection.channel.keyFor(selector);
            if (key != null && key.isValid()) {
                next.connection.session.answer(next.line);
                advance(key, next.connection, false);
            }
        }
    }

    private void advance(SelectionKey key, Connection connection, boolean reads) {
        boolean goesOn = false;
        try {
            goesOn = turn(key, connection, reads);
        } catch (IOException e) {
            // The client has gone.
        } catch (Throwable e) {
            // Whatever a client has brought about ends its own conversation.
            survive(e);
        } finally {
            if (!goesOn) {
                end(key, connection);
            }
        }
    }

    private void accept() {
        try {
            for (SocketChannel channel = listener.accept(); channel != null; channel = listener.accept()) {
                channel.configureBlocking(false);
                if (store.counters.get(Counter.curr_connections) >= CONNECTIONS_MAX) {
                    store.counters.count(Counter.rejected_connections);
                    channel.write(java.nio.ByteBuffer.wrap(Session.bytes(REFUSAL)));
                    channel.close();
                    continue;
                }
                try {
                    channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
                    channel.register(selector, SelectionKey.OP_READ, new Connection(channel));
                } catch (IOException | OutOfMemoryError e) {
                    channel.close();
                    throw e;
                }
                store.counters.count(Counter.total_connections);
                store.counters.count(Counter.curr_connections);
            }
        } catch (IOException e) {
            // The client has gone, or the process has no descriptors left: the others go on.
        }
    }

    /** Reads, if the client has sent something, answers, writes; false if the conversation is over. */
    private boolean turn(SelectionKey key, Connection connection, boolean reads) throws IOException {
        Session session = connection.session;
        if (reads) {
            int count = connection.channel.read(session.room());
            session.received();
            connection.isInputOver = count < 0;
            store.counters.add(Counter.bytes_read, Math.max(0, count));
        } else {
            session.proceed();
        }
        account(connection);
        int written = write(connection);
        // The client may have taken everything at once; the other clients have their turns in between.
        for (int sum = written; session.isPaused() && session.output.pending() == 0 && sum < TURN_BYTES; sum += written) {
            session.proceed();
            written = write(connection);
        }
        account(connection);
        boolean isEmpty = session.output.pending() == 0;
        if (isEmpty && (session.isClosing() || connection.isInputOver && !session.isPaused() && !session.isWaiting())) {
            return false;
        }
        // The server reads no further questions of a client that does not take the answers.
        boolean listens = !session.isClosing() && !session.isPaused() && !session.isWaiting() && !connection.isInputOver && !session.output.isFull();
        key.interestOps((isEmpty && !session.isPaused() ? 0 : SelectionKey.OP_WRITE) | (listens ? SelectionKey.OP_READ : 0));
        return true;
    }

    private int write(Connection connection) throws IOException {
        int written = connection.session.output.flush(connection.channel);
        store.counters.add(Counter.bytes_written, written);
        return written;
    }

    /** Keeps the sum of what all clients hold; the client that exceeds the heap's share has to go. */
    private void account(Connection connection) {
        long before = connection.held;
        connection.held = connection.session.held();
        held += connection.held - before;
        if (held > HELD_MAX && connection.held > before) {
            throw new OutOfMemoryError("the clients' buffers have " + held + " bytes");
        }
    }

    private void end(SelectionKey key, Connection connection) {
        key.cancel();
        held -= connection.held;
        connection.held = 0;
        try {
            connection.channel.close();
        } catch (IOException e) {
            // The kernel closes it even if it reports an error.
        }
        store.counters.add(Counter.curr_connections, -1);
        if (readers != null) {
            readers.leave(connection.session);
        }
    }

    private void release() throws IOException {
        for (SelectionKey key : selector.keys()) {
            key.channel().close();
        }
        selector.close();
        listener.close();
        if (readers != null) {
            readers.close();
        }
        if (arena != null) {
            arena.close();
        }
    }

    /** Ends all conversations. The context stays open. */
    @Override
    public void close() throws IOException {
        if (isClosing) {
            return;
        }
        isClosing = true;
        selector.wakeup();
        try {
            thread.join();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        release();
    }

    /**
     * Serves until it is killed: {@code [--port N] [--listen ADDRESS] [--memory MIB] [--item-size BYTES] [--no-rdma]}.
     *
     * @param args options
     * @throws Exception what hinders it
     */
    public static void main(String[] args) throws Exception {
        int port = 11211;
        InetAddress listen = InetAddress.getLoopbackAddress();
        StoreOptions options = StoreOptions.forRecords(64L << 20, StoreOptions.DEFAULT.itemBytes());
        boolean withRdma = true;
        try {
            for (int i = 0; i < args.length; i++) {
                switch (args[i]) {
                    case "--port" -> port = Integer.parseInt(args[++i]);
                    case "--listen" -> listen = InetAddress.getByName(args[++i]);
                    case "--memory" ->
                        options = StoreOptions.forRecords(Long.parseLong(args[++i]) << 20, options.itemBytes());
                    case "--item-size" ->
                        options = new StoreOptions(options.bytes(), Integer.parseInt(args[++i]), options.restMillis());
                    case "--no-rdma" -> withRdma = false;
                    default -> throw new IllegalArgumentException("there is no option " + args[i]);
                }
            }
        } catch (IllegalArgumentException | ArrayIndexOutOfBoundsException e) {
            System.err.println("error: " + e.getMessage());
            System.err.println("options: [--port N] [--listen ADDRESS] [--memory MIB] [--item-size BYTES] [--no-rdma]");
            System.exit(2);
        }
        InetSocketAddress address = new InetSocketAddress(listen, port);
        MemcachedServer server = withRdma ? open(address, options, Context.open()) : open(address, options);
        System.out.println("memcached serves at " + server.address());
        server.thread.join();
    }
}
