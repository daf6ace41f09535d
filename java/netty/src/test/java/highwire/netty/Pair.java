package highwire.netty;

import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelFactory;
import io.netty.channel.ChannelInboundHandlerAdapter;
import io.netty.channel.ChannelHandlerContext;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.ServerChannel;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Path;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** Two ends of a connection, in event loops of their own, each with what it has heard. */
final class Pair implements AutoCloseable {
    final EventLoopGroup serverGroup;
    final EventLoopGroup clientGroup;
    private final Class<? extends ServerChannel> serverType;
    ChannelFactory<? extends Channel> clients;
    final BlockingQueue<End> accepted = new LinkedBlockingQueue<>();
    Channel listener;
    boolean isAutoRead = true;
    boolean isHalfClosed;

    /** Null in place of a door is plain TCP by Netty's own channels. */
    Pair(Path serverDoor, Path clientDoor) {
        this(serverDoor, clientDoor, group(serverDoor));
    }

    /** With a server whose event loop waits in its own way. */
    Pair(Path serverDoor, Path clientDoor, EventLoopGroup serverGroup) {
        this.serverGroup = serverGroup;
        clientGroup = group(clientDoor);
        serverType = serverDoor == null ? NioServerSocketChannel.class : HighwireServerSocketChannel.class;
        clients = clientDoor == null ? NioSocketChannel::new : HighwireSocketChannel::new;
    }

    private static EventLoopGroup group(Path door) {
        return new MultiThreadIoEventLoopGroup(1, door == null ? NioIoHandler.newFactory() : HighwireIoHandler.newFactory(door));
    }

    Pair autoRead(boolean isOn) {
        isAutoRead = isOn;
        return this;
    }

    Pair halfClosed() {
        isHalfClosed = true;
        return this;
    }

    Pair listen() throws InterruptedException {
        return listenAt(0);
    }

    Pair listenAt(int port) throws InterruptedException {
        listener = new ServerBootstrap()
                .group(serverGroup)
                .channel(serverType)
                .childOption(ChannelOption.AUTO_READ, isAutoRead)
                .childOption(ChannelOption.ALLOW_HALF_CLOSURE, isHalfClosed)
                .childHandler(new ChannelInitializer<Channel>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        End end = new End(channel);
                        channel.pipeline().addLast(end, new ChannelInboundHandlerAdapter() {
                            @Override
                            public void channelActive(ChannelHandlerContext context) {
                                accepted.add(end);
                                context.fireChannelActive();
                            }
                        });
                    }
                })
                .bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), port))
                .sync()
                .channel();
        return this;
    }

    Bootstrap client() {
        return new Bootstrap().group(clientGroup).channelFactory(clients).option(ChannelOption.AUTO_READ, isAutoRead).option(ChannelOption.ALLOW_HALF_CLOSURE, isHalfClosed)
                .handler(new ChannelInitializer<Channel>() {
                    @Override
                    protected void initChannel(Channel channel) {
                        channel.pipeline().addLast(new End(channel));
                    }
                });
    }

    End connect() throws InterruptedException {
        return client().connect(listener.localAddress()).sync().channel().pipeline().get(End.class);
    }

    /** The server's end of the next connection. */
    End accept() throws InterruptedException {
        End end = accepted.poll(Engine.PATIENCE_SECONDS, TimeUnit.SECONDS);
        if (end == null) {
            throw new AssertionError("no connection was accepted");
        }
        return end;
    }

    @Override
    public void close() {
        serverGroup.shutdownGracefully(0, 1, TimeUnit.SECONDS).syncUninterruptibly();
        clientGroup.shutdownGracefully(0, 1, TimeUnit.SECONDS).syncUninterruptibly();
    }
}
