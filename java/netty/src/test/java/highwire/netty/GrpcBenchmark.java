package highwire.netty;

import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.Server;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.StreamObserver;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.local.LocalAddress;
import io.netty.channel.local.LocalChannel;
import io.netty.channel.local.LocalIoHandler;
import io.netty.channel.local.LocalServerChannel;
import io.netty.channel.unix.DomainSocketAddress;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.EnumMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicReference;

/**
 * gRPC over Highwire, beside epoll over TCP and over Unix sockets: two JVMs, each with one event loop, rounds in turns, medians of the rounds. Netty's in-memory channels within
 * one JVM show what no transport can beat.
 *
 * <pre>{@code java -Dhighwire.program=PATH/highwire -cp "target/classes:target/test-classes:target/lib/*" highwire.netty.GrpcBenchmark [ROUNDS] [MILLISECONDS] }</pre>
 */
public final class GrpcBenchmark {
    private static final int IN_FLIGHT = 16;

    private enum Way {
        HIGHWIRE, HIGHWIRE_UDP, TCP, UNIX,
        /** Netty's in-memory channels, both ends in this JVM: what is left if bytes cost nothing. */
        MEMORY;

        Grpc.Transport transport(String door) {
            return switch (this) {
                case HIGHWIRE, HIGHWIRE_UDP -> new Grpc.Transport(
                        new MultiThreadIoEventLoopGroup(1, HighwireIoHandler.newFactory(Path.of(door))), HighwireServerSocketChannel.class, HighwireSocketChannel.class);
                case TCP -> new Grpc.Transport(
                        new MultiThreadIoEventLoopGroup(1, EpollIoHandler.newFactory()), EpollServerSocketChannel.class, EpollSocketChannel.class);
                case UNIX -> new Grpc.Transport(
                        new MultiThreadIoEventLoopGroup(1, EpollIoHandler.newFactory()), EpollServerDomainSocketChannel.class, EpollDomainSocketChannel.class);
                case MEMORY -> new Grpc.Transport(
                        new MultiThreadIoEventLoopGroup(1, LocalIoHandler.newFactory()), LocalServerChannel.class, LocalChannel.class);
            };
        }
    }

    /** What a round measures. */
    private enum Measure {
        UNARY_MEDIAN_US, UNARY_PER_SECOND, STREAM_MB_PER_SECOND
    }

    private GrpcBenchmark() {}

    /**
     * Runs it.
     *
     * @param arguments rounds and milliseconds of each; of a server, its way and its engine's door
     * @throws Exception it cannot
     */
    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 0 && arguments[0].equals("serve")) {
            serve(Way.valueOf(arguments[1]), arguments[2]);
            return;
        }
        int rounds = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 5;
        long nanos = 1_000_000L * (arguments.length > 1 ? Long.parseLong(arguments[1]) : 1000);
        try (Engine engine = Engine.start(); Engine other = engine.startBeside()) {
            Map<Way, ManagedChannel> channels = new EnumMap<>(Way.class);
            List<Process> servers = new ArrayList<>();
            for (Way way : Way.values()) {
                if (way == Way.MEMORY) {
                    LocalAddress at = new LocalAddress(GrpcBenchmark.class);
                    way.transport(null).serve(at);
                    channels.put(way, way.transport(null).connect(at));
                    continue;
                }
                servers.add(new ProcessBuilder(
                        ProcessHandle.current().info().command().orElseThrow(), "-cp", System.getProperty("java.class.path"),
                        "--enable-native-access=ALL-UNNAMED", GrpcBenchmark.class.getName(), "serve", way.name(), engine.door.toString())
                        .redirectError(ProcessBuilder.Redirect.INHERIT).start());
                String address = new BufferedReader(new InputStreamReader(servers.getLast().getInputStream(), StandardCharsets.UTF_8)).readLine();
                SocketAddress at = way == Way.UNIX ? new DomainSocketAddress(address) : new InetSocketAddress("127.0.0.1", Integer.parseInt(address));
                channels.put(way, way.transport((way == Way.HIGHWIRE_UDP ? other : engine).door.toString()).connect(at));
            }
            Map<Way, Map<Measure, List<Double>>> results = new EnumMap<>(Way.class);
            // The first round warms up.
            for (int round = 0; round <= rounds; round++) {
                for (Way way : Way.values()) {
                    ManagedChannel channel = channels.get(way);
                    Map<Measure, Double> found = Map.of(
                            Measure.UNARY_MEDIAN_US, new Calls(channel, 1, nanos).run().median(),
                            Measure.UNARY_PER_SECOND, new Calls(channel, IN_FLIGHT, nanos).run().rate(),
                            Measure.STREAM_MB_PER_SECOND, stream(channel, nanos));
                    if (round > 0) {
                        found.forEach((measure, value) -> results.computeIfAbsent(way, key -> new EnumMap<>(Measure.class))
                                .computeIfAbsent(measure, key -> new ArrayList<>()).add(value));
                    }
                }
            }
            System.out.println("| way | unary 32 B, median (µs) | unary 32 B, 16 in flight (1/s) | stream of 64 KiB, echoed (MB/s) |\n|---|---:|---:|---:|");
            results.forEach((way, of) -> System.out.printf("| %s | %.1f | %.0f | %.0f |%n", way, middle(of.get(Measure.UNARY_MEDIAN_US)),
                    middle(of.get(Measure.UNARY_PER_SECOND)), middle(of.get(Measure.STREAM_MB_PER_SECOND))));
            channels.values().forEach(ManagedChannel::shutdownNow);
            servers.forEach(Process::destroyForcibly);
        }
        System.exit(0);
    }

    private static void serve(Way way, String door) throws Exception {
        SocketAddress address = new InetSocketAddress("127.0.0.1", 0);
        if (way == Way.UNIX) {
            address = new DomainSocketAddress(Files.createTempDirectory("grpc").resolve("socket").toFile());
        }
        Server server = way.transport(door).serve(address);
        SocketAddress at = server.getListenSockets().getFirst();
        System.out.println(at instanceof InetSocketAddress tcp ? Integer.toString(tcp.getPort()) : ((DomainSocketAddress) at).path());
        server.awaitTermination();
    }

    private static double middle(List<Double> values) {
        double[] sorted = values.stream().mapToDouble(Double::doubleValue).sorted().toArray();
        return sorted[sorted.length / 2];
    }

    /** Unary calls, each begun where the one before it ends. */
    private static final class Calls {
        private static final int SAMPLES_MAX = 1 << 20;

        private final ManagedChannel channel;
        private final int inFlight;
        private final long nanos;
        private final long[] samples = new long[SAMPLES_MAX];
        private final CountDownLatch over;
        private int done;
        private long began;
        private long ended;

        Calls(ManagedChannel channel, int inFlight, long nanos) {
            this.channel = channel;
            this.inFlight = inFlight;
            this.nanos = nanos;
            this.over = new CountDownLatch(inFlight);
        }

        Calls run() throws InterruptedException {
            began = System.nanoTime();
            for (int i = 0; i < inFlight; i++) {
                call(new byte[32]);
            }
            over.await();
            return this;
        }

        private void call(byte[] request) {
            long start = System.nanoTime();
            ClientCalls.asyncUnaryCall(channel.newCall(Grpc.ECHO, CallOptions.DEFAULT), request, new StreamObserver<byte[]>() {
                @Override
                public void onNext(byte[] value) {}

                @Override
                public void onError(Throwable cause) {
                    cause.printStackTrace();
                    over.countDown();
                }

                @Override
                public void onCompleted() {
                    next(start, request);
                }
            });
        }

        /** In the event loop, so that one thread is at it. */
        private void next(long start, byte[] request) {
            ended = System.nanoTime();
            samples[done++ % SAMPLES_MAX] = ended - start;
            if (ended - began > nanos) {
                over.countDown();
            } else {
                call(request);
            }
        }

        double median() {
            long[] sorted = Arrays.copyOf(samples, Math.min(done, SAMPLES_MAX));
            Arrays.sort(sorted);
            return sorted[sorted.length / 2] / 1000.0;
        }

        double rate() {
            return done * 1e9 / (ended - began);
        }
    }

    /** Messages of 64 KiB there and back, some in flight; megabytes a second each way. */
    private static double stream(ManagedChannel channel, long nanos) throws InterruptedException {
        byte[] message = new byte[65_536];
        CountDownLatch over = new CountDownLatch(1);
        long began = System.nanoTime();
        long[] echoed = new long[1];
        AtomicReference<StreamObserver<byte[]>> requests = new AtomicReference<>();
        requests.set(ClientCalls.asyncBidiStreamingCall(channel.newCall(Grpc.STREAM, CallOptions.DEFAULT), new StreamObserver<>() {
            private boolean isEnding;

            @Override
            public void onNext(byte[] value) {
                echoed[0] += value.length;
                if (System.nanoTime() - began < nanos) {
                    requests.get().onNext(message);
                } else if (!isEnding) {
                    isEnding = true;
                    requests.get().onCompleted();
                }
            }

            @Override
            public void onError(Throwable cause) {
                cause.printStackTrace();
                over.countDown();
            }

            @Override
            public void onCompleted() {
                over.countDown();
            }
        }));
        for (int i = 0; i < IN_FLIGHT; i++) {
            requests.get().onNext(message);
        }
        over.await();
        return echoed[0] * 1e3 / (System.nanoTime() - began);
    }
}
