package highwire.disni;

import static com.ibm.disni.verbs.IbvSendWR.IBV_SEND_FENCE;
import static com.ibm.disni.verbs.IbvSendWR.IBV_SEND_SIGNALED;
import static com.ibm.disni.verbs.IbvSendWR.IBV_WR_RDMA_READ;
import static com.ibm.disni.verbs.IbvSendWR.IBV_WR_RDMA_WRITE;
import static com.ibm.disni.verbs.IbvSendWR.IBV_WR_SEND;
import static com.ibm.disni.verbs.IbvWC.IbvWcStatus.IBV_WC_SUCCESS;
import static org.junit.jupiter.api.Assertions.assertEquals;

import com.ibm.disni.RdmaPassiveEndpointGroup;
import com.ibm.disni.verbs.IbvSendWR;
import com.ibm.disni.verbs.SVCPostSend;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.LinkedList;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A request that is fenced waits for the READs before it. The peer's engine is stopped meanwhile, so that a READ takes as long as the test wants. */
@Timeout(120)
final class FenceTest {
    private Engine engine;

    @BeforeEach
    void start() throws IOException {
        engine = Engine.start().use();
    }

    @AfterEach
    void end() throws IOException {
        engine.close();
    }

    @Test
    void aFencedSendCarriesWhatTheReadBeforeItBrings() throws Exception {
        assertEquals(Conversation.TEXT, sentBack(IBV_SEND_FENCE, 0));
    }

    @Test
    void theFlagMayBeSetLater() throws Exception {
        assertEquals(Conversation.TEXT, sentBack(0, IBV_SEND_FENCE));
    }

    @Test
    void withoutTheFlagASendDoesNotWait() throws Exception {
        assertEquals("\0".repeat(Conversation.TEXT.length()), sentBack(0, 0));
    }

    /** What a server is sent back by one call that READs a text and SENDs the buffer that the READ fills: with these flags, and these added to the call that was made. */
    private static String sentBack(int flags, int laterFlags) throws Exception {
        // Engines that do not see each other's folders exchange datagrams.
        try (Engine far = Engine.start();
                Child server = new Child(far);
                Pair near = new Pair()) {
            RdmaPassiveEndpointGroup<Conversation.ClientEnd> group = new RdmaPassiveEndpointGroup<>(1, 16, 4, 32);
            group.init((id, isServerSide) -> new Conversation.ClientEnd(group, id, isServerSide));
            Conversation.ClientEnd end = group.createEndpoint();
            end.connect(new InetSocketAddress(InetAddress.getLoopbackAddress(), server.port()), 10_000);
            assertEquals(1, end.next().getWr_id());
            int length = end.buffers.receive.getInt(8);
            LinkedList<IbvSendWR> both = Conversation.request(IBV_WR_RDMA_READ, 2, end.buffers.dataMr);
            both.get(0).getRdma().setRemote_addr(end.buffers.receive.getLong(0));
            both.get(0).getRdma().setRkey(end.buffers.receive.getInt(12));
            both.addAll(Conversation.request(IBV_WR_SEND, 3, end.buffers.dataMr));
            both.get(1).setSend_flags(IBV_SEND_SIGNALED | flags);
            both.forEach(request -> request.getSge(0).setLength(length));
            SVCPostSend call = end.postSend(both);
            call.getWrMod(1).setSend_flags(IBV_SEND_SIGNALED | flags | laterFlags);
            far.signal("STOP");
            try {
                call.execute();
                // A request without bytes is the engine's as well. Once this one is done, the engine has seen those before it.
                LinkedList<IbvSendWR> empty = Conversation.request(IBV_WR_RDMA_WRITE, 4, near.client.region);
                empty.get(0).getSge(0).setLength(0);
                empty.get(0).getRdma().setRemote_addr(near.served.region.getAddr());
                empty.get(0).getRdma().setRkey(near.served.region.getRkey());
                near.client.postSend(empty).execute();
                assertEquals(IBV_WC_SUCCESS, near.client.status());
            } finally {
                far.signal("CONT");
            }
            assertEquals(2, end.next().getWr_id());
            assertEquals(3, end.next().getWr_id());
            String text = server.said.readLine();
            end.close();
            group.close();
            end.buffers.free();
            return text;
        }
    }
}
