package highwire.zookeeper;

import static org.apache.zookeeper.Transports.isOverQueuePairs;
import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertTrue;

import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Servers and clients that get queue pairs one after the other, and engines that come and go: sessions stay. */
@Timeout(value = 300, threadMode = Timeout.ThreadMode.SEPARATE_THREAD)
class RollingTest {
    /** Operations fail while a connection is lost, as with stock ZooKeeper, and are tried again. */
    private static boolean works(ZooKeeper client) {
        try {
            return client.exists("/", false) != null;
        } catch (KeeperException.ConnectionLossException e) {
            return false;
        } catch (KeeperException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }

    @Test
    void aClientThatTookTcpComesBackWithItsSession() throws Exception {
        System.setProperty(Settings.RETRY, "1");
        System.setProperty("highwire.door", "/nowhere/door");
        try (Server server = Server.start(Server.FACTORY)) {
            ZooKeeper client = Server.client(server.address(), Server.QUEUE_PAIRS, Server.SESSION_MILLIS);
            client.create("/kept", new byte[] {5}, Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
            long session = client.getSessionId();
            assertFalse(isOverQueuePairs(client), "there is no engine, so it is TCP");
            try (Engine engine = Engine.start()) {
                Server.until("its way back", () -> isOverQueuePairs(client) && works(client));
                assertEquals(session, client.getSessionId());
                assertArrayEquals(new byte[] {5}, client.getData("/kept", false, null));
                engine.process.destroyForcibly().waitFor();
                Server.until("TCP again", () -> works(client) && !isOverQueuePairs(client));
                assertEquals(session, client.getSessionId());
                assertNotNull(client.exists("/kept", false));
            }
            client.close();
        } finally {
            System.clearProperty(Settings.RETRY);
        }
    }

    /** While the engine is halted for longer than its time-out, clients over TCP are served, and those that were not become so. */
    @Test
    void anEngineThatIsSilentKeepsNobodyFromTcp() throws Exception {
        System.setProperty(Settings.RETRY, "1");
        try (Engine engine = Engine.start(); Server server = Server.start(Server.FACTORY)) {
            ZooKeeper fast = server.client(Server.QUEUE_PAIRS);
            ZooKeeper plain = server.client(Server.TCP);
            assertTrue(isOverQueuePairs(fast));
            signal(engine, "-STOP");
            try {
                ZooKeeper newcomer = server.client(Server.QUEUE_PAIRS);
                assertNotNull(newcomer.exists("/", false));
                assertFalse(isOverQueuePairs(newcomer));
                assertNotNull(plain.exists("/", false));
                Server.until("service", () -> works(fast));
                newcomer.close();
            } finally {
                signal(engine, "-CONT");
            }
            Server.until("queue pairs again", () -> works(fast) && isOverQueuePairs(fast));
            plain.close();
            fast.close();
        } finally {
            System.clearProperty(Settings.RETRY);
        }
    }

    private static void signal(Engine engine, String name) throws Exception {
        assertEquals(0, new ProcessBuilder("kill", name, Long.toString(engine.process.pid())).inheritIO().start().waitFor());
    }
}
