package highwire.benchmarks.echo;

import highwire.rpc.RpcClient;
import highwire.rpc.RpcClient.RpcCall;
import highwire.rpc.RpcMode;
import highwire.rpc.RpcOptions;
import highwire.rpc.RpcServer;
import highwire.verbs.Context;
import highwire.verbs.Engines;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;

/** jvRPC: the message is a call's arguments and its answer. */
record RpcEcho(Waits waits) implements Echo {
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final int HEADER_ROOM = 64;

    @Override
    public Server serve(int bytes) throws IOException {
        RpcMode mode = waits == Waits.POLLING ? RpcMode.POLLING : RpcMode.BLOCKING;
        RpcOptions options = new RpcOptions(mode, 2, (bytes + HEADER_ROOM + 63) / 64 * 64);
        Context context = Context.open(Engines.find(), PATIENCE);
        RpcServer server = RpcServer.open(context, new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), RpcEcho::answer, options);
        return new Server() {
            @Override
            public String introduction() {
                return Integer.toString(server.address().getPort());
            }

            @Override
            public void close() throws IOException {
                server.close();
                context.close();
            }
        };
    }

    private static int answer(int method, MemorySegment arguments, int length, MemorySegment answer) {
        MemorySegment.copy(arguments, 0, answer, 0, length);
        return length;
    }

    @Override
    public Client connect(String server, int bytes) throws IOException {
        Context context = Context.open(Engines.find(), PATIENCE);
        InetSocketAddress address = new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(server));
        RpcClient client = RpcClient.connect(context, address, PATIENCE);
        return new Turns() {
            @Override
            int exchange(int number) throws IOException, InterruptedException {
                RpcCall call = client.begin(1);
                call.arguments().set(ValueLayout.JAVA_INT, 0, number);
                int length = call.send(bytes).await(PATIENCE);
                return length == bytes ? call.answer(length).get(ValueLayout.JAVA_INT, 0) : -length;
            }

            @Override
            public void close() throws IOException {
                client.close();
                context.close();
            }
        };
    }
}
