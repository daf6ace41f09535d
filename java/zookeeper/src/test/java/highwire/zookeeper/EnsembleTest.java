package highwire.zookeeper;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.io.IOException;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.server.embedded.ExitHandler;
import org.apache.zookeeper.server.embedded.ZooKeeperServerEmbedded;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Three servers, among which a session moves. */
@Timeout(value = 300, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class EnsembleTest {
    private static int[] freePorts(int count) throws IOException {
        List<ServerSocket> held = new ArrayList<>();
        int[] ports = new int[count];
        for (int i = 0; i < count; i++) {
            held.add(new ServerSocket(0, 1, InetAddress.getLoopbackAddress()));
            ports[i] = held.get(i).getLocalPort();
        }
        for (ServerSocket socket : held) {
            socket.close();
        }
        return ports;
    }

    @Test
    void aSessionMovesAmongServersAndOutlivesOneOfThem() throws Exception {
        System.setProperty("zookeeper.serverCnxnFactory", Server.FACTORY);
        int[] ports = freePorts(9);
        Path folder = Files.createTempDirectory("ensemble-");
        List<ZooKeeperServerEmbedded> servers = new ArrayList<>();
        try (Engine engine = Engine.start()) {
            for (int id = 1; id <= 3; id++) {
                servers.add(server(folder.resolve("server" + id), id, ports));
            }
            List<Thread> starting = new ArrayList<>();
            for (ZooKeeperServerEmbedded server : servers) {
                starting.add(Thread.ofPlatform().start(() -> {
                    try {
                        server.start(TimeUnit.SECONDS.toMillis(Server.PATIENCE_SECONDS));
                    } catch (Exception e) {
                        throw new IllegalStateException(e);
                    }
                }));
            }
            for (Thread thread : starting) {
                thread.join();
            }
            ZooKeeper client = Server.client("127.0.0.1:" + ports[0], Server.QUEUE_PAIRS, 30_000);
            client.create("/here", new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
            long session = client.getSessionId();
            client.updateServerList("127.0.0.1:" + ports[1] + ",127.0.0.1:" + ports[2]);
            assertNotNull(exists(client));
            for (int i = 1; i < 3; i++) {
                // The session is at either of the two servers: one of these is.
                client.updateServerList("127.0.0.1:" + ports[i]);
                assertNotNull(exists(client));
            }
            assertEquals(session, client.getSessionId());
            client.updateServerList("127.0.0.1:" + ports[0] + ",127.0.0.1:" + ports[2]);
            servers.get(2).close();
            assertNotNull(exists(client));
            assertEquals(session, client.getSessionId());
            ZooKeeper observer = Server.client("127.0.0.1:" + ports[1], Server.TCP, 30_000);
            assertNotNull(exists(observer));
            client.close();
            observer.sync("/here");
            assertNull(observer.exists("/here", false));
            observer.close();
        } finally {
            servers.forEach(ZooKeeperServerEmbedded::close);
            try (Stream<Path> left = Files.walk(folder)) {
                left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        }
    }

    /** Asks until there is a connection again. */
    private static Object exists(ZooKeeper client) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(2 * Server.PATIENCE_SECONDS);
        while (true) {
            try {
                return client.exists("/here", false);
            } catch (KeeperException.ConnectionLossException e) {
                if (System.nanoTime() > deadline) {
                    throw e;
                }
                Thread.sleep(20);
            }
        }
    }

    private static ZooKeeperServerEmbedded server(Path folder, int id, int[] ports) throws Exception {
        Files.createDirectories(folder.resolve("data"));
        Files.writeString(folder.resolve("data/myid"), Integer.toString(id));
        Properties settings = new Properties();
        settings.setProperty("dataDir", folder.resolve("data").toString());
        settings.setProperty("clientPort", Integer.toString(ports[id - 1]));
        settings.setProperty("clientPortAddress", "127.0.0.1");
        settings.setProperty("tickTime", "500");
        settings.setProperty("initLimit", "60");
        settings.setProperty("syncLimit", "30");
        settings.setProperty("maxSessionTimeout", "60000");
        settings.setProperty("admin.enableServer", "false");
        for (int other = 1; other <= 3; other++) {
            settings.setProperty("server." + other, "127.0.0.1:" + ports[3 + other - 1] + ":" + ports[6 + other - 1]);
        }
        return ZooKeeperServerEmbedded.builder().baseDir(folder).configuration(settings).exitHandler(ExitHandler.LOG_ONLY).build();
    }
}
