package highwire.netty;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.Server;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.StreamObserver;
import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.socket.ServerSocketChannel;
import io.netty.channel.socket.SocketChannel;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.List;
import java.util.Random;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.TimeUnit;
import java.util.Queue;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;
import reactor.core.publisher.Mono;
import reactor.netty.DisposableServer;
import reactor.netty.http.client.HttpClient;
import reactor.netty.http.server.HttpServer;
import reactor.netty.resources.LoopResources;

/** Unmodified gRPC and an unmodified HTTP server, by configuration. */
class ProgramsTest {
    private static final InetSocketAddress ANY_PORT = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
    private static Engine engine;

    @BeforeAll
    static void start() {
        engine = Engine.start();
    }

    @AfterAll
    static void stop() throws Exception {
        engine.close();
    }

    /** Remembers the channels that it was asked for. */
    public static final class SeenChannel extends HighwireSocketChannel {
        static final Queue<SeenChannel> SEEN = new ConcurrentLinkedQueue<>();

        /** Made by a bootstrap. */
        public SeenChannel() {
            SEEN.add(this);
        }
    }

    private static void checkSeen() {
        assertTrue(!SeenChannel.SEEN.isEmpty() && SeenChannel.SEEN.stream().allMatch(HighwireSocketChannel::isOverQueuePair), "the client has taken TCP");
        SeenChannel.SEEN.clear();
    }

    @Test
    void grpc_calls_and_streams() throws Exception {
        Grpc.Transport serving = Grpc.Transport.highwire(engine);
        Grpc.Transport own = Grpc.Transport.highwire(engine);
        Grpc.Transport calling = new Grpc.Transport(own.group(), own.server(), SeenChannel.class);
        Server server = serving.serve(ANY_PORT);
        ManagedChannel channel = calling.connect(server.getListenSockets().getFirst());
        try {
            Random random = new Random(1);
            for (int i = 0; i < 200; i++) {
                byte[] request = new byte[random.nextInt(200_000) >> random.nextInt(16)];
                random.nextBytes(request);
                assertArrayEquals(request, Grpc.echo(channel, request));
            }
            checkSeen();
            List<byte[]> answers = new CopyOnWriteArrayList<>();
            CompletableFuture<Void> over = new CompletableFuture<>();
            StreamObserver<byte[]> requests = ClientCalls.asyncBidiStreamingCall(channel.newCall(Grpc.STREAM, CallOptions.DEFAULT), new StreamObserver<>() {
                @Override
                public void onNext(byte[] value) {
                    answers.add(value);
                }

                @Override
                public void onError(Throwable cause) {
                    over.completeExceptionally(cause);
                }

                @Override
                public void onCompleted() {
                    over.complete(null);
                }
            });
            for (int i = 0; i < 100; i++) {
                byte[] some = new byte[65_536];
                some[7] = (byte) i;
                requests.onNext(some);
            }
            requests.onCompleted();
            over.get(Engine.PATIENCE_SECONDS, TimeUnit.SECONDS);
            assertEquals(100, answers.size());
            for (int i = 0; i < 100; i++) {
                assertEquals((byte) i, answers.get(i)[7]);
            }
        } finally {
            channel.shutdownNow();
            server.shutdownNow().awaitTermination();
            calling.close();
            serving.close();
        }
    }

    /** How Reactor Netty is told which channels to use. */
    private record Loops(EventLoopGroup group) implements LoopResources {
        @Override
        public EventLoopGroup onServer(boolean isNative) {
            return group;
        }

        @Override
        @SuppressWarnings("unchecked")
        public <C extends Channel> C onChannel(Class<C> type, EventLoopGroup of) {
            return (C) (type == ServerSocketChannel.class ? new HighwireServerSocketChannel() : new SeenChannel());
        }

        @Override
        @SuppressWarnings("unchecked")
        public <C extends Channel> Class<? extends C> onChannelClass(Class<C> type, EventLoopGroup of) {
            return (Class<? extends C>) (type == ServerSocketChannel.class ? HighwireServerSocketChannel.class : SocketChannel.class == type ? SeenChannel.class : type);
        }
    }

    @Test
    void an_http_server_serves_its_own_client_and_any_other() throws Exception {
        EventLoopGroup group = new MultiThreadIoEventLoopGroup(2, HighwireIoHandler.newFactory(engine.door));
        LoopResources loops = new Loops(group);
        String body = "x".repeat(300_000);
        DisposableServer server = HttpServer.create().host("127.0.0.1").port(0).runOn(loops)
                .route(routes -> routes.get("/big", (request, response) -> response.sendString(Mono.just(body)))
                        .post("/echo", (request, response) -> response.send(request.receive().retain())))
                .bindNow();
        try {
            String at = "http://127.0.0.1:" + server.port();
            HttpClient client = HttpClient.newConnection().runOn(loops);
            assertEquals(body, client.get().uri(at + "/big").responseContent().aggregate().asString().block());
            checkSeen();
            // A client that knows nothing of Highwire.
            try (java.net.http.HttpClient plain = java.net.http.HttpClient.newHttpClient()) {
                HttpRequest post = HttpRequest.newBuilder(URI.create(at + "/echo")).POST(HttpRequest.BodyPublishers.ofString(body)).build();
                assertEquals(body, plain.send(post, HttpResponse.BodyHandlers.ofString()).body());
            }
        } finally {
            server.disposeNow();
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).syncUninterruptibly();
        }
    }
}
