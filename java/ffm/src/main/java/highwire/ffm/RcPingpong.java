package highwire.ffm;

import highwire.verbs.Access;
import highwire.verbs.Completion;
import highwire.verbs.ConnectOptions;
import highwire.verbs.Endpoint;
import highwire.verbs.Opcode;
import highwire.verbs.Service;
import java.io.DataInputStream;
import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Locale;

/**
 * {@code ibv_rc_pingpong} of rdma-core, in Java: each can talk to the other.
 *
 * <p>{@code java --enable-native-access=highwire.ffm -p … -m highwire.ffm/highwire.ffm.RcPingpong DEVICE PORT BYTES COUNT [SERVER]}
 */
public final class RcPingpong {
    /** {@code lid:qpn:psn:gid} and a NUL. */
    private static final int HELLO_BYTES = 52;
    private static final byte[] DONE = {'d', 'o', 'n', 'e', 0};
    private static final int DEPTH = 16;
    private static final long PATIENCE_NANOS = 60_000_000_000L;
    /** The defaults of the program in C. */
    private static final ConnectOptions OPTIONS = new ConnectOptions(Access.NONE, 1024, false, 14, 7, 7);

    private final QueuePair qp;
    private final MemoryRegion memory;
    private final PollCq poll;
    private final int bytes;
    private final Completion completion = new Completion();
    private int sent;
    private int received;

    private RcPingpong(QueuePair qp, MemoryRegion memory, PollCq poll, int bytes) {
        this.qp = qp;
        this.memory = memory;
        this.poll = poll;
        this.bytes = bytes;
    }

    /**
     * Runs one end.
     *
     * @param args device, TCP port, bytes of a message, how many, and where the server is, if this is the client
     * @throws Exception something does not work here
     */
    public static void main(String[] args) throws Exception {
        if (args.length < 4) {
            System.err.println("usage: RcPingpong DEVICE PORT BYTES COUNT [SERVER]");
            System.exit(2);
        }
        int port = Integer.parseInt(args[1]);
        int bytes = Integer.parseInt(args[2]);
        int count = Integer.parseInt(args[3]);
        try (Device device = Device.open(args[0]);
                ProtectionDomain pd = device.protectionDomain();
                CompletionQueue cq = device.completionQueue(4 * DEPTH);
                QueuePair qp = pd.queuePair(Service.RC, cq, DEPTH, 1);
                Arena arena = Arena.ofShared();
                MemoryRegion memory = pd.register(arena.allocate(2L * bytes, 4096), Access.LOCAL_WRITE)) {
            RcPingpong end = new RcPingpong(qp, memory, cq.pollCall(DEPTH), bytes);
            boolean isClient = args.length > 4;
            qp.prepare(Access.NONE);
            end.receive(isClient);
            meet(qp, port, isClient ? args[4] : null);
            long start = System.nanoTime();
            if (isClient) {
                end.ask(count);
            } else {
                end.answer(count);
            }
            System.out.printf(Locale.ROOT, "%d messages of %d bytes there and back, %.1f microseconds each%n", count, bytes, (System.nanoTime() - start) / 1e3 / count);
        }
    }

    private static void meet(QueuePair qp, int port, String server) throws IOException {
        if (server == null) {
            try (ServerSocket listening = new ServerSocket(port)) {
                System.out.println("listening at " + listening.getLocalPort());
                System.out.flush();
                try (Socket socket = listening.accept()) {
                    qp.connect(parse(hear(socket, HELLO_BYTES)), OPTIONS);
                    socket.getOutputStream().write(hello(qp.endpoint()));
                    hear(socket, DONE.length);
                }
            }
            return;
        }
        try (Socket socket = new Socket(server, port)) {
            socket.getOutputStream().write(hello(qp.endpoint()));
            qp.connect(parse(hear(socket, HELLO_BYTES)), OPTIONS);
            socket.getOutputStream().write(DONE);
        }
    }

    private static byte[] hear(Socket from, int bytes) throws IOException {
        byte[] said = new byte[bytes];
        new DataInputStream(from.getInputStream()).readFully(said);
        return said;
    }

    /** An introduction as the program in C writes it. The local identifier means nothing on Ethernet. */
    static byte[] hello(Endpoint endpoint) {
        byte[] address = endpoint.address().getAddress();
        byte[] gid = new byte[16];
        System.arraycopy(address, 0, gid, 16 - address.length, address.length);
        if (address.length == 4) {
            gid[10] = (byte) 0xFF;
            gid[11] = (byte) 0xFF;
        }
        String text = String.format("0000:%06x:%06x:%s", endpoint.qpn(), endpoint.psn(), HexFormat.of().formatHex(gid));
        return Arrays.copyOf(text.getBytes(StandardCharsets.US_ASCII), HELLO_BYTES);
    }

    /** An introduction of the peer's. */
    static Endpoint parse(byte[] said) throws IOException {
        String text = new String(said, StandardCharsets.US_ASCII).replace("\0", "");
        String[] words = text.split(":");
        try {
            if (words.length != 4 || words[3].length() != 32) {
                throw new IllegalArgumentException("four words");
            }
            InetAddress address = InetAddress.getByAddress(HexFormat.of().parseHex(words[3]));
            return new Endpoint(address, Integer.parseInt(words[1], 16), Integer.parseInt(words[2], 16));
        } catch (IllegalArgumentException e) {
            throw new IOException("the peer says `" + text + "`, which is no introduction", e);
        }
    }

    /** The requesting end keeps the message that it sent, to compare. */
    private void receive(boolean isClient) {
        qp.postRecv(1).sge(0, memory, isClient ? bytes : 0, bytes).exec();
    }

    private void ask(int count) throws IOException {
        PostSend send = qp.postSend(Opcode.SEND, 1).sge(0, memory, 0, bytes);
        PostRecv receive = qp.postRecv(1).sge(0, memory, bytes, bytes);
        MemorySegment mine = memory.segment().asSlice(0, bytes);
        MemorySegment back = memory.segment().asSlice(bytes, bytes);
        for (int number = 1; number <= count; number++) {
            mine.fill((byte) number);
            mine.set(ValueLayout.JAVA_BYTE, bytes - 1L, (byte) (number >> 8));
            send.exec();
            until(number, number);
            if (back.mismatch(mine) >= 0) {
                throw new IOException("message " + number + " has come back changed, from byte " + back.mismatch(mine));
            }
            if (number < count) {
                receive.exec();
            }
        }
    }

    private void answer(int count) throws IOException {
        PostSend send = qp.postSend(Opcode.SEND, 1).sge(0, memory, 0, bytes);
        PostRecv receive = qp.postRecv(1).sge(0, memory, 0, bytes);
        for (int number = 1; number <= count; number++) {
            until(number - 1, number);
            if (number < count) {
                receive.exec();
            }
            send.exec();
        }
        until(count, count);
    }

    /** Polls until this many messages were sent and received. */
    private void until(int sends, int receives) throws IOException {
        long deadline = System.nanoTime() + PATIENCE_NANOS;
        while (sent < sends || received < receives) {
            int found = poll.exec().result();
            for (int i = 0; i < found; i++) {
                poll.completion(i, completion);
                if (!completion.isSuccess()) {
                    throw new IOException(completion.toString());
                }
                if (completion.isReceive()) {
                    received++;
                } else {
                    sent++;
                }
            }
            if (found == 0 && System.nanoTime() > deadline) {
                throw new IOException("the peer stays silent");
            }
        }
    }
}
