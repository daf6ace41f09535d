package highwire.rpc;

import highwire.verbs.Access;
import highwire.verbs.Completion;
import highwire.verbs.CompletionChannel;
import highwire.verbs.CompletionQueue;
import highwire.verbs.ConnectOptions;
import highwire.verbs.Context;
import highwire.verbs.Endpoint;
import highwire.verbs.EngineGoneException;
import highwire.verbs.MemoryRegion;
import highwire.verbs.Opcode;
import highwire.verbs.PostRecv;
import highwire.verbs.PostSend;
import highwire.verbs.ProtectionDomain;
import highwire.verbs.QpState;
import highwire.verbs.QpAttr;
import highwire.verbs.QueuePair;
import highwire.verbs.QueuePairConfig;
import highwire.verbs.RdmaArena;
import highwire.verbs.ReceiveRequest;
import highwire.verbs.SendRequest;
import highwire.verbs.Service;
import highwire.verbs.VerbsException;
import highwire.verbs.VerbsObject;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Iterator;

/**
 * One end of a session: slots to receive in and slots to send from, and a queue pair that WRITEs from these into the peer's.
 *
 * <pre>
 *  a slot:  ........ arguments, rounded up to 8 | method or status u32, slot u32 | call u64 | length u32, sequence u32
 * </pre>
 *
 * <p>A message ends where its slot ends, and the last eight bytes of a WRITE become visible last: a reader that sees the expected sequence number there sees
 * the whole message.
 */
final class Slots implements AutoCloseable {
    static final int HEADER_BYTES = 24;
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();
    private static final VarHandle INT = ValueLayout.JAVA_INT.varHandle();
    /** After this many messages a send is signaled, to tell how far the send queue is. */
    private static final int SIGNAL_EVERY = 16;

    final RpcOptions options;
    final QueuePair qp;
    final CompletionQueue cq;
    private final CompletionChannel channel;
    private final ProtectionDomain pd;
    /** All objects, in the order in which they must be closed. */
    private final ArrayDeque<VerbsObject> objects = new ArrayDeque<>();
    private final MemoryRegion memory;
    private final MemorySegment bytes;
    private final PostSend[] quiet;
    private final PostSend[] signaled;
    private final PostRecv receive;
    private final Completion completion = new Completion();
    private long sent;
    private final Context context;
    private long peerAddress;
    private int peerKey;
    private boolean hasFailed;
    private boolean isNear;

    Slots(Context context, RpcOptions options) throws VerbsException {
        this.context = context;
        this.options = options;
        int total = options.slots() * options.slotBytes();
        int depth = Math.max(2 * options.slots(), 2 * SIGNAL_EVERY);
        boolean isMade = false;
        try {
            pd = hold(context.protectionDomain());
            // Received slots, sent slots, headers to gather.
            RdmaArena arena = hold(context.arena(2L * total + (long) options.slots() * 64));
            memory = hold(pd.register(arena.segment(), Access.ALL));
            channel = options.mode() == RpcMode.BLOCKING ? hold(context.completionChannel()) : null;
            cq = hold(channel == null ? context.completionQueue(4 * depth) : context.completionQueue(4 * depth, channel));
            qp = hold(pd.queuePair(QueuePairConfig.of(Service.RC, cq).withDepth(depth, depth)));
            bytes = memory.segment();
            quiet = new PostSend[options.slots()];
            signaled = new PostSend[options.slots()];
            receive = channel == null ? null : qp.postRecv(new ReceiveRequest());
            qp.prepare(Access.REMOTE_WRITE | Access.REMOTE_READ);
            for (int i = 0; receive != null && i < depth; i++) {
                receive.exec();
            }
            isMade = true;
        } finally {
            if (!isMade) {
                closeObjects();
            }
        }
    }

    private <T extends VerbsObject> T hold(T object) {
        objects.push(object);
        return object;
    }

    /** The data that the peer needs. */
    String introduction() {
        return qp.endpoint() + " " + memory.address() + " " + Integer.toUnsignedString(memory.rkey());
    }

    /** Connects to the peer, from its data. */
    void connect(String introduction) throws VerbsException, RpcClosedException {
        String[] words = introduction.split(" ");
        Endpoint peer;
        try {
            peer = Endpoint.parse(words[0]);
            peerAddress = Long.parseLong(words[1]);
            peerKey = Integer.parseUnsignedInt(words[2]);
        } catch (IllegalArgumentException | ArrayIndexOutOfBoundsException e) {
            throw new RpcClosedException("the peer introduced itself as `" + introduction + "`", e);
        }
        for (int slot = 0; slot < options.slots(); slot++) {
            quiet[slot] = call(slot, false);
            signaled[slot] = call(slot, true);
        }
        qp.connect(peer, ConnectOptions.DEFAULT);
        isNear = peer.address().equals(context.address());
    }

    boolean isServed() {
        return context.valid();
    }

    /** @throws RpcClosedException the engine serves no longer */
    void checkEngine() throws RpcClosedException {
        if (!isServed()) {
            String reason = context.failure();
            throw new RpcClosedException(reason == null ? "the context was closed" : reason);
        }
    }

    /**
     * Whether the peer has the same engine, which then takes no part in messages. Otherwise a polling thread
     * keeps that engine's thread from its core.
     */
    boolean isNear() {
        return isNear;
    }

    /** A WRITE of two pieces: the arguments where they were marshalled, and the header. */
    private PostSend call(int slot, boolean isSignaled) {
        Opcode opcode = options.mode() == RpcMode.BLOCKING ? Opcode.WRITE_WITH_IMM : Opcode.WRITE;
        return qp.postSend(new SendRequest(opcode).imm(slot).signaled(isSignaled).remote(peerAddress, peerKey)
                .sge(memory, sendAt(slot), 0).sge(memory, headerAt(slot), HEADER_BYTES));
    }

    private long receiveEnd(int slot) {
        return (slot + 1L) * options.slotBytes();
    }

    private long sendAt(int slot) {
        return (long) (options.slots() + slot) * options.slotBytes();
    }

    private long headerAt(int slot) {
        return 2L * options.slots() * options.slotBytes() + slot * 64L;
    }

    /** The place to marshal the arguments of a slot. */
    MemorySegment outgoing(int slot) {
        return bytes.asSlice(sendAt(slot), options.maxBytes());
    }

    /** Sends the marshalled message. */
    void send(int slot, int code, long callId, int length, int sequence) throws RpcClosedException {
        if (length < 0 || length > options.maxBytes()) {
            throw new IllegalArgumentException(length + " bytes; a slot holds " + options.maxBytes());
        }
        long header = headerAt(slot);
        INT.set(bytes, header, code);
        INT.set(bytes, header + 4, slot);
        LONG.set(bytes, header + 8, callId);
        INT.set(bytes, header + 16, length);
        INT.set(bytes, header + 20, sequence);
        int rounded = length + 7 & ~7;
        PostSend call = sent++ % SIGNAL_EVERY == SIGNAL_EVERY - 1 ? signaled[slot] : quiet[slot];
        call.request(0).sge(0, sendAt(slot), rounded)
                .remoteAddress(peerAddress + receiveEnd(slot) - HEADER_BYTES - rounded);
        call.exec();
        if (sent % SIGNAL_EVERY == 0 && receive == null) {
            reap();
        }
    }

    /** Takes completions of sends, in a queue that no other completions use. */
    void reap() throws RpcClosedException {
        while (cq.poll(completion)) {
            note();
        }
    }

    private void note() throws RpcClosedException {
        if (!completion.isSuccess()) {
            hasFailed = true;
        }
        if (hasFailed) {
            throw new RpcClosedException("the connection has failed: " + completion);
        }
        if (completion.isReceive()) {
            receive.exec();
        }
    }

    /** Whether the message with this sequence number has come. */
    boolean hasCome(int slot, int sequence) {
        return (int) ((long) LONG.getAcquire(bytes, receiveEnd(slot) - 8) >>> 32) == sequence;
    }

    int code(int slot) {
        return (int) INT.get(bytes, receiveEnd(slot) - HEADER_BYTES);
    }

    long callId(int slot) {
        return (long) LONG.get(bytes, receiveEnd(slot) - 16);
    }

    /** The length in the message's header; within its slot, even if the header says more. */
    int length(int slot) {
        return Math.clamp((int) INT.get(bytes, receiveEnd(slot) - 8), 0, options.maxBytes());
    }

    /** The message's bytes, rounded up to eight. */
    MemorySegment incoming(int slot, int length) {
        int rounded = length + 7 & ~7;
        return bytes.asSlice(receiveEnd(slot) - HEADER_BYTES - rounded, rounded);
    }

    /** Sleeps until a message comes; true if one has. For blocking sessions. */
    boolean sleep(Duration timeout) throws EngineGoneException, InterruptedException, RpcClosedException {
        boolean hasCome = cq.await(timeout);
        reap();
        return hasCome;
    }

    /** Ends the queue pair first, so that the peer's WRITEs find everything either open or closed. */
    @Override
    public void close() throws VerbsException {
        if (!qp.isClosed() && qp.state() != QpState.RESET) {
            try {
                qp.modify(new QpAttr().state(QpState.ERROR));
            } catch (VerbsException e) {
                // The queue pair has gone with its engine.
            }
        }
        VerbsException failure = closeObjects();
        if (failure != null) {
            throw failure;
        }
    }

    /**
     * Closes what can be closed now; returns why something could not, or null. A peer may be in the middle of a WRITE; what is left then can be
     * closed later, by another call.
     */
    private synchronized VerbsException closeObjects() {
        VerbsException failure = null;
        for (Iterator<VerbsObject> left = objects.iterator(); left.hasNext();) {
            VerbsObject object = left.next();
            try {
                object.close();
            } catch (VerbsException e) {
                failure = failure == null ? e : failure;
            }
            if (object.isClosed()) {
                left.remove();
            }
        }
        return failure;
    }
}
