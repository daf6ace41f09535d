package highwire.zookeeper;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.ZKClientConfig;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/** A stock server in this JVM, with Highwire's factory unless told otherwise. */
final class Server implements AutoCloseable {
    static final String QUEUE_PAIRS = "org.apache.zookeeper.ClientCnxnSocketHighwire";
    static final String TCP = "org.apache.zookeeper.ClientCnxnSocketNIO";
    static final String FACTORY = "org.apache.zookeeper.server.HighwireServerCnxnFactory";
    static final String STOCK_FACTORY = "org.apache.zookeeper.server.NIOServerCnxnFactory";
    /** Far longer than any step takes, even on a busy machine. */
    static final int PATIENCE_SECONDS = 60;
    private static final int TICK_MILLIS = 500;
    /**
     * The session timeout of a client that loses nothing by a long one: longer than a busy machine keeps a
     * thread waiting.
     */
    static final int SESSION_MILLIS = 60_000;

    private final Path data;
    private final String factoryName;
    private final Maker maker;
    private ServerCnxnFactory factory;
    private int port;

    /** Makes ZooKeeper's part. */
    interface Maker {
        ZooKeeperServer make(File data, int tickMillis) throws IOException;
    }

    private Server(Path data, String factoryName, Maker maker) throws Exception {
        this.data = data;
        this.factoryName = factoryName;
        this.maker = maker;
        start();
    }

    static Server start(String factoryName) throws Exception {
        return start(factoryName, (data, tickMillis) -> new ZooKeeperServer(data, data, tickMillis));
    }

    static Server start(String factoryName, Maker maker) throws Exception {
        return new Server(Files.createTempDirectory("zookeeper-"), factoryName, maker);
    }

    void start() throws Exception {
        System.setProperty("zookeeper.serverCnxnFactory", factoryName);
        ZooKeeperServer server = maker.make(data.toFile(), TICK_MILLIS);
        server.setMaxSessionTimeout(SESSION_MILLIS);
        factory = ServerCnxnFactory.createFactory(new InetSocketAddress("127.0.0.1", port), 0);
        factory.startup(server);
        port = factory.getLocalPort();
    }

    void stop() {
        factory.shutdown();
    }

    int port() {
        return port;
    }

    int connections() {
        return factory.getNumAliveConnections();
    }

    String address() {
        return "127.0.0.1:" + port;
    }

    ZooKeeper client(String socket) throws IOException, InterruptedException {
        return client(address(), socket, SESSION_MILLIS);
    }

    /** A client that has a session. */
    static ZooKeeper client(String addresses, String socket, int sessionMillis) throws IOException, InterruptedException {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper client = unconnected(addresses, socket, sessionMillis, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        assertTrue(connected.await(PATIENCE_SECONDS, TimeUnit.SECONDS), "a session at " + addresses + " through " + socket);
        return client;
    }

    static ZooKeeper unconnected(String addresses, String socket, int sessionMillis, Watcher watcher) throws IOException {
        return new ZooKeeper(addresses, sessionMillis, watcher, config(socket));
    }

    static ZKClientConfig config(String socket) {
        ZKClientConfig config = new ZKClientConfig();
        config.setProperty(ZKClientConfig.ZOOKEEPER_CLIENT_CNXN_SOCKET, socket);
        return config;
    }

    static void until(String what, BooleanSupplier isSo) throws InterruptedException {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (!isSo.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, what + " did not come to pass");
            Thread.sleep(5);
        }
    }

    @Override
    public void close() throws IOException {
        stop();
        try (Stream<Path> left = Files.walk(data)) {
            left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }
}
