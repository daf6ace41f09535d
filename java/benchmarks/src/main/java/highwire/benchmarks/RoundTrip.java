package highwire.benchmarks;

import highwire.rpc.RpcClient;
import highwire.rpc.RpcClient.RpcCall;
import highwire.rpc.RpcOptions;
import highwire.rpc.RpcServer;
import highwire.verbs.Access;
import highwire.verbs.Completion;
import highwire.verbs.CompletionQueue;
import highwire.verbs.ConnectOptions;
import highwire.verbs.Context;
import highwire.verbs.Endpoint;
import highwire.verbs.MemoryRegion;
import highwire.verbs.Opcode;
import highwire.verbs.PostSend;
import highwire.verbs.ProtectionDomain;
import highwire.verbs.QueuePair;
import highwire.verbs.QueuePairConfig;
import highwire.verbs.RdmaArena;
import highwire.verbs.SendRequest;
import highwire.verbs.Service;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.time.Duration;
import org.HdrHistogram.Histogram;

/**
 * Round trips between two JVMs, in turns: eight bytes by WRITE (both ends spin on their memory), a call of 32 bytes each way by jvRPC (polling), and eight
 * bytes over TCP on the loopback interface, blocking. With {@code -Dhighwire.rust=PROGRAM}, that program runs between the rounds and prints its own line.
 */
public final class RoundTrip {
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();
    private static final Duration PATIENCE = Duration.ofSeconds(60);
    private static final int WARMUP = 20_000;
    private static final int COUNT = Integer.getInteger("highwire.count", 200_000);

    private RoundTrip() {}

    /** One end of the WRITE round trip. */
    private static final class Ends {
        final QueuePair qp;
        final CompletionQueue cq;
        final MemoryRegion memory;
        final Completion completion = new Completion();
        PostSend write;

        Ends(Context context) throws IOException {
            ProtectionDomain pd = context.protectionDomain();
            cq = context.completionQueue(64);
            qp = pd.queuePair(QueuePairConfig.of(Service.RC, cq));
            RdmaArena arena = context.arena(4096);
            memory = pd.register(arena.segment(), Access.ALL);
        }

        String introduction() {
            return qp.endpoint() + " " + memory.address() + " " + Integer.toUnsignedString(memory.rkey());
        }

        void connect(String peer) throws IOException {
            String[] words = peer.split(" ");
            qp.connect(Endpoint.parse(words[0]), ConnectOptions.DEFAULT);
            write = qp.postSend(new SendRequest(Opcode.WRITE)
                    .remote(Long.parseLong(words[1]) + 64, Integer.parseUnsignedInt(words[2])).sge(memory, 0, 8));
        }

        void send(long value) {
            LONG.set(memory.segment(), 0L, value);
            write.exec();
        }

        /** The completion comes before the peer's answer where the thread has carried the WRITE out itself. */
        void reap() {
            while (!cq.poll(completion)) {
                Thread.onSpinWait();
            }
        }

        void await(long value) {
            while ((long) LONG.getAcquire(memory.segment(), 64L) != value) {
                Thread.onSpinWait();
            }
        }

        void pong(long value) {
            await(value);
            send(value);
            reap();
        }

        long ping(long value) {
            long start = System.nanoTime();
            send(value);
            reap();
            await(value);
            return System.nanoTime() - start;
        }
    }

    private static int serve(int method, MemorySegment arguments, int length, MemorySegment answer) {
        MemorySegment.copy(arguments, 0, answer, 0, length);
        return length;
    }

    /** The other JVM: answers whatever it is asked, until its input ends. */
    private static void peer(Path door) throws Exception {
        Context context = Context.open(door, PATIENCE);
        Ends ends = new Ends(context);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        PrintStream out = System.out;
        InetSocketAddress any = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
        ServerSocketChannel tcp = ServerSocketChannel.open().bind(any);
        out.println(ends.introduction() + " " + ((InetSocketAddress) tcp.getLocalAddress()).getPort());
        ends.connect(in.readLine());
        out.println("ready");
        long value = 1;
        RpcServer rpc = null;
        SocketChannel socket = tcp.accept();
        socket.socket().setTcpNoDelay(true);
        while (true) {
            String turn = in.readLine();
            if (turn == null) {
                System.exit(0);
            } else if (turn.equals("write")) {
                for (int i = 0; i < WARMUP + COUNT; i++) {
                    ends.pong(value++);
                }
            } else if (turn.equals("rpc")) {
                rpc = RpcServer.open(context, any, RoundTrip::serve, RpcOptions.DEFAULT);
                out.println(rpc.address().getPort());
            } else if (turn.equals("end")) {
                rpc.close();
                out.println("closed");
            } else {
                ByteBuffer buffer = ByteBuffer.allocateDirect(8);
                for (int i = 0; i < COUNT / 10; i++) {
                    exchange(socket, buffer, false);
                    exchange(socket, buffer, true);
                }
            }
        }
    }

    private static void exchange(SocketChannel socket, ByteBuffer buffer, boolean writes) throws IOException {
        buffer.clear();
        while (buffer.hasRemaining()) {
            if ((writes ? socket.write(buffer) : socket.read(buffer)) < 0) {
                throw new IOException("the peer has gone");
            }
        }
    }

    private static void show(String what, Histogram histogram) {
        System.out.printf("%-28s min %6d  p50 %6d  p99 %7d  p99.9 %8d ns  (%d)%n", what, histogram.getMinValue(),
                histogram.getValueAtPercentile(50), histogram.getValueAtPercentile(99), histogram.getValueAtPercentile(99.9),
                histogram.getTotalCount());
    }

    /**
     * Measures.
     *
     * @param args the door; {@code peer} before it in the other JVM
     * @throws Exception something does not work here
     */
    public static void main(String[] args) throws Exception {
        if (args.length == 2 && args[0].equals("peer")) {
            peer(Path.of(args[1]));
            return;
        }
        Path door = Path.of(args[0]);
        Context context = Context.open(door, PATIENCE);
        Ends ends = new Ends(context);
        Process peer = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-cp", System.getProperty("java.class.path"), RoundTrip.class.getName(), "peer", door.toString())
                .redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader in = peer.inputReader();
        BufferedWriter out = peer.outputWriter();
        String introduction = in.readLine();
        int port = Integer.parseInt(introduction.substring(introduction.lastIndexOf(' ') + 1));
        ends.connect(introduction);
        tell(out, ends.introduction());
        in.readLine();
        SocketChannel socket = SocketChannel.open(new InetSocketAddress(InetAddress.getLoopbackAddress(), port));
        socket.socket().setTcpNoDelay(true);
        String rust = System.getProperty("highwire.rust");
        long value = 1;
        for (int round = 0; round < Integer.getInteger("highwire.rounds", 3); round++) {
            tell(out, "write");
            value = write(ends, value);
            if (rust != null) {
                new ProcessBuilder(rust).inheritIO().start().waitFor();
            }
            tell(out, "rpc");
            call(context, Integer.parseInt(in.readLine()));
            tell(out, "end");
            in.readLine();
            tell(out, "tcp");
            tcp(socket);
        }
        out.close();
        peer.waitFor();
        System.exit(0);
    }

    private static void tell(BufferedWriter out, String line) throws IOException {
        out.write(line + "\n");
        out.flush();
    }

    private static long write(Ends ends, long value) {
        Histogram histogram = new Histogram(3);
        for (int i = 0; i < WARMUP + COUNT; i++) {
            long nanos = ends.ping(value++);
            if (i >= WARMUP) {
                histogram.recordValue(nanos);
            }
        }
        show("Java: WRITE, 8 bytes", histogram);
        return value;
    }

    private static long timed(RpcClient client) throws Exception {
        long start = System.nanoTime();
        RpcCall call = client.begin(1);
        call.arguments().set(ValueLayout.JAVA_LONG, 0, start);
        call.send(32).await(PATIENCE);
        return System.nanoTime() - start;
    }

    private static void call(Context context, int port) throws Exception {
        Histogram histogram = new Histogram(3);
        InetSocketAddress server = new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
        try (RpcClient client = RpcClient.connect(context, server, PATIENCE)) {
            for (int i = 0; i < WARMUP + COUNT; i++) {
                long nanos = timed(client);
                if (i >= WARMUP) {
                    histogram.recordValue(nanos);
                }
            }
        }
        show("Java: jvRPC, 32 bytes", histogram);
    }

    private static void tcp(SocketChannel socket) throws IOException {
        Histogram histogram = new Histogram(3);
        ByteBuffer buffer = ByteBuffer.allocateDirect(8);
        for (int i = 0; i < COUNT / 10; i++) {
            long start = System.nanoTime();
            exchange(socket, buffer, true);
            exchange(socket, buffer, false);
            histogram.recordValue(System.nanoTime() - start);
        }
        show("Java: TCP, blocking, 8 bytes", histogram);
    }
}
