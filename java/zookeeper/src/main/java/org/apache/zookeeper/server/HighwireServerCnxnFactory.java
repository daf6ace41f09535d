package org.apache.zookeeper.server;

import highwire.zookeeper.Hub;
import highwire.zookeeper.Settings;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.channels.SelectionKey;
import java.nio.channels.SocketChannel;

/**
 * Takes clients over queue pairs and clients over TCP on one port: {@code zookeeper.serverCnxnFactory=org.apache.zookeeper.server.HighwireServerCnxnFactory}.
 *
 * <p>Every client comes over TCP. A client that begins with Highwire's greeting gets a queue pair, and its
 * TCP connection stays as a sign of life; ZooKeeper's own factory serves all others.
 */
public final class HighwireServerCnxnFactory extends NIOServerCnxnFactory {
    private Hub hub;

    /** Made by ZooKeeper, by name. */
    public HighwireServerCnxnFactory() {}

    @Override
    public void configure(InetSocketAddress addr, int maxClientCnxns, int backlog, boolean isSecure) throws IOException {
        // The operator who starts the server learns of values out of range, not the first client.
        Settings.segment();
        Settings.depth();
        Settings.connections();
        Settings.spin();
        Settings.reads();
        super.configure(addr, maxClientCnxns, backlog, isSecure);
    }

    @Override
    protected NIOServerCnxn createConnection(SocketChannel socket, SelectionKey key, SelectorThread thread) throws IOException {
        return new HighwireServerCnxn(zkServer, socket, key, this, thread);
    }

    /** The hub of all links: of the present engine. Clients over TCP are served without an engine. */
    synchronized Hub hub() throws IOException {
        if (hub == null || !hub.isOpen()) {
            hub = new Hub();
        }
        return hub;
    }

    @Override
    public void shutdown() {
        super.shutdown();
        synchronized (this) {
            if (hub != null) {
                hub.close();
                hub = null;
            }
        }
    }
}
