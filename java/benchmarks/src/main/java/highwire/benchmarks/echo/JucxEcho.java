package highwire.benchmarks.echo;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.openucx.jucx.UcxCallback;
import org.openucx.jucx.ucp.UcpContext;
import org.openucx.jucx.ucp.UcpEndpoint;
import org.openucx.jucx.ucp.UcpEndpointParams;
import org.openucx.jucx.ucp.UcpParams;
import org.openucx.jucx.ucp.UcpRequest;
import org.openucx.jucx.ucp.UcpWorker;
import org.openucx.jucx.ucp.UcpWorkerParams;

/**
 * JUCX, the Java binding of UCX: tagged messages. It calls the system's {@code libucp.so.0} by JNI.
 *
 * @param transports what UCX may use, as {@code UCX_TLS} names it
 */
record JucxEcho(String transports) implements Echo {
    /** Of the library; the jar has code for x86-64 that wants this one from the system. */
    private static final String PACKAGE = "libucx0";

    /** A worker with one endpoint, and a message's room. */
    private final class End implements AutoCloseable {
        private final UcpContext context = new UcpContext(new UcpParams().requestTagFeature().setConfig("TLS", transports));
        private final UcpWorker worker = context.newWorker(new UcpWorkerParams());
        private final UcxCallback check = new UcxCallback() {
            @Override
            public void onError(int status, String reason) {
                throw new IllegalStateException(reason);
            }
        };
        final ByteBuffer buffer;
        private UcpEndpoint peer;
        private volatile boolean isStopped;

        End(int bytes) {
            buffer = ByteBuffer.allocateDirect(bytes);
        }

        String introduction() {
            ByteBuffer address = worker.getAddress();
            byte[] bytes = new byte[address.remaining()];
            address.get(bytes);
            return HexFormat.of().formatHex(bytes);
        }

        void connect(String introduction) {
            byte[] bytes = HexFormat.of().parseHex(introduction);
            ByteBuffer address = ByteBuffer.allocateDirect(bytes.length).put(bytes).flip();
            peer = worker.newEndpoint(new UcpEndpointParams().setUcpAddress(address));
        }

        /** False once the end is stopped. */
        boolean receive() throws Exception {
            return complete(worker.recvTaggedNonBlocking(buffer.clear(), check));
        }

        boolean send() throws Exception {
            return complete(peer.sendTaggedNonBlocking(buffer.clear(), check));
        }

        private boolean complete(UcpRequest request) throws Exception {
            while (!request.isCompleted()) {
                if (isStopped) {
                    worker.cancelRequest(request);
                    return false;
                }
                worker.progress();
            }
            return true;
        }

        /** Ends the wait of the thread that waits here. */
        void stop() {
            isStopped = true;
        }

        @Override
        public void close() {
            if (peer != null) {
                peer.close();
            }
            worker.close();
            context.close();
        }
    }

    @Override
    public String obstacle() {
        if (!"".equals(System.getenv("UCX_ERROR_SIGNALS"))) {
            return "JUCX cannot have this JVM's signals: set UCX_ERROR_SIGNALS to nothing";
        }
        try (UcpContext context = new UcpContext(new UcpParams().requestTagFeature().setConfig("TLS", transports))) {
            return null;
        } catch (LinkageError | RuntimeException e) {
            return "JUCX cannot use the system's UCX (apt-get install " + PACKAGE + "): " + e.getMessage();
        }
    }

    @Override
    public Server serve(int bytes) {
        End end = new End(bytes);
        return new Server() {
            private Thread thread;

            @Override
            public String introduction() {
                return end.introduction();
            }

            @Override
            public void meet(String client) {
                end.connect(client);
                thread = Thread.ofPlatform().name("echo").daemon().start(() -> answer(end));
            }

            @Override
            public void close() throws InterruptedException {
                end.stop();
                if (thread != null) {
                    thread.join();
                }
                end.close();
            }
        };
    }

    private static void answer(End end) {
        try {
            while (end.receive() && end.send()) {
                // The next one.
            }
        } catch (Exception e) {
            // The client has gone, and reports it itself if that is a failure.
        }
    }

    @Override
    public Client connect(String server, int bytes) {
        End end = new End(bytes);
        end.connect(server);
        String introduction = end.introduction();
        return new Turns() {
            @Override
            public String introduction() {
                return introduction;
            }

            @Override
            int exchange(int number) throws Exception {
                end.buffer.putInt(0, number);
                if (!end.send() || !end.receive()) {
                    throw new IOException("the end is stopped");
                }
                return end.buffer.getInt(0);
            }

            @Override
            public void close() {
                end.close();
            }
        };
    }
}
