package highwire.disni;

import static com.ibm.disni.verbs.IbvSendWR.IBV_SEND_INLINE;
import static com.ibm.disni.verbs.IbvSendWR.IBV_SEND_SIGNALED;
import static com.ibm.disni.verbs.IbvSendWR.IBV_WR_ATOMIC_CMP_AND_SWP;
import static com.ibm.disni.verbs.IbvSendWR.IBV_WR_ATOMIC_FETCH_AND_ADD;
import static com.ibm.disni.verbs.IbvSendWR.IBV_WR_RDMA_WRITE;
import static com.ibm.disni.verbs.IbvSendWR.IBV_WR_RDMA_WRITE_WITH_IMM;
import static com.ibm.disni.verbs.IbvSendWR.IBV_WR_SEND;
import static com.ibm.disni.verbs.IbvWC.IbvWcStatus.IBV_WC_SUCCESS;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.ibm.disni.verbs.IbvRecvWR;
import com.ibm.disni.verbs.IbvSendWR;
import com.ibm.disni.verbs.IbvWC;
import com.ibm.disni.verbs.IbvWC.IbvWcOpcode;
import com.ibm.disni.verbs.SVCPostSend;
import java.io.IOException;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.LinkedList;
import java.util.List;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** The effects of DiSNI's calls, between two endpoints of one JVM. */
@Timeout(120)
final class VerbsTest {
    private Engine engine;
    private Pair pair;

    @BeforeEach
    void connect() throws Exception {
        engine = Engine.start().use();
        pair = new Pair();
    }

    @AfterEach
    void disconnect() throws Exception {
        try {
            pair.close();
        } finally {
            engine.close();
        }
    }

    private IbvSendWR request(int opcode, int offset, int length) {
        IbvSendWR request = Conversation.request(opcode, 7, pair.client.region).get(0);
        request.getSge(0).setAddr(pair.client.region.getAddr() + offset);
        request.getSge(0).setLength(length);
        request.getRdma().setRemote_addr(pair.served.region.getAddr() + offset);
        request.getRdma().setRkey(pair.served.region.getRkey());
        return request;
    }

    private SVCPostSend call(IbvSendWR... requests) throws IOException {
        LinkedList<IbvSendWR> list = new LinkedList<>();
        for (IbvSendWR request : requests) {
            list.add(request);
        }
        return pair.client.postSend(list);
    }

    @Test
    void aWriteLandsWhereItWasAimedAfterEachChangeOfTheCall() throws Exception {
        Conversation.put(pair.client.buffer, "abcdefgh");
        SVCPostSend call = call(request(IBV_WR_RDMA_WRITE, 0, 2));
        call.execute();
        assertEquals(IBV_WC_SUCCESS, pair.client.status());
        SVCPostSend.SendWRMod mod = call.getWrMod(0);
        mod.setWr_id(99);
        mod.getRdmaMod().setRemote_addr(pair.served.region.getAddr() + 100);
        mod.getSgeMod(0).setAddr(pair.client.region.getAddr() + 3);
        mod.getSgeMod(0).setLength(4);
        call.execute();
        assertEquals(99, pair.client.next().getWr_id());
        assertEquals("ab\0\0", Conversation.take(pair.served.buffer, 4));
        assertEquals("defg\0", Conversation.take(pair.served.buffer.duplicate().position(100).slice(), 5));
    }

    @Test
    void aKeyThatWasSetBeforeTheExecutionIsTheOneThatCounts() throws Exception {
        IbvSendWR request = request(IBV_WR_RDMA_WRITE, 0, 8);
        request.getRdma().setRkey(pair.served.region.getRkey() + 0x100);
        SVCPostSend call = call(request);
        call.getWrMod(0).getRdmaMod().setRkey(pair.served.region.getRkey());
        call.execute();
        assertEquals(IBV_WC_SUCCESS, pair.client.status());
    }

    @Test
    void anEndpointThatThrowsIsToldOfWhatComesNext() throws Exception {
        SVCPostSend call = call(request(IBV_WR_RDMA_WRITE, 0, 8));
        pair.client.fault = new IllegalArgumentException("thrown on purpose");
        call.execute();
        assertEquals(IBV_WC_SUCCESS, pair.client.status());
        pair.client.fault = null;
        call.execute();
        assertEquals(IBV_WC_SUCCESS, pair.client.status());
    }

    @Test
    void onlySignaledRequestsCompleteAndTheFlagCanBeChanged() throws Exception {
        IbvSendWR silent = request(IBV_WR_RDMA_WRITE, 0, 8);
        silent.setSend_flags(0);
        SVCPostSend call = call(silent);
        call.execute();
        call.getWrMod(0).setSend_flags(IBV_SEND_SIGNALED);
        call.getWrMod(0).setWr_id(2);
        call.execute();
        assertEquals(2, pair.client.next().getWr_id());
        assertTrue(pair.client.completions.isEmpty());
    }

    @Test
    void aCompletionBelongsToWhoWasToldOfIt() throws Exception {
        SVCPostSend call = call(request(IBV_WR_RDMA_WRITE, 0, 8));
        List<IbvWC> told = new ArrayList<>();
        for (int id = 1; id <= 3; id++) {
            call.getWrMod(0).setWr_id(id);
            call.execute();
            told.add(pair.client.next());
        }
        assertEquals(List.of(1L, 2L, 3L), told.stream().map(IbvWC::getWr_id).toList());
    }

    @Test
    void inlineDataIsWhatItWasWhenTheCallWasExecuted() throws Exception {
        IbvSendWR inline = request(IBV_WR_RDMA_WRITE, 0, 3);
        inline.setSend_flags(IBV_SEND_SIGNALED | IBV_SEND_INLINE);
        SVCPostSend call = call(inline);
        for (String text : new String[] {"abc", "xyz"}) {
            Conversation.put(pair.client.buffer, text);
            call.execute();
            Conversation.put(pair.client.buffer, "---");
            assertEquals(IBV_WC_SUCCESS, pair.client.status());
            assertEquals(text, Conversation.take(pair.served.buffer, 3));
        }
        Conversation.put(pair.client.buffer, "longer");
        call.getWrMod(0).getSgeMod(0).setLength(6);
        call.execute();
        assertEquals(IBV_WC_SUCCESS, pair.client.status());
        assertEquals("longer", Conversation.take(pair.served.buffer, 6));
    }

    @Test
    void messagesArriveInOrderWithTheirLengthsAndTheFourBytes() throws Exception {
        LinkedList<IbvRecvWR> receives = new LinkedList<>();
        receives.addAll(Conversation.receive(1, pair.served.region));
        receives.addAll(Conversation.receive(2, pair.served.region));
        pair.served.postRecv(receives).execute().free();
        Conversation.put(pair.client.buffer, "hello");
        IbvSendWR second = request(IBV_WR_RDMA_WRITE_WITH_IMM, 64, 3);
        second.setImm_data(0x01020304);
        call(request(IBV_WR_SEND, 0, 5), second).execute().free();
        IbvWC first = pair.served.next();
        assertEquals(1, first.getWr_id());
        assertEquals(5, first.getByte_len());
        assertEquals(IbvWcOpcode.IBV_WC_RECV, IbvWcOpcode.valueOf(first.getOpcode()));
        IbvWC then = pair.served.next();
        assertEquals(2, then.getWr_id());
        assertEquals(0x01020304, then.getImm_data());
        assertEquals(IbvWcOpcode.IBV_WC_RECV_RDMA_WITH_IMM, IbvWcOpcode.valueOf(then.getOpcode()));
        assertEquals(pair.served.getQp().getQp_num(), then.getQp_num());
    }

    @Test
    void atomicsBringBackWhatWasThere() throws Exception {
        pair.served.buffer.order(ByteOrder.LITTLE_ENDIAN).putLong(0, 40);
        pair.client.buffer.order(ByteOrder.LITTLE_ENDIAN);
        IbvSendWR add = request(IBV_WR_ATOMIC_FETCH_AND_ADD, 0, 8);
        add.getAtomic().setRemote_addr(pair.served.region.getAddr());
        add.getAtomic().setRkey(pair.served.region.getRkey());
        add.getAtomic().setCompare_add(2);
        call(add).execute().free();
        assertEquals(IBV_WC_SUCCESS, pair.client.status());
        assertEquals(40, pair.client.buffer.getLong(0));
        IbvSendWR swap = request(IBV_WR_ATOMIC_CMP_AND_SWP, 0, 8);
        swap.getAtomic().setRemote_addr(pair.served.region.getAddr());
        swap.getAtomic().setRkey(pair.served.region.getRkey());
        swap.getAtomic().setCompare_add(42);
        swap.getAtomic().setSwap(1);
        call(swap).execute().free();
        assertEquals(IBV_WC_SUCCESS, pair.client.status());
        assertEquals(42, pair.client.buffer.getLong(0));
        assertEquals(1, pair.served.buffer.getLong(0));
    }

    @Test
    void aCallThatReachesBeyondItsRegionIsNotExecuted() throws Exception {
        SVCPostSend call = call(request(IBV_WR_RDMA_WRITE, 0, 8));
        call.getWrMod(0).getSgeMod(0).setLength(Pair.BYTES + 1);
        assertThrows(IOException.class, call::execute);
        call.getWrMod(0).getSgeMod(0).setLength(8);
        call.execute();
        assertEquals(IBV_WC_SUCCESS, pair.client.status());
        assertTrue(call.isValid());
        assertFalse(call.free().isValid());
        assertThrows(IOException.class, call::execute);
        assertThrows(IOException.class, () -> call.getWrMod(1));
    }
}
