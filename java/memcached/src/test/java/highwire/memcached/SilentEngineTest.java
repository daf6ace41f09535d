package highwire.memcached;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import highwire.memcached.Counters.Counter;
import highwire.verbs.CompletionQueue;
import highwire.verbs.Context;
import highwire.verbs.ProtectionDomain;
import highwire.verbs.QueuePair;
import highwire.verbs.QueuePairConfig;
import highwire.verbs.Service;
import java.io.IOException;
import java.io.InputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/**
 * An engine that says nothing keeps the server from no client over TCP. Whatever waited for the engine would end its context, so an answer that came
 * out of a time-out is told from one that came at once.
 */
class SilentEngineTest {
    private Engine engine;
    private Context there;
    private MemcachedServer server;

    @BeforeEach
    void start() throws Exception {
        engine = new Engine();
        there = engine.context();
        server = MemcachedServer.open(Engine.ANY, StoreOptions.DEFAULT, there);
    }

    @AfterEach
    void stop() throws Exception {
        if (engine != null) {
            engine.goOn();
            server.close();
            there.close();
            engine.close();
        }
    }

    private Socket connect() throws IOException {
        Socket socket = new Socket(server.address().getAddress(), server.address().getPort());
        socket.setSoTimeout((int) Engine.PATIENCE.toMillis());
        return socket;
    }

    private static void say(Socket socket, String text) throws IOException {
        socket.getOutputStream().write(text.getBytes(StandardCharsets.ISO_8859_1));
    }

    private static String line(Socket socket) throws IOException {
        InputStream in = socket.getInputStream();
        StringBuilder line = new StringBuilder();
        for (int next = in.read(); next >= 0 && next != '\n'; next = in.read()) {
            line.append((char) next);
        }
        return line.toString().strip();
    }

    private static String ask(Socket socket, String command) throws IOException {
        say(socket, command + "\r\n");
        return line(socket);
    }

    private void await(Counter counter, long value) {
        long deadline = System.nanoTime() + Engine.PATIENCE.toNanos();
        while (server.store.counters.get(counter) != value) {
            assertTrue(System.nanoTime() < deadline, counter + " is " + server.store.counters.get(counter));
            Thread.onSpinWait();
        }
    }

    @Test
    void othersAreServedWhileOneIsAdmitted() throws Exception {
        try (Context here = engine.context(); ProtectionDomain pd = here.protectionDomain(); CompletionQueue cq = here.completionQueue(64);
                QueuePair reader = pd.queuePair(QueuePairConfig.of(Service.RC, cq)); Socket waits = connect(); Socket other = connect()) {
            engine.halt();
            // What stands behind the command is answered behind it.
            say(waits, "rdma " + reader.endpoint() + "\r\nmn\r\n");
            for (int i = 0; i < 100; i++) {
                assertEquals("STORED", ask(other, "set k 0 0 1\r\nv"));
            }
            assertEquals(0, waits.getInputStream().available(), "an answer to the client that waits for the engine");
            engine.goOn();
            String answer = line(waits);
            assertTrue(answer.startsWith("RDMA 2 "), answer);
            assertEquals("MN", line(waits));
            assertEquals("CLIENT_ERROR this connection has its queue pair", ask(waits, "rdma " + reader.endpoint()));
            assertTrue(there.valid(), "nothing has waited for the engine in vain");
        }
    }

    @Test
    void othersAreServedWhileOneLeaves() throws Exception {
        try (Context here = engine.context(); ProtectionDomain pd = here.protectionDomain(); CompletionQueue cq = here.completionQueue(64);
                QueuePair reader = pd.queuePair(QueuePairConfig.of(Service.RC, cq)); Socket leaves = connect(); Socket other = connect()) {
            String answer = ask(leaves, "rdma " + reader.endpoint());
            assertTrue(answer.startsWith("RDMA 2 "), answer);
            engine.halt();
            leaves.shutdownOutput();
            await(Counter.curr_connections, 1);
            for (int i = 0; i < 100; i++) {
                assertEquals("MN", ask(other, "mn"));
            }
            assertEquals(1, server.store.counters.get(Counter.rdma_readers), "the engine cannot have closed the queue pair yet");
            engine.goOn();
            await(Counter.rdma_readers, 0);
            assertTrue(there.valid(), "nothing has waited for the engine in vain");
        }
    }

    @Test
    void aLimitedNumberOfClientsWaitsForTheEngine() throws Exception {
        List<Socket> clients = new ArrayList<>();
        try (Context here = engine.context(); ProtectionDomain pd = here.protectionDomain(); CompletionQueue cq = here.completionQueue(64);
                QueuePair reader = pd.queuePair(QueuePairConfig.of(Service.RC, cq))) {
            engine.halt();
            for (int i = 0; i <= Readers.WAITING_MAX; i++) {
                clients.add(connect());
                say(clients.get(i), "rdma " + reader.endpoint() + "\r\n");
            }
            // The server hears them in any order.
            Socket refused = firstWithAnAnswer(clients);
            clients.remove(refused);
            assertEquals("SERVER_ERROR too many clients wait for the engine", line(refused));
            engine.goOn();
            for (Socket client : clients) {
                String answer = line(client);
                assertTrue(answer.startsWith("RDMA 2 "), answer);
            }
            clients.add(refused);
            String again = ask(refused, "rdma " + reader.endpoint());
            assertTrue(again.startsWith("RDMA 2 "), again);
            assertEquals(clients.size(), server.store.counters.get(Counter.rdma_readers));
        } finally {
            for (Socket client : clients) {
                client.close();
            }
        }
        await(Counter.rdma_readers, 0);
    }

    private static Socket firstWithAnAnswer(List<Socket> clients) throws IOException {
        long deadline = System.nanoTime() + Engine.PATIENCE.toNanos();
        while (System.nanoTime() < deadline) {
            for (Socket client : clients) {
                if (client.getInputStream().available() > 0) {
                    return client;
                }
            }
        }
        throw new AssertionError("no client is refused");
    }
}
