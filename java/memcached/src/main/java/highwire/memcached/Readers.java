package highwire.memcached;

import highwire.memcached.Counters.Counter;
import highwire.rpc.RpcMode;
import highwire.rpc.RpcOptions;
import highwire.rpc.RpcServer;
import highwire.verbs.Access;
import highwire.verbs.CompletionQueue;
import highwire.verbs.ConnectOptions;
import highwire.verbs.Context;
import highwire.verbs.Endpoint;
import highwire.verbs.MemoryRegion;
import highwire.verbs.ProtectionDomain;
import highwire.verbs.QueuePair;
import highwire.verbs.QueuePairConfig;
import highwire.verbs.RdmaArena;
import highwire.verbs.Service;
import highwire.verbs.VerbsException;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;

/**
 * The store's memory as peers read it, a queue pair for each of them, and the service by which they change it.
 *
 * <p>The engine's answer can take long, so a thread of its own asks, and never the thread of all TCP connections. The server's
 * thread calls {@link #admit} and {@link #leave}.
 */
final class Readers implements AutoCloseable {
    static final RpcOptions CALLS = new RpcOptions(RpcMode.BLOCKING, 4, 16 << 10);
    /** Clients that wait for the engine at one time; a further one is refused. */
    static final int WAITING_MAX = 64;

    private final ProtectionDomain pd;
    private final RdmaArena arena;
    private final MemoryRegion region;
    private final CompletionQueue cq;
    private final Map<Session, Admission> admissions = new HashMap<>();
    private final AtomicInteger waiting = new AtomicInteger();
    private final ExecutorService asking = Executors.newSingleThreadExecutor(
            Thread.ofPlatform().daemon().name("highwire-memcached-readers").factory());
    private RpcServer calls;
    private Store store;

    /** A client's queue pair, or its wish for one. */
    private static final class Admission {
        /** Set and used by the thread that asks the engine. */
        QueuePair queuePair;
        /** The client may ask again. */
        volatile boolean isRefused;
        volatile boolean hasLeft;
    }

    Readers(Context context, long bytes) throws VerbsException {
        pd = context.protectionDomain();
        arena = context.arena(bytes);
        region = pd.register(arena.segment(), Access.REMOTE_READ);
        cq = context.completionQueue(64);
    }

    MemorySegment memory() {
        return region.segment();
    }

    void serve(Context context, Store served, InetSocketAddress address) throws IOException {
        store = served;
        calls = RpcServer.open(context, address, new StoreService(served), CALLS);
    }

    /**
     * Connects a queue pair to the one that introduces itself.
     *
     * @param later takes the line to answer with, in another thread
     * @return the line if it is known at once, else null
     */
    String admit(Session session, String introduction, Consumer<String> later) {
        Endpoint peer;
        try {
            peer = Endpoint.parse(introduction);
        } catch (IllegalArgumentException e) {
            return "CLIENT_ERROR `rdma` wants an endpoint";
        }
        Admission known = admissions.get(session);
        if (known != null && !known.isRefused) {
            return "CLIENT_ERROR this connection has its queue pair";
        }
        if (waiting.incrementAndGet() > WAITING_MAX) {
            waiting.decrementAndGet();
            return "SERVER_ERROR too many clients wait for the engine";
        }
        Admission admission = new Admission();
        admissions.put(session, admission);
        asking.execute(() -> {
            String line = "SERVER_ERROR the queue pair could not be made";
            try {
                line = admission.hasLeft ? line : connect(admission, peer);
            } catch (VerbsException e) {
                line = "SERVER_ERROR " + e.getMessage();
            } finally {
                admission.isRefused = admission.queuePair == null;
                waiting.decrementAndGet();
                later.accept(line);
            }
        });
        return null;
    }

    private String connect(Admission admission, Endpoint peer) throws VerbsException {
        QueuePair qp = pd.queuePair(QueuePairConfig.of(Service.RC, cq).withDepth(2, 2));
        try {
            qp.prepare(Access.REMOTE_READ);
            qp.connect(peer, ConnectOptions.DEFAULT);
            admission.queuePair = qp;
        } finally {
            if (admission.queuePair == null) {
                qp.close();
            }
        }
        store.counters.add(Counter.rdma_readers, 1);
        return "RDMA 2 " + qp.endpoint() + " " + region.address() + " " + Integer.toUnsignedString(region.rkey()) + " "
                + store.options.bucketBits() + " " + store.options.bytes() + " " + store.options.itemBytes() + " " + store.now() + " "
                + calls.address().getPort();
    }

    /** The session has ended, and its queue pair with it. */
    void leave(Session session) {
        Admission admission = admissions.remove(session);
        if (admission != null) {
            admission.hasLeft = true;
            // Behind the admission, if that has not ended.
            asking.execute(() -> close(admission));
        }
    }

    private void close(Admission admission) {
        if (admission.queuePair == null) {
            return;
        }
        try {
            admission.queuePair.close();
        } catch (VerbsException e) {
            // The reader stopped in the middle of a READ. The queue pair goes with the context.
        }
        store.counters.add(Counter.rdma_readers, -1);
    }

    /** The server's thread has ended. */
    @Override
    public void close() throws IOException {
        if (calls != null) {
            calls.close();
        }
        for (Session session : admissions.keySet().toArray(Session[]::new)) {
            leave(session);
        }
        asking.shutdown();
        try {
            // Each request to the engine has a time-out, and behind the first that has passed the others fail at once.
            asking.awaitTermination(Long.MAX_VALUE, TimeUnit.NANOSECONDS);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        cq.close();
        region.close();
        arena.close();
        pd.close();
    }
}
