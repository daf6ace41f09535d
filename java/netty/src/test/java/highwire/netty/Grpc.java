package highwire.netty;

import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Server;
import io.grpc.ServerServiceDefinition;
import io.grpc.netty.NegotiationType;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.ServerCalls;
import io.grpc.stub.StreamObserver;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.Channel;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.SocketAddress;
import java.util.concurrent.TimeUnit;

/** A gRPC service of bytes without generated code: an echo, and a stream each way. Which transport carries it is the builders' configuration. */
final class Grpc {
    private static final MethodDescriptor.Marshaller<byte[]> BYTES = new MethodDescriptor.Marshaller<>() {
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
    };
    static final MethodDescriptor<byte[], byte[]> ECHO = method("echo", MethodType.UNARY);
    static final MethodDescriptor<byte[], byte[]> STREAM = method("stream", MethodType.BIDI_STREAMING);

    private Grpc() {}

    private static MethodDescriptor<byte[], byte[]> method(String name, MethodType type) {
        return MethodDescriptor.newBuilder(BYTES, BYTES).setType(type).setFullMethodName("bytes/" + name).build();
    }

    private static ServerServiceDefinition service() {
        return ServerServiceDefinition.builder("bytes")
                .addMethod(ECHO, ServerCalls.asyncUnaryCall((byte[] request, StreamObserver<byte[]> answer) -> {
                    answer.onNext(request);
                    answer.onCompleted();
                }))
                .addMethod(STREAM, ServerCalls.asyncBidiStreamingCall(Grpc::echoes))
                .build();
    }

    private static StreamObserver<byte[]> echoes(StreamObserver<byte[]> answers) {
        return new StreamObserver<>() {
            @Override
            public void onNext(byte[] value) {
                answers.onNext(value);
            }

            @Override
            public void onError(Throwable cause) {
                // The call is over.
            }

            @Override
            public void onCompleted() {
                answers.onCompleted();
            }
        };
    }

    /** How a server or a client is configured. */
    record Transport(EventLoopGroup group, Class<? extends ServerChannel> server, Class<? extends Channel> client) {
        static Transport highwire(Engine engine) {
            return new Transport(
                    new MultiThreadIoEventLoopGroup(1, HighwireIoHandler.newFactory(engine.door)), HighwireServerSocketChannel.class, HighwireSocketChannel.class);
        }

        Server serve(SocketAddress address) throws IOException {
            return NettyServerBuilder.forAddress(address).channelType(server).bossEventLoopGroup(group).workerEventLoopGroup(group).directExecutor()
                    .addService(service()).build().start();
        }

        ManagedChannel connect(SocketAddress address) {
            return NettyChannelBuilder.forAddress(address).channelType(client).eventLoopGroup(group).negotiationType(NegotiationType.PLAINTEXT).directExecutor()
                    .flowControlWindow(1 << 20).build();
        }

        void close() {
            group.shutdownGracefully(0, 1, TimeUnit.SECONDS).syncUninterruptibly();
        }
    }

    static byte[] echo(ManagedChannel channel, byte[] request) {
        return ClientCalls.blockingUnaryCall(channel, ECHO, CallOptions.DEFAULT, request);
    }
}
