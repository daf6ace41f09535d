package highwire.disni;

import static org.junit.jupiter.api.Assertions.assertNotNull;

import com.ibm.disni.RdmaActiveEndpoint;
import com.ibm.disni.RdmaActiveEndpointGroup;
import com.ibm.disni.RdmaServerEndpoint;
import com.ibm.disni.util.MemBuf;
import com.ibm.disni.util.MemoryAllocation;
import com.ibm.disni.verbs.IbvMr;
import com.ibm.disni.verbs.IbvWC;
import com.ibm.disni.verbs.IbvWC.IbvWcStatus;
import com.ibm.disni.verbs.RdmaCmEvent;
import com.ibm.disni.verbs.RdmaCmId;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Two active endpoints of this JVM, connected. */
final class Pair implements AutoCloseable {
    static final int BYTES = 4096;

    final RdmaActiveEndpointGroup<End> group;
    final RdmaServerEndpoint<End> server;
    final End client;
    final End served;

    Pair() throws Exception {
        this(false);
    }

    Pair(boolean isPolling) throws Exception {
        this(1000, isPolling);
    }

    /** With a thread that looks so many milliseconds after it has gone to sleep, whatever happens; less than 0: not before it is woken. */
    Pair(int timeout, boolean isPolling) throws Exception {
        group = new RdmaActiveEndpointGroup<>(timeout, isPolling, 16, 4, 64);
        group.init((id, isServerSide) -> new End(group, id, isServerSide));
        server = group.createServerEndpoint();
        server.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 4);
        CompletableFuture<End> accepted = CompletableFuture.supplyAsync(() -> {
            try {
                return server.accept();
            } catch (IOException e) {
                throw new IllegalStateException(e);
            }
        });
        client = group.createEndpoint();
        client.connect(server.getSrcAddr(), 10_000);
        served = accepted.get(60, TimeUnit.SECONDS);
    }

    @Override
    public void close() throws IOException {
        try {
            group.close();
        } catch (InterruptedException e) {
            throw new IOException("interrupted", e);
        }
        client.memory.free();
        served.memory.free();
    }

    /** An end that keeps its completions and events. */
    static final class End extends RdmaActiveEndpoint {
        final MemBuf memory = MemoryAllocation.getInstance().allocate(BYTES);
        final ByteBuffer buffer = memory.getBuffer();
        final LinkedBlockingQueue<IbvWC> completions = new LinkedBlockingQueue<>();
        final LinkedBlockingQueue<RdmaCmEvent> events = new LinkedBlockingQueue<>();
        /** The exception that it throws at each completion, if any. */
        volatile RuntimeException fault;
        /** What it does first at each completion. */
        volatile Runnable whenTold = () -> {};
        IbvMr region;

        End(RdmaActiveEndpointGroup<End> group, RdmaCmId id, boolean isServerSide) throws IOException {
            super(group, id, isServerSide);
            access |= IbvMr.IBV_ACCESS_REMOTE_ATOMIC;
        }

        @Override
        protected synchronized void init() throws IOException {
            super.init();
            region = registerMemory(buffer).execute().free().getMr();
        }

        @Override
        public void dispatchCqEvent(IbvWC completion) {
            RuntimeException thrown = fault;
            whenTold.run();
            completions.add(completion);
            if (thrown != null) {
                throw thrown;
            }
        }

        @Override
        public synchronized void dispatchCmEvent(RdmaCmEvent event) throws IOException {
            super.dispatchCmEvent(event);
            events.add(event);
        }

        IbvWC next() throws InterruptedException {
            IbvWC completion = completions.poll(60, TimeUnit.SECONDS);
            assertNotNull(completion, "a completion");
            return completion;
        }

        IbvWcStatus status() throws InterruptedException {
            return IbvWcStatus.valueOf(next().getStatus());
        }
    }
}
