package highwire.rpc;

import highwire.rpc.RpcClient.RpcCall;
import highwire.verbs.Context;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.nio.file.Path;
import java.time.Duration;
import java.util.EnumMap;
import java.util.Map;

/**
 * Connects to servers of this JVM and disconnects again, and counts what that leaves behind, here and in the engine. Most connections make a call; some fail, and some have
 * a context of their own. {@code ConnectSoak DOOR PROCESS CONNECTS} ends with status 1 if anything has grown.
 */
final class ConnectSoak {
    private static final Duration PATIENCE = Duration.ofMinutes(10);
    /** Before the first count: classes are loaded, threads started, pools filled. */
    private static final int WARM_UP = 200;
    private static final int OWN_CONTEXT_EVERY = 16;
    private static final int FAILURE_EVERY = 32;

    private final Path door;
    private final long engine;
    private final PrintStream out;

    private ConnectSoak(Path door, long engine, PrintStream out) {
        this.door = door;
        this.engine = engine;
        this.out = out;
    }

    /** @param args the door, the engine's process, and how many connects. @throws Exception something has failed */
    public static void main(String[] args) throws Exception {
        boolean isFlat = run(Path.of(args[0]), Long.parseLong(args[1]), Long.parseLong(args[2]), System.out);
        System.exit(isFlat ? 0 : 1);
    }

    /** Whether nothing has grown. */
    static boolean run(Path door, long engine, long connects, PrintStream out) throws Exception {
        return new ConnectSoak(door, engine, out).run(connects);
    }

    private boolean run(long connects) throws Exception {
        EnumMap<RpcMode, RpcServer> servers = new EnumMap<>(RpcMode.class);
        try (Context there = Context.open(door, PATIENCE); Context here = Context.open(door, PATIENCE);
                ServerSocket rude = new ServerSocket(0, 50, InetAddress.getLoopbackAddress())) {
            Thread.ofPlatform().daemon().start(() -> hangUp(rude));
            try {
                for (RpcMode mode : RpcMode.values()) {
                    servers.put(mode, RpcServer.open(there, new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), ConnectSoak::next,
                            new RpcOptions(mode, 2, 256)));
                }
                for (long i = 0; i < WARM_UP; i++) {
                    connect(here, servers, rude, i);
                }
                Map<String, Long> before = settled(servers);
                for (long i = 0; i < connects; i++) {
                    connect(here, servers, rude, i);
                    if (connects >= 100_000 && i % (connects / 100) == 0) {
                        out.println(i + " connects: " + Counts.of(door, engine));
                    }
                }
                Map<String, Long> after = settled(servers);
                return report(connects, before, after);
            } finally {
                for (RpcServer server : servers.values()) {
                    server.close();
                }
            }
        }
    }

    private static int next(int method, MemorySegment arguments, int length, MemorySegment answer) {
        answer.set(ValueLayout.JAVA_LONG, 0, arguments.get(ValueLayout.JAVA_LONG, 0) + 1);
        return Long.BYTES;
    }

    private static void hangUp(ServerSocket rude) {
        while (!rude.isClosed()) {
            try (java.net.Socket visitor = rude.accept()) {
                // The offer of a server that is gone before it has heard the client.
                visitor.getOutputStream().write("jvrpc 1 BLOCKING 2 256\n".getBytes());
            } catch (IOException e) {
                // The visitor has gone, or the soak ends.
            }
        }
    }

    private void connect(Context here, Map<RpcMode, RpcServer> servers, ServerSocket rude, long number) throws Exception {
        if (number % FAILURE_EVERY == 0) {
            try {
                RpcClient.connect(here, (InetSocketAddress) rude.getLocalSocketAddress(), PATIENCE).close();
                throw new AssertionError("nobody was there");
            } catch (RpcException e) {
                // As it must be.
            }
        }
        RpcServer server = servers.get(RpcMode.values()[(int) (number % 2)]);
        if (number % OWN_CONTEXT_EVERY == 0) {
            try (Context own = Context.open(door, PATIENCE)) {
                call(own, server, number);
            }
        } else {
            call(here, server, number);
        }
    }

    private static void call(Context context, RpcServer server, long number) throws Exception {
        try (RpcClient client = RpcClient.connect(context, server.address(), PATIENCE)) {
            RpcCall call = client.begin(1);
            call.arguments().set(ValueLayout.JAVA_LONG, 0, number);
            int length = call.send(Long.BYTES).await(PATIENCE);
            if (call.answer(length).get(ValueLayout.JAVA_LONG, 0) != number + 1) {
                throw new AssertionError("a wrong answer");
            }
        }
    }

    /** The counts once the servers have noticed that their clients have gone. */
    private Map<String, Long> settled(Map<RpcMode, RpcServer> servers) throws IOException {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (servers.values().stream().anyMatch(server -> server.sessions() + server.greetings() > 0)) {
            if (System.nanoTime() - deadline > 0) {
                throw new AssertionError("the servers keep sessions whose clients have gone");
            }
            Thread.yield();
        }
        return Counts.lowest(door, engine);
    }

    private boolean report(long connects, Map<String, Long> before, Map<String, Long> after) {
        StringBuilder report = new StringBuilder();
        boolean isFlat = Counts.isFlat(before, after, report);
        out.print("after " + connects + " connects:\n" + report);
        return isFlat;
    }
}
