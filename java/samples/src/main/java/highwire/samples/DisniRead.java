package highwire.samples;

import com.ibm.disni.RdmaActiveEndpoint;
import com.ibm.disni.RdmaActiveEndpointGroup;
import com.ibm.disni.RdmaServerEndpoint;
import com.ibm.disni.util.MemBuf;
import com.ibm.disni.util.MemoryAllocation;
import com.ibm.disni.verbs.IbvMr;
import com.ibm.disni.verbs.IbvRecvWR;
import com.ibm.disni.verbs.IbvSendWR;
import com.ibm.disni.verbs.IbvSge;
import com.ibm.disni.verbs.IbvWC;
import com.ibm.disni.verbs.RdmaCmId;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.LinkedList;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

/** A program of DiSNI's API: a server tells a client where a text lies, and the client READs it. Both ends are here, each with an endpoint of its own. */
public final class DisniRead {
    private static final String TEXT = "hello to a program that was written for DiSNI";
    private static final int BYTES = 128;

    private DisniRead() {}

    /**
     * A custom endpoint, as DiSNI calls it: memory, and a receive that waits before there is a connection.
     */
    private static final class End extends RdmaActiveEndpoint {
        final MemBuf memory = MemoryAllocation.getInstance().allocate(BYTES);
        final ByteBuffer buffer = memory.getBuffer();
        final BlockingQueue<IbvWC> completions = new LinkedBlockingQueue<>();
        IbvMr region;

        End(RdmaActiveEndpointGroup<End> group, RdmaCmId id, boolean isServerSide) throws IOException {
            super(group, id, isServerSide);
        }

        @Override
        protected synchronized void init() throws IOException {
            super.init();
            region = registerMemory(buffer).execute().free().getMr();
            IbvRecvWR receive = new IbvRecvWR();
            receive.setSg_list(pieces(16));
            postRecv(List.of(receive)).execute().free();
        }

        @Override
        public void dispatchCqEvent(IbvWC completion) {
            completions.add(completion);
        }

        void post(int opcode, int length, long remoteAddress, int rkey) throws IOException, InterruptedException {
            IbvSendWR request = new IbvSendWR();
            request.setOpcode(opcode);
            request.setSend_flags(IbvSendWR.IBV_SEND_SIGNALED);
            request.setSg_list(pieces(length));
            request.getRdma().setRemote_addr(remoteAddress);
            request.getRdma().setRkey(rkey);
            postSend(List.of(request)).execute().free();
            await();
        }

        void await() throws IOException, InterruptedException {
            int status = completions.take().getStatus();
            if (status != IbvWC.IbvWcStatus.IBV_WC_SUCCESS.ordinal()) {
                throw new IOException("it ended with " + IbvWC.IbvWcStatus.valueOf(status));
            }
        }

        private LinkedList<IbvSge> pieces(int length) {
            IbvSge piece = new IbvSge();
            piece.setAddr(region.getAddr());
            piece.setLength(length);
            piece.setLkey(region.getLkey());
            return new LinkedList<>(List.of(piece));
        }
    }

    /**
     * Runs it.
     *
     * @param args none
     * @throws Exception the reason why it does not work here
     */
    public static void main(String[] args) throws Exception {
        RdmaActiveEndpointGroup<End> group = new RdmaActiveEndpointGroup<>(1000, false, 8, 1, 16);
        group.init((id, isServerSide) -> new End(group, id, isServerSide));
        RdmaServerEndpoint<End> server = group.createServerEndpoint();
        server.bind(new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), 1);
        Thread serving = Thread.ofPlatform().start(() -> serve(server));
        End client = group.createEndpoint();
        client.connect(server.getSrcAddr(), 10_000);
        client.await();
        int length = client.buffer.getInt(12);
        client.post(IbvSendWR.IBV_WR_RDMA_READ, length, client.buffer.getLong(0), client.buffer.getInt(8));
        byte[] text = new byte[length];
        client.buffer.get(0, text);
        System.out.println("READ: " + new String(text, StandardCharsets.UTF_8));
        serving.join();
        group.close();
    }

    private static void serve(RdmaServerEndpoint<End> server) {
        try {
            // Memory of the server itself, for any client.
            ByteBuffer text = MemoryAllocation.getInstance().allocate(TEXT.length()).getBuffer();
            text.put(0, TEXT.getBytes(StandardCharsets.UTF_8));
            IbvMr region = server.registerMemory(text).execute().free().getMr();
            End end = server.accept();
            end.buffer.putLong(0, region.getAddr()).putInt(8, region.getRkey()).putInt(12, TEXT.length());
            end.post(IbvSendWR.IBV_WR_SEND, 16, 0, 0);
        } catch (IOException | InterruptedException e) {
            throw new IllegalStateException(e);
        }
    }
}
