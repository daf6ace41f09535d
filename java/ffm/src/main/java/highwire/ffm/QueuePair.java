package highwire.ffm;

import static java.lang.foreign.ValueLayout.JAVA_BYTE;
import static java.lang.foreign.ValueLayout.JAVA_INT;

import highwire.verbs.ConnectOptions;
import highwire.verbs.ConnectedQueuePair;
import highwire.verbs.Endpoint;
import highwire.verbs.Opcode;
import highwire.verbs.QpState;
import highwire.verbs.Service;
import highwire.verbs.VerbsException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.util.concurrent.ThreadLocalRandom;

/** A queue pair of RC or UC. One posting thread at a time. IRN is not negotiated here, and an MTU of 0 is the device's. */
public final class QueuePair extends NativeObject implements ConnectedQueuePair {
    private static final int STATE = 1;
    private static final int ACCESS = 1 << 3;
    private static final int PKEY_INDEX = 1 << 4;
    private static final int PORT = 1 << 5;
    private static final int AV = 1 << 7;
    private static final int PATH_MTU = 1 << 8;
    private static final int TIMEOUT = 1 << 9;
    private static final int RETRY_CNT = 1 << 10;
    private static final int RNR_RETRY = 1 << 11;
    private static final int RQ_PSN = 1 << 12;
    private static final int MAX_RD_ATOMIC = 1 << 13;
    private static final int MIN_RNR_TIMER = 1 << 15;
    private static final int SQ_PSN = 1 << 16;
    private static final int MAX_DEST_RD_ATOMIC = 1 << 17;
    private static final int DEST_QPN = 1 << 20;
    /** The limits that every device has. */
    private static final byte READS = 1;
    /** 0.64 ms, as in {@code ibv_rc_pingpong}. */
    private static final byte RNR_TIMER = 12;
    private static final byte HOPS = 64;

    final ProtectionDomain domain;
    private final Service service;
    private final int qpn;
    private final int psn = ThreadLocalRandom.current().nextInt(1 << 24);
    private boolean isPrepared;

    QueuePair(ProtectionDomain domain, CompletionQueue queue, Service service, MemorySegment pointer) {
        super(domain.library, pointer, "queue pair", "ibv_destroy_qp", domain, queue);
        this.domain = domain;
        this.service = service;
        qpn = pointer.get(JAVA_INT, Layout.QP_NUM);
    }

    @Override
    public int qpn() {
        return qpn;
    }

    @Override
    public Endpoint endpoint() {
        return new Endpoint(domain.device.address(), qpn, psn);
    }

    @Override
    public void prepare(int access) throws VerbsException {
        checkOpen();
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment attr = attributes(arena, QpState.INIT);
            attr.set(JAVA_INT, Layout.ATTR_ACCESS, access);
            attr.set(JAVA_BYTE, Layout.ATTR_PORT_NUM, Device.PORT);
            modify(attr, STATE | PKEY_INDEX | PORT | ACCESS);
        }
        isPrepared = true;
    }

    @Override
    public void connect(Endpoint peer, ConnectOptions options) throws VerbsException {
        checkOpen();
        if (!isPrepared) {
            prepare(options.access());
        }
        boolean isReliable = service == Service.RC;
        try (Arena arena = Arena.ofConfined()) {
            MemorySegment attr = attributes(arena, QpState.RTR);
            attr.set(JAVA_INT, Layout.ATTR_PATH_MTU, options.mtu() == 0 ? domain.device.mtu : mtu(options.mtu()));
            attr.set(JAVA_INT, Layout.ATTR_DEST_QP_NUM, peer.qpn());
            attr.set(JAVA_INT, Layout.ATTR_RQ_PSN, peer.psn());
            putAddress(attr.asSlice(Layout.ATTR_AH), peer.address());
            int mask = STATE | AV | PATH_MTU | DEST_QPN | RQ_PSN;
            if (isReliable) {
                attr.set(JAVA_BYTE, Layout.ATTR_MAX_DEST_RD_ATOMIC, READS);
                attr.set(JAVA_BYTE, Layout.ATTR_MIN_RNR_TIMER, RNR_TIMER);
                mask |= MAX_DEST_RD_ATOMIC | MIN_RNR_TIMER;
            }
            modify(attr, mask);
            attr = attributes(arena, QpState.RTS);
            attr.set(JAVA_INT, Layout.ATTR_SQ_PSN, psn);
            mask = STATE | SQ_PSN;
            if (isReliable) {
                attr.set(JAVA_BYTE, Layout.ATTR_TIMEOUT, (byte) options.timeout());
                attr.set(JAVA_BYTE, Layout.ATTR_RETRY_CNT, (byte) options.retryCount());
                attr.set(JAVA_BYTE, Layout.ATTR_RNR_RETRY, (byte) options.rnrRetry());
                attr.set(JAVA_BYTE, Layout.ATTR_MAX_RD_ATOMIC, READS);
                mask |= TIMEOUT | RETRY_CNT | RNR_RETRY | MAX_RD_ATOMIC;
            }
            modify(attr, mask);
        }
    }

    private static MemorySegment attributes(Arena arena, QpState state) {
        MemorySegment attr = arena.allocate(Layout.ATTR_BYTES, 8);
        attr.set(JAVA_INT, Layout.ATTR_QP_STATE, state.ordinal());
        return attr;
    }

    private void putAddress(MemorySegment ah, InetAddress address) {
        byte[] bytes = address.getAddress();
        MemorySegment gid = ah.asSlice(0, 16);
        gid.asSlice(16 - bytes.length).copyFrom(MemorySegment.ofArray(bytes));
        if (bytes.length == 4) {
            // RoCEv2 A17.4.1.2: IPv4 is mapped into IPv6.
            gid.set(JAVA_BYTE, 10, (byte) 0xFF);
            gid.set(JAVA_BYTE, 11, (byte) 0xFF);
        }
        ah.set(JAVA_BYTE, Layout.AH_SGID_INDEX, domain.device.gidIndex);
        ah.set(JAVA_BYTE, Layout.AH_HOP_LIMIT, HOPS);
        ah.set(JAVA_BYTE, Layout.AH_IS_GLOBAL, (byte) 1);
        ah.set(JAVA_BYTE, Layout.AH_PORT_NUM, Device.PORT);
    }

    /** In the numbers of {@code ibv_mtu}: 1 is 256 bytes. */
    private static int mtu(int bytes) {
        if (bytes < 256 || bytes > 4096 || Integer.bitCount(bytes) != 1) {
            throw new IllegalArgumentException("a path MTU is 256, 512, 1024, 2048 or 4096 bytes, not " + bytes);
        }
        return Integer.numberOfTrailingZeros(bytes) - 7;
    }

    private void modify(MemorySegment attr, int mask) throws VerbsException {
        library.run("ibv_modify_qp", pointer, attr, mask);
    }

    /**
     * A call that posts a request.
     *
     * @param opcode what it does
     * @param pieces of memory that it has; {@link PostSend#sge} says which
     * @return the call
     */
    public PostSend postSend(Opcode opcode, int pieces) {
        checkOpen();
        return new PostSend(this, opcode, pieces);
    }

    /**
     * A call that posts a receive.
     *
     * @param pieces of memory that it has; {@link PostRecv#sge} says which
     * @return the call
     */
    public PostRecv postRecv(int pieces) {
        checkOpen();
        return new PostRecv(this, pieces);
    }
}
