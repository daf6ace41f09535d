package highwire.benchmarks.echo;

import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.ServerServiceDefinition;
import io.grpc.netty.shaded.io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.shaded.io.grpc.netty.NettyServerBuilder;
import io.grpc.netty.shaded.io.netty.channel.EventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.Epoll;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollEventLoopGroup;
import io.grpc.netty.shaded.io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.grpc.netty.shaded.io.netty.channel.unix.DomainSocketAddress;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/** gRPC: unary calls of plain bytes, without a thread pool at either end. */
record GrpcEcho(boolean isUnix) implements Echo {
    private static final MethodDescriptor<byte[], byte[]> ECHO = MethodDescriptor.<byte[], byte[]>newBuilder()
            .setType(MethodType.UNARY).setFullMethodName("highwire.Echo/echo").setRequestMarshaller(new Bytes())
            .setResponseMarshaller(new Bytes()).build();

    private static final class Bytes implements MethodDescriptor.Marshaller<byte[]> {
        @Override
        public InputStream stream(byte[] value) {
            return new ByteArrayInputStream(value);
        }

        @Override
        public byte[] parse(InputStream stream) {
            try {
                return stream.readAllBytes();
            } catch (IOException e) {
                throw new UncheckedIOException(e);
            }
        }
    }

    private static void answer(byte[] message, StreamObserver<byte[]> to) {
        to.onNext(message);
        to.onCompleted();
    }

    @Override
    public String obstacle() {
        return !isUnix || Epoll.isAvailable() ? null : String.valueOf(Epoll.unavailabilityCause());
    }

    @Override
    public Server serve(int bytes) throws IOException {
        Path path = Files.createTempFile("echo-", ".socket");
        Files.delete(path);
        EventLoopGroup loop = isUnix ? new EpollEventLoopGroup(1) : null;
        NettyServerBuilder builder = isUnix
                ? NettyServerBuilder.forAddress(new DomainSocketAddress(path.toFile())).channelType(EpollServerDomainSocketChannel.class)
                        .bossEventLoopGroup(loop).workerEventLoopGroup(loop)
                : NettyServerBuilder.forAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
        io.grpc.Server server = builder.directExecutor().addService(ServerServiceDefinition.builder("highwire.Echo")
                .addMethod(ECHO, ServerCalls.asyncUnaryCall(GrpcEcho::answer)).build()).build().start();
        return new Server() {
            @Override
            public String introduction() {
                return isUnix ? path.toString() : Integer.toString(server.getPort());
            }

            @Override
            public void close() throws Exception {
                server.shutdownNow().awaitTermination(30, TimeUnit.SECONDS);
                end(loop);
                Files.deleteIfExists(path);
            }
        };
    }

    @Override
    public Client connect(String server, int bytes) {
        EventLoopGroup loop = isUnix ? new EpollEventLoopGroup(1) : null;
        NettyChannelBuilder builder = isUnix
                ? NettyChannelBuilder.forAddress(new DomainSocketAddress(server)).channelType(EpollDomainSocketChannel.class).eventLoopGroup(loop)
                : NettyChannelBuilder.forAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(server)));
        ManagedChannel channel = builder.usePlaintext().directExecutor().build();
        ByteBuffer message = ByteBuffer.allocate(bytes);
        return new Turns() {
            @Override
            int exchange(int number) {
                message.putInt(0, number);
                byte[] answer = ClientCalls.blockingUnaryCall(channel, ECHO, CallOptions.DEFAULT, message.array());
                return answer.length == bytes ? ByteBuffer.wrap(answer).getInt(0) : -answer.length;
            }

            @Override
            public void close() throws Exception {
                channel.shutdownNow().awaitTermination(30, TimeUnit.SECONDS);
                end(loop);
            }
        };
    }

    private static void end(EventLoopGroup loop) {
        if (loop != null) {
            loop.shutdownGracefully(0, 5, TimeUnit.SECONDS).syncUninterruptibly();
        }
    }
}
