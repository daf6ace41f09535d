package org.apache.zookeeper.server;

import highwire.zookeeper.Hub;
import highwire.zookeeper.Settings;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.channels.SelectionKey;
import java.nio.channels.SocketChannel;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Takes clients over queue pairs and clients over TCP on one port: {@code zookeeper.serverCnxnFactory=org.apache.zookeeper.server.HighwireServerCnxnFactory}.
 *
 * <p>Every client comes over TCP. A client that begins with Highwire's greeting gets a queue pair, and its
 * TCP connection stays as a sign of life; ZooKeeper's own factory serves all others.
 */
public final class HighwireServerCnxnFactory extends NIOServerCnxnFactory {
    private static final int WAITING_MAX = 1 << 16;

    private Hub hub;
    /** Whatever may have to wait for the engine: making links and closing them, in the order in which it is asked for. */
    private ThreadPoolExecutor engineWork;
    private boolean isShutDown;

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

    /** Has a thread of its own do it; where the server is shut down, this one. */
    void engineWork(Runnable work) {
        ThreadPoolExecutor executor;
        synchronized (this) {
            if (engineWork == null && !isShutDown) {
                engineWork = new ThreadPoolExecutor(1, 1, 1, TimeUnit.SECONDS, new LinkedBlockingQueue<>(WAITING_MAX),
                        Thread.ofPlatform().daemon().name("highwire-zookeeper-engine").factory(), (late, over) -> late.run());
                engineWork.allowCoreThreadTimeOut(true);
            }
            executor = engineWork;
        }
        if (executor == null || executor.isShutdown()) {
            work.run();
        } else {
            executor.execute(work);
        }
    }

    /** What was begun ends before the hub does. */
    private void endEngineWork() {
        ThreadPoolExecutor executor;
        synchronized (this) {
            isShutDown = true;
            executor = engineWork;
            engineWork = null;
        }
        if (executor != null) {
            executor.shutdown();
            try {
                executor.awaitTermination(Long.MAX_VALUE, TimeUnit.NANOSECONDS);
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
    }

    @Override
    public void shutdown() {
        super.shutdown();
        endEngineWork();
        Hub ending;
        synchronized (this) {
            ending = hub;
            hub = null;
        }
        // Without the monitor: the hub's thread, which this waits for, may ask for engine work.
        if (ending != null) {
            ending.close();
        }
    }
}
