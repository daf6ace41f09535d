package highwire.netty.suite;

import highwire.netty.HighwireIoHandler;
import highwire.netty.HighwireServerSocketChannel;
import highwire.netty.HighwireSocketChannel;
import io.netty.bootstrap.Bootstrap;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.IoHandle;
import io.netty.channel.IoHandler;
import io.netty.channel.IoHandlerContext;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.IoRegistration;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.testsuite.transport.TestsuitePermutation.BootstrapComboFactory;
import io.netty.testsuite.transport.TestsuitePermutation.BootstrapFactory;
import io.netty.util.concurrent.DefaultThreadFactory;
import java.util.List;
import java.util.concurrent.atomic.AtomicLong;

/**
 * The channels with which Netty's tests run: ours with ours, ours with Netty's, Netty's with ours; or Netty's alone ({@code suite.transport=nio}).
 *
 * <p>Some tests leave out event loops with a {@link NioIoHandler}. With {@code suite.transport=unnamed-nio} Netty's own channels are not recognised, and show what those tests
 * would say of them.
 */
final class Transports {
    private static final String TRANSPORT = System.getProperty("suite.transport", "highwire");
    private static final boolean IS_STOCK = TRANSPORT.endsWith("nio");
    private static final EventLoopGroup NIO = new MultiThreadIoEventLoopGroup(
            2, new DefaultThreadFactory("suite-nio", true), TRANSPORT.equals("unnamed-nio") ? Unnamed.factory() : NioIoHandler.newFactory());
    private static final EventLoopGroup HIGHWIRE = new MultiThreadIoEventLoopGroup(2, new DefaultThreadFactory("suite-highwire", true), HighwireIoHandler.newFactory());
    private static final AtomicLong LINKED = new AtomicLong();

    /** Counts the channels that went over a queue pair. */
    public static final class CountedChannel extends HighwireSocketChannel {
        /** Made by a bootstrap. */
        public CountedChannel() {}

        @Override
        protected void doClose() throws Exception {
            if (isOverQueuePair()) {
                LINKED.incrementAndGet();
            }
            super.doClose();
        }
    }

    /** NIO's handler under another name. */
    private record Unnamed(IoHandler of) implements IoHandler {
        static IoHandlerFactory factory() {
            IoHandlerFactory nio = NioIoHandler.newFactory();
            return executor -> new Unnamed(nio.newHandler(executor));
        }

        @Override
        public void initialize() {
            of.initialize();
        }

        @Override
        public int run(IoHandlerContext context) {
            return of.run(context);
        }

        @Override
        public void prepareToDestroy() {
            of.prepareToDestroy();
        }

        @Override
        public void destroy() {
            of.destroy();
        }

        @Override
        public IoRegistration register(IoHandle handle) throws Exception {
            return of.register(handle);
        }

        @Override
        public void wakeup() {
            of.wakeup();
        }

        @Override
        public boolean isCompatible(Class<? extends IoHandle> type) {
            return of.isCompatible(type);
        }
    }

    private record Combo(BootstrapFactory<ServerBootstrap> server, BootstrapFactory<Bootstrap> client) implements BootstrapComboFactory<ServerBootstrap, Bootstrap> {
        @Override
        public ServerBootstrap newServerInstance() {
            return server.newInstance();
        }

        @Override
        public Bootstrap newClientInstance() {
            return client.newInstance();
        }
    }

    private Transports() {}

    static long linked() {
        return LINKED.get();
    }

    private static ServerBootstrap server(boolean isStock) {
        ServerBootstrap bootstrap = new ServerBootstrap();
        return isStock
                ? bootstrap.group(NIO).channel(NioServerSocketChannel.class)
                : bootstrap.group(HIGHWIRE).channel(HighwireServerSocketChannel.class);
    }

    private static Bootstrap client(boolean isStock) {
        Class<? extends Channel> type = isStock ? NioSocketChannel.class : CountedChannel.class;
        return new Bootstrap().group(isStock ? NIO : HIGHWIRE).channel(type);
    }

    static List<BootstrapFactory<ServerBootstrap>> servers() {
        return List.of(() -> server(IS_STOCK));
    }

    static List<BootstrapFactory<Bootstrap>> clients() {
        return List.of(() -> client(IS_STOCK));
    }

    static List<BootstrapComboFactory<ServerBootstrap, Bootstrap>> combos() {
        Combo stock = new Combo(() -> server(true), () -> client(true));
        return IS_STOCK
                ? List.of(stock)
                : List.of(
                        new Combo(() -> server(false), () -> client(false)),
                        new Combo(() -> server(false), () -> client(true)),
                        new Combo(() -> server(true), () -> client(false)));
    }
}
