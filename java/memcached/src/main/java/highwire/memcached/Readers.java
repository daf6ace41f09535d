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

/** The store's memory as peers read it, a queue pair for each of them, and the service by which they change it. */
final class Readers implements AutoCloseable {
    static final RpcOptions CALLS = new RpcOptions(RpcMode.BLOCKING, 4, 16 << 10);

    private final ProtectionDomain pd;
    private final RdmaArena arena;
    private final MemoryRegion region;
    private final CompletionQueue cq;
    private final Map<Session, QueuePair> queuePairs = new HashMap<>();
    private RpcServer calls;
    private Store store;

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

    /** Connects a queue pair to the one that introduces itself; returns the line to answer with. */
    String admit(Session session, String introduction) throws VerbsException {
        Endpoint peer;
        try {
            peer = Endpoint.parse(introduction);
        } catch (IllegalArgumentException e) {
            return "CLIENT_ERROR `rdma` wants an endpoint";
        }
        if (queuePairs.containsKey(session)) {
            return "CLIENT_ERROR this connection has its queue pair";
        }
        QueuePair qp = pd.queuePair(QueuePairConfig.of(Service.RC, cq).withDepth(2, 2));
        try {
            qp.prepare(Access.REMOTE_READ);
            qp.connect(peer, ConnectOptions.DEFAULT);
        } catch (VerbsException e) {
            qp.close();
            throw e;
        }
        queuePairs.put(session, qp);
        store.counters.add(Counter.rdma_readers, 1);
        return "RDMA 2 " + qp.endpoint() + " " + region.address() + " " + Integer.toUnsignedString(region.rkey()) + " "
                + store.options.bucketBits() + " " + store.options.bytes() + " " + store.options.itemBytes() + " " + store.now() + " "
                + calls.address().getPort();
    }

    /** The session has ended, and its queue pair with it. */
    void leave(Session session) {
        QueuePair qp = queuePairs.remove(session);
        if (qp != null) {
            store.counters.add(Counter.rdma_readers, -1);
            try {
                qp.close();
            } catch (VerbsException e) {
                // The reader stopped in the middle of a READ. The queue pair goes with the context.
            }
        }
    }

    @Override
    public void close() throws IOException {
        if (calls != null) {
            calls.close();
        }
        for (Session session : queuePairs.keySet().toArray(Session[]::new)) {
            leave(session);
        }
        cq.close();
        region.close();
        arena.close();
        pd.close();
    }
}
