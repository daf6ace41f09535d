package highwire.benchmarks.echo;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.buffer.ByteBuf;
import io.netty.channel.Channel;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.epoll.Epoll;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollIoHandler;
import io.netty.channel.epoll.EpollServerDomainSocketChannel;
import io.netty.channel.epoll.EpollServerSocketChannel;
import io.netty.channel.epoll.EpollSocketChannel;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.channel.unix.DomainSocketAddress;
import io.netty.channel.uring.IoUring;
import io.netty.channel.uring.IoUringIoHandler;
import io.netty.channel.uring.IoUringServerSocketChannel;
import io.netty.channel.uring.IoUringSocketChannel;
import io.netty.handler.codec.FixedLengthFrameDecoder;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import org.HdrHistogram.Histogram;

/** Netty with one event loop at either end. The next message is sent by the event loop that has seen the last one come back. */
record NettyEcho(Kind kind) implements Echo {
    /** What the event loops stand on. */
    enum Kind {
        NIO(NioIoHandler::newFactory, NioServerSocketChannel.class, NioSocketChannel.class),
        EPOLL(EpollIoHandler::newFactory, EpollServerSocketChannel.class, EpollSocketChannel.class),
        EPOLL_UNIX(EpollIoHandler::newFactory, EpollServerDomainSocketChannel.class, EpollDomainSocketChannel.class),
        IO_URING(IoUringIoHandler::newFactory, IoUringServerSocketChannel.class, IoUringSocketChannel.class);

        private final Supplier<IoHandlerFactory> handler;
        private final Class<? extends ServerChannel> server;
        private final Class<? extends Channel> client;

        Kind(Supplier<IoHandlerFactory> handler, Class<? extends ServerChannel> server, Class<? extends Channel> client) {
            this.handler = handler;
            this.server = server;
            this.client = client;
        }

        EventLoopGroup loop() {
            return new MultiThreadIoEventLoopGroup(1, handler.get());
        }
    }

    /** A pipeline of whole messages and what is done with them. */
    private static final class Pipeline extends ChannelInitializer<Channel> {
        private final int bytes;
        private final Supplier<ChannelInboundHandlerAdapter> last;

        Pipeline(int bytes, Supplier<ChannelInboundHandlerAdapter> last) {
            this.bytes = bytes;
            this.last = last;
        }

        @Override
        protected void initChannel(Channel channel) {
            channel.pipeline().addLast(new FixedLengthFrameDecoder(bytes), last.get());
        }
    }

    private static final class Answering extends ChannelInboundHandlerAdapter {
        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            context.writeAndFlush(message, context.voidPromise());
        }
    }

    /** Of the event loop's thread. */
    private static final class Asking extends ChannelInboundHandlerAdapter {
        private final int bytes;
        private int number;
        private int left;
        private long start;
        private Histogram times;
        private CompletableFuture<Void> end;

        Asking(int bytes) {
            this.bytes = bytes;
        }

        void begin(Channel channel, int count, Histogram into, CompletableFuture<Void> future) {
            left = count;
            times = into;
            end = future;
            send(channel);
        }

        private void send(Channel channel) {
            ByteBuf message = channel.alloc().directBuffer(bytes);
            message.setInt(0, ++number).writerIndex(bytes);
            start = System.nanoTime();
            channel.writeAndFlush(message, channel.voidPromise());
        }

        @Override
        public void channelRead(ChannelHandlerContext context, Object message) {
            times.recordValue(System.nanoTime() - start);
            int answer = ((ByteBuf) message).getInt(0);
            ((ByteBuf) message).release();
            if (answer != number) {
                end.completeExceptionally(new IOException("message " + number + " came back as " + answer));
            } else if (--left == 0) {
                end.complete(null);
            } else {
                send(context.channel());
            }
        }

        @Override
        public void channelInactive(ChannelHandlerContext context) {
            if (end != null) {
                end.completeExceptionally(new IOException("the other end was closed"));
            }
        }

        @Override
        public void exceptionCaught(ChannelHandlerContext context, Throwable cause) {
            if (end != null) {
                end.completeExceptionally(cause);
            }
        }
    }

    @Override
    public String obstacle() {
        return switch (kind) {
            case NIO -> null;
            case EPOLL, EPOLL_UNIX -> Epoll.isAvailable() ? null : reason(Epoll.unavailabilityCause());
            case IO_URING -> IoUring.isAvailable() ? null : reason(IoUring.unavailabilityCause());
        };
    }

    private static String reason(Throwable cause) {
        Throwable root = cause;
        while (root.getCause() != null) {
            root = root.getCause();
        }
        return String.valueOf(root.getMessage());
    }

    @Override
    public Server serve(int bytes) throws Exception {
        EventLoopGroup loop = kind.loop();
        Path path = Files.createTempFile("echo-", ".socket");
        Files.delete(path);
        SocketAddress any = kind == Kind.EPOLL_UNIX ? new DomainSocketAddress(path.toFile()) : new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
        Channel channel = new ServerBootstrap().group(loop).channel(kind.server).childHandler(new Pipeline(bytes, Answering::new)).bind(any).sync().channel();
        return new Server() {
            @Override
            public String introduction() {
                return channel.localAddress() instanceof InetSocketAddress internet ? Integer.toString(internet.getPort()) : path.toString();
            }

            @Override
            public void close() throws IOException {
                loop.shutdownGracefully(0, 5, java.util.concurrent.TimeUnit.SECONDS).syncUninterruptibly();
                Files.deleteIfExists(path);
            }
        };
    }

    @Override
    public Client connect(String server, int bytes) throws Exception {
        EventLoopGroup loop = kind.loop();
        SocketAddress address = kind == Kind.EPOLL_UNIX
                ? new DomainSocketAddress(server)
                : new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(server));
        Asking asking = new Asking(bytes);
        Channel channel = new Bootstrap().group(loop).channel(kind.client).handler(new Pipeline(bytes, () -> asking)).connect(address).sync().channel();
        return new Client() {
            @Override
            public void run(int count, Histogram times) throws Exception {
                CompletableFuture<Void> end = new CompletableFuture<>();
                loop.execute(() -> asking.begin(channel, count, times, end));
                end.get();
            }

            @Override
            public void close() {
                loop.shutdownGracefully(0, 5, java.util.concurrent.TimeUnit.SECONDS).syncUninterruptibly();
            }
        };
    }
}
