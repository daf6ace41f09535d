package highwire.netty;

import io.netty.channel.EventLoop;
import io.netty.channel.socket.nio.NioServerSocketChannel;
import io.netty.util.internal.logging.InternalLogger;
import io.netty.util.internal.logging.InternalLoggerFactory;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.channels.SelectionKey;
import java.nio.channels.SocketChannel;
import java.util.List;

/**
 * Listens at a TCP port, for clients over queue pairs and for clients over TCP. It takes the place of {@code EpollServerSocketChannel}; its event loop has a
 * {@link HighwireIoHandler}.
 *
 * <p>It answers questions of clients at the UDP port of the same number. If another program has that, all clients come over TCP.
 */
public class HighwireServerSocketChannel extends NioServerSocketChannel {
    private static final InternalLogger LOGGER = InternalLoggerFactory.getInstance(HighwireServerSocketChannel.class);

    private ProbeServer probes;

    /** For a bootstrap, which makes it by its class. */
    public HighwireServerSocketChannel() {}

    @Override
    protected boolean isCompatible(EventLoop loop) {
        return super.isCompatible(loop) && HighwireIoHandler.of(loop) != null;
    }

    @Override
    protected void doBind(SocketAddress address) throws Exception {
        super.doBind(address);
        InetSocketAddress local = (InetSocketAddress) javaChannel().getLocalAddress();
        try {
            probes = new ProbeServer(eventLoop(), local, this::accepts);
        } catch (IOException e) {
            LOGGER.info("all clients of {} come over TCP: its UDP port is not free ({})", local, e.getMessage());
        }
    }

    /** Whether the selector looks for connections: not while the program has suspended the channel. */
    private boolean accepts() {
        return isRegistered() && registration().attachment() instanceof SelectionKey key && key.isValid()
                && (key.interestOps() & SelectionKey.OP_ACCEPT) != 0;
    }

    @Override
    protected void doClose() throws Exception {
        if (probes != null) {
            probes.close();
        }
        super.doClose();
    }

    @Override
    protected int doReadMessages(List<Object> accepted) throws Exception {
        SocketChannel socket = javaChannel().accept();
        if (socket == null) {
            return 0;
        }
        try {
            byte[] nonce = probes == null ? null : probes.expected((InetSocketAddress) socket.getRemoteAddress());
            accepted.add(new HighwireSocketChannel(this, socket, nonce));
            return 1;
        } catch (Throwable e) {
            LOGGER.warn("an accepted connection cannot be served", e);
            socket.close();
            return 0;
        }
    }
}
