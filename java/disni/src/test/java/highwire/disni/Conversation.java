package highwire.disni;

import com.ibm.disni.RdmaActiveEndpoint;
import com.ibm.disni.RdmaActiveEndpointGroup;
import com.ibm.disni.RdmaEndpoint;
import com.ibm.disni.RdmaEndpointFactory;
import com.ibm.disni.RdmaEndpointGroup;
import com.ibm.disni.RdmaPassiveEndpointGroup;
import com.ibm.disni.RdmaServerEndpoint;
import com.ibm.disni.util.MemBuf;
import com.ibm.disni.util.MemoryAllocation;
import com.ibm.disni.verbs.IbvMr;
import com.ibm.disni.verbs.IbvRecvWR;
import com.ibm.disni.verbs.IbvSendWR;
import com.ibm.disni.verbs.IbvSge;
import com.ibm.disni.verbs.IbvWC;
import com.ibm.disni.verbs.RdmaCmId;
import com.ibm.disni.verbs.SVCPollCq;
import com.ibm.disni.verbs.SVCPostSend;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.LinkedList;
import java.util.concurrent.ArrayBlockingQueue;

/**
 * A program as one writes it for DiSNI; it uses nothing else, and compiles against that as well. A server with active endpoints tells each client where a text
 * lies; the client, whose endpoint is passive, READs the text in pieces and SENDs it back.
 */
final class Conversation {
    static final String TEXT = "what a client has not been sent";
    private static final int BYTES = 256;

    private Conversation() {}

    /** Three buffers, a request and a receive, as DiSNI's own examples have them. */
    static final class Buffers {
        final MemBuf memory = MemoryAllocation.getInstance().allocate(3 * BYTES);
        final ByteBuffer data = slice(0);
        final ByteBuffer send = slice(1);
        final ByteBuffer receive = slice(2);
        IbvMr dataMr;
        IbvMr sendMr;
        IbvMr receiveMr;

        private ByteBuffer slice(int index) {
            ByteBuffer all = memory.getBuffer().duplicate();
            all.position(index * BYTES).limit((index + 1) * BYTES);
            return all.slice();
        }

        void register(RdmaEndpoint endpoint) throws IOException {
            dataMr = endpoint.registerMemory(data).execute().free().getMr();
            sendMr = endpoint.registerMemory(send).execute().free().getMr();
            receiveMr = endpoint.registerMemory(receive).execute().free().getMr();
        }

        void free() {
            memory.free();
        }
    }

    static LinkedList<IbvSendWR> request(int opcode, long id, IbvMr region) {
        IbvSendWR request = new IbvSendWR();
        request.setWr_id(id);
        request.setOpcode(opcode);
        request.setSend_flags(IbvSendWR.IBV_SEND_SIGNALED);
        request.setSg_list(pieces(region));
        LinkedList<IbvSendWR> list = new LinkedList<>();
        list.add(request);
        return list;
    }

    static LinkedList<IbvRecvWR> receive(long id, IbvMr region) {
        IbvRecvWR receive = new IbvRecvWR();
        receive.setWr_id(id);
        receive.setSg_list(pieces(region));
        LinkedList<IbvRecvWR> list = new LinkedList<>();
        list.add(receive);
        return list;
    }

    private static LinkedList<IbvSge> pieces(IbvMr region) {
        IbvSge piece = new IbvSge();
        piece.setAddr(region.getAddr());
        piece.setLength(region.getLength());
        piece.setLkey(region.getLkey());
        LinkedList<IbvSge> pieces = new LinkedList<>();
        pieces.add(piece);
        return pieces;
    }

    /** A server's end. */
    static final class ServerEnd extends RdmaActiveEndpoint {
        final Buffers buffers = new Buffers();
        final ArrayBlockingQueue<IbvWC> completions = new ArrayBlockingQueue<>(16);

        ServerEnd(RdmaActiveEndpointGroup<ServerEnd> group, RdmaCmId id, boolean serverSide) throws IOException {
            super(group, id, serverSide);
        }

        @Override
        protected synchronized void init() throws IOException {
            super.init();
            buffers.register(this);
            postRecv(receive(1, buffers.receiveMr)).execute().free();
        }

        @Override
        public void dispatchCqEvent(IbvWC completion) throws IOException {
            completions.add(completion);
        }
    }

    /** A client's end. */
    static final class ClientEnd extends RdmaEndpoint {
        final Buffers buffers = new Buffers();
        private IbvWC[] completions;
        private SVCPollCq poll;

        ClientEnd(RdmaEndpointGroup<ClientEnd> group, RdmaCmId id, boolean serverSide) throws IOException {
            super(group, id, serverSide);
        }

        @Override
        protected synchronized void init() throws IOException {
            super.init();
            completions = new IbvWC[] {new IbvWC()};
            poll = getCqProvider().getCQ().poll(completions, 1);
            buffers.register(this);
            postRecv(receive(1, buffers.receiveMr)).execute().free();
        }

        IbvWC next() throws IOException {
            while (poll.execute().getPolls() == 0) {
                Thread.yield();
            }
            return completions[0];
        }
    }

    /** Where a server can be found once it is bound. */
    interface Bound {
        void at(InetSocketAddress address);
    }

    /** Serves one client: the text that it sends back. */
    static String serve(InetAddress host, Bound bound) throws Exception {
        RdmaActiveEndpointGroup<ServerEnd> group = new RdmaActiveEndpointGroup<>(1000, false, 16, 4, 32);
        group.init(new RdmaEndpointFactory<ServerEnd>() {
            @Override
            public ServerEnd createEndpoint(RdmaCmId id, boolean serverSide) throws IOException {
                return new ServerEnd(group, id, serverSide);
            }
        });
        RdmaServerEndpoint<ServerEnd> server = group.createServerEndpoint();
        server.bind(new InetSocketAddress(host, 0), 10);
        bound.at((InetSocketAddress) server.getSrcAddr());
        ServerEnd end = server.accept();
        put(end.buffers.data, TEXT);
        end.buffers.send.putLong(0, end.buffers.dataMr.getAddr()).putInt(8, TEXT.length()).putInt(12, end.buffers.dataMr.getRkey());
        end.postSend(request(IbvSendWR.IBV_WR_SEND, 2, end.buffers.sendMr)).execute().free();
        String text = null;
        for (int done = 0; done < 2; done++) {
            IbvWC completion = end.completions.take();
            if (completion.getStatus() != IbvWC.IbvWcStatus.IBV_WC_SUCCESS.ordinal()) {
                throw new IOException("request " + completion.getWr_id() + " ended with " + completion.getStatus());
            }
            if (completion.getOpcode() == IbvWC.IbvWcOpcode.IBV_WC_RECV.getOpcode()) {
                text = take(end.buffers.receive, completion.getByte_len());
            }
        }
        end.close();
        server.close();
        group.close();
        end.buffers.free();
        return text;
    }

    /** Talks to a server: what it has READ. */
    static String read(InetSocketAddress address) throws Exception {
        RdmaPassiveEndpointGroup<ClientEnd> group = new RdmaPassiveEndpointGroup<>(1, 16, 4, 32);
        group.init(new RdmaEndpointFactory<ClientEnd>() {
            @Override
            public ClientEnd createEndpoint(RdmaCmId id, boolean serverSide) throws IOException {
                return new ClientEnd(group, id, serverSide);
            }
        });
        ClientEnd end = group.createEndpoint();
        end.connect(address, 10_000);
        check(end.next(), 1);
        long remote = end.buffers.receive.getLong(0);
        int length = end.buffers.receive.getInt(8);
        LinkedList<IbvSendWR> reads = request(IbvSendWR.IBV_WR_RDMA_READ, 10, end.buffers.dataMr);
        reads.get(0).getRdma().setRemote_addr(remote);
        reads.get(0).getRdma().setRkey(end.buffers.receive.getInt(12));
        SVCPostSend read = end.postSend(reads);
        // Piece by piece, with the call patched.
        for (int at = 0; at < length; at += 7) {
            SVCPostSend.SendWRMod mod = read.getWrMod(0);
            mod.setWr_id(10 + at);
            mod.getRdmaMod().setRemote_addr(remote + at);
            mod.getSgeMod(0).setAddr(end.buffers.dataMr.getAddr() + at);
            mod.getSgeMod(0).setLength(Math.min(7, length - at));
            read.execute();
            check(end.next(), 10 + at);
        }
        read.free();
        String text = take(end.buffers.data, length);
        put(end.buffers.send, text);
        SVCPostSend send = end.postSend(request(IbvSendWR.IBV_WR_SEND, 3, end.buffers.sendMr));
        send.getWrMod(0).getSgeMod(0).setLength(length);
        send.execute().free();
        check(end.next(), 3);
        end.close();
        group.close();
        end.buffers.free();
        return text;
    }

    private static void check(IbvWC completion, long id) throws IOException {
        if (completion.getStatus() != IbvWC.IbvWcStatus.IBV_WC_SUCCESS.ordinal() || completion.getWr_id() != id) {
            throw new IOException("request " + completion.getWr_id() + " instead of " + id + " ended with " + completion.getStatus());
        }
    }

    static void put(ByteBuffer into, String text) {
        for (int i = 0; i < text.length(); i++) {
            into.put(i, (byte) text.charAt(i));
        }
    }

    static String take(ByteBuffer from, int length) {
        StringBuilder text = new StringBuilder();
        for (int i = 0; i < length; i++) {
            text.append((char) from.get(i));
        }
        return text.toString();
    }
}
