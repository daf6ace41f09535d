package highwire.disni;

import static com.ibm.disni.verbs.IbvSendWR.IBV_WR_RDMA_READ;
import static com.ibm.disni.verbs.IbvWC.IbvWcStatus.IBV_WC_REM_ACCESS_ERR;
import static com.ibm.disni.verbs.IbvWC.IbvWcStatus.IBV_WC_WR_FLUSH_ERR;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.ibm.disni.RdmaPassiveEndpointGroup;
import com.ibm.disni.RdmaServerEndpoint;
import com.ibm.disni.verbs.IbvSendWR;
import com.ibm.disni.verbs.RdmaCmEvent;
import com.ibm.disni.verbs.RdmaCmEvent.EventType;
import java.io.IOException;
import java.net.ConnectException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.util.LinkedList;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Every failure is reported, and no call waits for it for ever. */
@Timeout(120)
final class FaultsTest {
    private Engine engine;

    @BeforeEach
    void start() throws IOException {
        engine = Engine.start().use();
    }

    @AfterEach
    void end() throws IOException {
        engine.close();
    }

    private static RdmaPassiveEndpointGroup<Conversation.ClientEnd> clients() throws IOException {
        RdmaPassiveEndpointGroup<Conversation.ClientEnd> group = new RdmaPassiveEndpointGroup<>(1, 16, 4, 32);
        group.init((id, isServerSide) -> new Conversation.ClientEnd(group, id, isServerSide));
        return group;
    }

    private static IOException refused(SocketAddress address) throws Exception {
        RdmaPassiveEndpointGroup<Conversation.ClientEnd> group = clients();
        try {
            Conversation.ClientEnd end = group.createEndpoint();
            IOException why = assertThrows(ConnectException.class, () -> end.connect(address, 10_000));
            assertFalse(end.isConnected());
            return why;
        } finally {
            group.close();
        }
    }

    @Test
    void whereNobodyListensNothingIsConnected() throws Exception {
        InetSocketAddress free;
        try (ServerSocket taken = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            free = (InetSocketAddress) taken.getLocalSocketAddress();
        }
        assertTrue(refused(free).getMessage().contains("nobody listens"), "it says so");
    }

    @Test
    void aServerOfAnotherKindIsNoServer() throws Exception {
        try (ServerSocket other = new ServerSocket(0, 1, InetAddress.getLoopbackAddress())) {
            Thread.ofVirtual().start(() -> {
                try (Socket client = other.accept()) {
                    client.getOutputStream().write("220 mail\n".getBytes());
                    client.getInputStream().readAllBytes();
                } catch (IOException e) {
                    // The client reports its own failure.
                }
            });
            assertTrue(refused(other.getLocalSocketAddress()).getMessage().contains("220 mail"), "it quotes it");
        }
    }

    @Test
    void whatIsNoClientIsToldAndTheServerGoesOn() throws Exception {
        try (Pair pair = new Pair();
                Socket stranger = new Socket()) {
            stranger.connect(pair.server.getSrcAddr());
            stranger.getOutputStream().write("GET / HTTP/1.1\n".getBytes());
            assertTrue(new String(stranger.getInputStream().readAllBytes()).startsWith("no "), "it is told");
            assertFalse(pair.server.isClosed());
        }
    }

    @Test
    void memoryFromElsewhereIsRefusedWithWhereToGetSome() throws Exception {
        try (Pair pair = new Pair()) {
            for (ByteBuffer foreign : new ByteBuffer[] {ByteBuffer.allocateDirect(64), ByteBuffer.allocate(64)}) {
                IOException why = assertThrows(IOException.class, () -> pair.client.registerMemory(foreign).execute());
                assertTrue(why.getMessage().contains("MemoryAllocation"), why.getMessage());
            }
        }
    }

    @Test
    void aWrongKeyFailsTheRequestAndThenThoseBehindIt() throws Exception {
        try (Pair pair = new Pair()) {
            LinkedList<IbvSendWR> read = Conversation.request(IBV_WR_RDMA_READ, 1, pair.client.region);
            read.get(0).getRdma().setRemote_addr(pair.served.region.getAddr());
            read.get(0).getRdma().setRkey(pair.served.region.getRkey() + 0x100);
            pair.client.postSend(read).execute();
            assertEquals(IBV_WC_REM_ACCESS_ERR, pair.client.status());
            pair.client.postSend(read).execute();
            assertEquals(IBV_WC_WR_FLUSH_ERR, pair.client.status());
        }
    }

    @Test
    void aKeyThatWasGivenBackWorksNoMore() throws Exception {
        try (Pair pair = new Pair()) {
            LinkedList<IbvSendWR> read = Conversation.request(IBV_WR_RDMA_READ, 1, pair.client.region);
            read.get(0).getRdma().setRemote_addr(pair.served.region.getAddr());
            read.get(0).getRdma().setRkey(pair.served.region.getRkey());
            pair.served.deregisterMemory(pair.served.region);
            assertFalse(pair.served.region.isOpen());
            pair.client.postSend(read).execute();
            assertEquals(IBV_WC_REM_ACCESS_ERR, pair.client.status());
        }
    }

    @Test
    void anEndWhosePeerClosesIsToldAndItsReceivesAreFlushed() throws Exception {
        try (Pair pair = new Pair()) {
            pair.served.postRecv(Conversation.receive(5, pair.served.region)).execute();
            pair.client.close();
            assertEquals(IBV_WC_WR_FLUSH_ERR, pair.served.status());
            disconnected(pair.served);
        }
    }

    private static void disconnected(Pair.End end) throws InterruptedException {
        RdmaCmEvent event;
        do {
            event = end.events.poll(60, TimeUnit.SECONDS);
            assertTrue(event != null, "it is told");
        } while (event.getEvent() != EventType.RDMA_CM_EVENT_DISCONNECTED.ordinal());
        assertFalse(end.isConnected());
    }

    @Test
    void aClientWhoseServerIsKilledHearsOfIt() throws Exception {
        RdmaPassiveEndpointGroup<Conversation.ClientEnd> group = clients();
        try (Child server = new Child(engine)) {
            Conversation.ClientEnd end = group.createEndpoint();
            end.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), server.port()), 10_000);
            assertEquals(1, end.next().getWr_id());
            end.postRecv(Conversation.receive(6, end.buffers.receiveMr)).execute();
            server.process.destroyForcibly();
            assertEquals(IBV_WC_WR_FLUSH_ERR.ordinal(), end.next().getStatus());
        } finally {
            group.close();
        }
    }

    @Test
    void aServerThatIsClosedAcceptsNobodyAndSaysSo() throws Exception {
        try (Pair pair = new Pair()) {
            InetSocketAddress address = (InetSocketAddress) pair.server.getSrcAddr();
            Thread closes = Thread.ofVirtual().start(() -> {
                try {
                    pair.server.close();
                } catch (IOException | InterruptedException e) {
                    throw new IllegalStateException(e);
                }
            });
            assertThrows(IOException.class, pair.server::accept);
            closes.join();
            assertTrue(pair.client.isConnected(), "who was accepted stays");
            assertThrows(ConnectException.class, () -> new Socket(address.getAddress(), address.getPort()).close(), "the port is free again");
        }
    }

    @Test
    void aPortIsFreeAsSoonAsItsListenerIsClosed() throws Exception {
        RdmaPassiveEndpointGroup<Conversation.ClientEnd> group = clients();
        try {
            for (int i = 0; i < 200; i++) {
                RdmaServerEndpoint<Conversation.ClientEnd> server = group.createServerEndpoint();
                server.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 4);
                InetSocketAddress address = (InetSocketAddress) server.getSrcAddr();
                Thread.yield();
                server.close();
                new ServerSocket(address.getPort(), 1, address.getAddress()).close();
            }
        } finally {
            group.close();
        }
    }

    @Test
    void withoutAnEngineNothingIsConnected() throws Exception {
        System.setProperty("highwire.door", engine.folder.resolve("nobody").toString());
        RdmaPassiveEndpointGroup<Conversation.ClientEnd> group = new RdmaPassiveEndpointGroup<>(1, 16, 4, 32);
        group.init((id, isServerSide) -> new Conversation.ClientEnd(group, id, isServerSide));
        assertThrows(IllegalStateException.class, group::createEndpoint);
        group.close();
    }
}
