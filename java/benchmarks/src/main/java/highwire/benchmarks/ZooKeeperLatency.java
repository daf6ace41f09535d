package highwire.benchmarks;

import java.io.BufferedReader;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.HdrHistogram.Histogram;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.client.ZKClientConfig;
import org.apache.zookeeper.server.ServerCnxnFactory;
import org.apache.zookeeper.server.ZooKeeperServer;

/**
 * {@code exists()} of one stock client against one stock server in another JVM, over queue pairs and over TCP in turns of a hundred calls. Wants an engine: {@code
 * -Dhighwire.door}, or the only one. {@code -Dhighwire.count} calls of each kind are counted after a tenth as many. The
 * server has the same properties {@code highwire.zookeeper.*}.
 */
public final class ZooKeeperLatency {
    private static final String QUEUE_PAIRS = "org.apache.zookeeper.ClientCnxnSocketHighwire";
    private static final String TCP = "org.apache.zookeeper.ClientCnxnSocketNIO";
    private static final int COUNT = Integer.getInteger("highwire.count", 20_000);
    private static final int TURN = 100;

    private ZooKeeperLatency() {}

    private static void serve() throws Exception {
        System.setProperty("zookeeper.serverCnxnFactory", "org.apache.zookeeper.server.HighwireServerCnxnFactory");
        System.setProperty("zookeeper.admin.enableServer", "false");
        Path data = Files.createTempDirectory("zookeeper-");
        ZooKeeperServer server = new ZooKeeperServer(data.toFile(), data.toFile(), 2000);
        ServerCnxnFactory factory = ServerCnxnFactory.createFactory(new InetSocketAddress("127.0.0.1", 0), 0);
        factory.startup(server);
        System.out.println(factory.getLocalPort());
        while (System.in.read() >= 0) {
            // Until the other JVM has finished, or is gone.
        }
        factory.shutdown();
        try (Stream<Path> left = Files.walk(data)) {
            left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
        System.exit(0);
    }

    private static ZooKeeper connect(int port, String socket) throws IOException, InterruptedException {
        ZKClientConfig config = new ZKClientConfig();
        config.setProperty(ZKClientConfig.ZOOKEEPER_CLIENT_CNXN_SOCKET, socket);
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper client = new ZooKeeper("127.0.0.1:" + port, 30_000, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        }, config);
        if (!connected.await(30, TimeUnit.SECONDS)) {
            throw new IOException("no session through " + socket);
        }
        return client;
    }

    private static void turn(ZooKeeper client, Histogram histogram) throws Exception {
        for (int i = 0; i < TURN; i++) {
            long start = System.nanoTime();
            client.exists("/measured", false);
            histogram.recordValue(System.nanoTime() - start);
        }
    }

    private static void show(String what, Histogram histogram) {
        System.out.printf("%-28s min %6.1f  p50 %6.1f  p90 %6.1f  p99 %7.1f  p99.9 %8.1f µs  (%d)%n", what, histogram.getMinValue() / 1e3,
                histogram.getValueAtPercentile(50) / 1e3, histogram.getValueAtPercentile(90) / 1e3,
                histogram.getValueAtPercentile(99) / 1e3, histogram.getValueAtPercentile(99.9) / 1e3, histogram.getTotalCount());
    }

    /**
     * Measures.
     *
     * @param args {@code serve} in the other JVM
     * @throws Exception something does not work here
     */
    public static void main(String[] args) throws Exception {
        if (args.length > 0) {
            serve();
            return;
        }
        List<String> command = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-cp", System.getProperty("java.class.path"), "-Dhighwire.door=" + System.getProperty("highwire.door", "")));
        System.getProperties().stringPropertyNames().stream().filter(name -> name.startsWith("highwire.zookeeper."))
                .forEach(name -> command.add("-D" + name + "=" + System.getProperty(name)));
        command.addAll(List.of(ZooKeeperLatency.class.getName(), "serve"));
        Process server = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader said = server.inputReader();
        String line = said.readLine();
        while (line != null && !line.matches("\\d+")) {
            line = said.readLine();
        }
        int port = Integer.parseInt(line);
        String load = Files.readString(Path.of("/proc/loadavg")).strip();
        System.out.println(Runtime.getRuntime().availableProcessors() + " processors, load " + load + ", Java " + Runtime.version());
        ZooKeeper[] clients = {connect(port, QUEUE_PAIRS), connect(port, TCP)};
        clients[0].create("/measured", new byte[32], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        Histogram[] counted = {new Histogram(3), new Histogram(3)};
        for (int done = -COUNT / 10; done < COUNT; done += TURN) {
            if (done == 0 || done < TURN && done > 0) {
                Arrays.stream(counted).forEach(Histogram::reset);
            }
            for (int i = 0; i < clients.length; i++) {
                turn(clients[i], counted[i]);
            }
        }
        show("exists(): queue pair", counted[0]);
        show("exists(): TCP", counted[1]);
        for (ZooKeeper client : clients) {
            client.close();
        }
        server.outputWriter().close();
        server.waitFor();
        System.exit(0);
    }
}
