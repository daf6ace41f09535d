package highwire.verbs;

import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;

/**
 * A queue pair. One thread posts sends at a time, and one posts receives.
 *
 * <p>On RC to a queue pair of the same engine the posting thread carries requests out itself, as long as none
 * of this queue pair is in the engine's hands; all others are left in the ring for the engine.
 */
public final class QueuePair extends VerbsObject implements ConnectedQueuePair {
    private static final VarHandle RETIRED;
    private static final VarHandle SEEN;

    static {
        try {
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            RETIRED = lookup.findVarHandle(QueuePair.class, "retired", long.class);
            SEEN = lookup.findVarHandle(QueuePair.class, "signaledSeen", long.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    private final long handle;
    private final int qpn;
    private final int psn;
    private final Service service;
    private final ProtectionDomain domain;
    private final CompletionQueue sendCq;
    private final CompletionQueue recvCq;
    private final ProducerRing sends;
    private final ProducerRing receives;
    /** Null where receives are shared, or of a service without connections between two queue pairs. */
    private final Receives onDemand;
    private final int sendBell;
    private final int receiveBell;
    private final int maxInline;
    private final DoorbellBoard board;
    private final DirectPath direct;
    private Gid peerGid = new Gid(0, 0);
    private final Counters counters;
    private volatile QpState state = QpState.RESET;
    private volatile boolean isDirect;
    /** A request has failed: the engine has put the queue pair into error. */
    private volatile boolean isBroken;

    /** Requests in the ring so far, and the number of each one that makes a completion. */
    private long posted;
    private long signaled;
    private final long[] signaledAs;
    /** The completions that the polling thread has seen. */
    private long signaledSeen;
    private long retired;

    private QueuePair(ProtectionDomain domain, QueuePairConfig config, long[] made, ProducerRing sends, ProducerRing receives) {
        super(domain.context, "queue pair", domain, config.sendCq(), config.recvCq() == config.sendCq() ? null : config.recvCq(),
                config.srq());
        this.domain = domain;
        this.handle = made[0];
        this.qpn = (int) made[1];
        this.psn = (int) made[2];
        this.sendBell = (int) made[5];
        this.receiveBell = (int) made[8];
        this.service = config.service();
        this.sendCq = config.sendCq();
        this.recvCq = config.recvCq();
        this.onDemand = receives != null && service == Service.RC ? new Receives(receives) : null;
        this.maxInline = config.maxInline();
        this.sends = sends;
        this.receives = receives;
        this.board = context.board;
        this.direct = new DirectPath(context, sends.memory, qpn);
        this.signaledAs = new long[sends.slotCount() * 4];
        begin();
        this.counters = context.meter.open(true);
        sendCq.add(this);
        if (onDemand != null) {
            recvCq.addReceives(this, onDemand);
        }
    }

    static QueuePair create(ProtectionDomain domain, QueuePairConfig config) throws VerbsException {
        Context context = domain.context;
        config.sendCq().checkOpen();
        config.recvCq().checkOpen();
        long srq = 0;
        if (config.srq() != null) {
            config.srq().checkOpen();
            srq = config.srq().handle;
        }
        long[] made = context.frames.ask(
                Frames.CREATE_QP, domain.handle, config.service().number, config.sendCq().handle, config.recvCq().handle, srq,
                config.maxSendWr(), config.maxRecvWr(), config.maxSendSge() | (long) config.maxRecvSge() << 32,
                config.maxInline(), 0, 1);
        ProducerRing sends = null;
        ProducerRing receives = null;
        boolean isMade = false;
        try {
            sends = ProducerRing.map(context, Layout.RING_KIND_SEND, made[3], made[4]);
            receives = made[6] == 0
                    ? null
                    : ProducerRing.map(context, Layout.RING_KIND_RECEIVE, made[6], made[7]);
            if (!context.board.has((int) made[5]) || !context.board.has((int) made[8])) {
                throw new IOException("its doorbells are not on the board");
            }
            QueuePair queuePair = new QueuePair(domain, config, made, sends, receives);
            isMade = true;
            return queuePair;
        } catch (IOException e) {
            throw Context.cannotMap("the queue pair", e);
        } finally {
            if (!isMade) {
                close(sends);
                close(receives);
                context.frames.askUninterrupted(Frames.DESTROY_QP, made[0]);
            }
        }
    }

    private static void close(ProducerRing ring) {
        if (ring != null) {
            ring.close();
        }
    }

    @Override
    public int qpn() {
        return qpn;
    }

    /** {@return its service} */
    public Service service() {
        return service;
    }

    @Override
    public Endpoint endpoint() {
        return new Endpoint(context.address(), qpn, psn);
    }

    /** {@return the state to which this program has brought it; {@link #query} asks the engine} */
    public QpState state() {
        return state;
    }

    /**
     * Changes attributes and state.
     *
     * @param attr those to change
     * @throws WrongStateException there is no such change, or not with these attributes; the queue pair is as it was
     * @throws VerbsException the engine is gone
     */
    public void modify(QpAttr attr) throws VerbsException {
        checkOpen();
        isDirect = false;
        long[] words = new long[1 + QpAttr.WORDS];
        words[0] = handle;
        System.arraycopy(attr.words, 0, words, 1, QpAttr.WORDS);
        try {
            context.frames.ask(Frames.MODIFY_QP, words);
            if (attr.hasState()) {
                state = attr.state();
            }
            if (attr.hasPeer()) {
                peerGid = attr.gid();
                direct.connected(attr.remoteQpn());
            }
            if (state == QpState.RESET) {
                posted = 0;
                signaled = 0;
                SEEN.setRelease(this, 0L);
                RETIRED.setRelease(this, 0L);
                isBroken = false;
                if (onDemand != null) {
                    onDemand.reset(recvCq.waitingReceives(qpn));
                }
            }
        } finally {
            isDirect = service == Service.RC && state == QpState.RTS && peerGid.equals(context.gid);
        }
    }

    /**
     * Asks the engine for the queue pair's present attributes.
     *
     * @return all attributes
     * @throws VerbsException the engine is gone
     */
    public QpAttr query() throws VerbsException {
        checkOpen();
        return new QpAttr(context.frames.ask(Frames.QUERY_QP, handle));
    }

    @Override
    public void prepare(int access) throws VerbsException {
        modify(new QpAttr().state(QpState.INIT).access(access));
    }

    @Override
    public void connect(Endpoint peer, ConnectOptions options) throws VerbsException {
        if (state == QpState.RESET) {
            prepare(options.access());
        }
        int mtu = options.mtu() == 0 ? context.mtu() : Math.min(options.mtu(), context.mtu());
        QpAttr toRtr = new QpAttr().state(QpState.RTR).address(peer.address()).remoteQpn(peer.qpn()).pathMtu(mtu)
                .rqPsn(peer.psn());
        QpAttr toRts = new QpAttr().state(QpState.RTS).sqPsn(psn);
        if (service == Service.RC) {
            toRtr.maxDestRdAtomic(16).minRnrTimer(12);
            // No packet is lost between queue pairs of one engine.
            boolean irn = options.irn() && !Gid.of(peer.address()).equals(context.gid);
            toRts.maxRdAtomic(16).timeout(options.timeout()).retryCount(options.retryCount())
                    .rnrRetry(options.rnrRetry()).irn(irn);
        }
        FlightEvents.Connect event = new FlightEvents.Connect();
        event.begin();
        modify(toRtr);
        modify(toRts);
        if (event.shouldCommit()) {
            event.qpn = qpn;
            event.peer = peer.address().getHostAddress();
            event.peerQpn = peer.qpn();
            event.isOfSameEngine = Gid.of(peer.address()).equals(context.gid);
            event.commit();
        }
    }

    /**
     * Takes a UD queue pair from RESET to RTS.
     *
     * @param qkey the Q_Key that senders must name
     * @throws VerbsException why not
     */
    public void activate(int qkey) throws VerbsException {
        modify(new QpAttr().state(QpState.INIT).qkey(qkey));
        modify(new QpAttr().state(QpState.RTR));
        modify(new QpAttr().state(QpState.RTS).sqPsn(psn));
    }

    /**
     * A call that posts requests, in order, behind one doorbell.
     *
     * @param requests what they are
     * @return the call
     */
    public PostSend postSend(SendRequest... requests) {
        checkOpen();
        for (SendRequest request : requests) {
            check(request);
        }
        return new PostSend(this, requests);
    }

    private void check(SendRequest request) {
        if ((request.gid != null) != (service == Service.UD)) {
            throw new IllegalArgumentException(service == Service.UD ? "a datagram needs a destination" : service + " has one peer");
        }
        if (request.opcode.isRemote() && service == Service.UD
                || request.opcode.writesLocally() && service == Service.UC) {
            throw new IllegalArgumentException(service + " does not do " + request.opcode);
        }
        if (request.inline != null && request.inline.length > maxInline) {
            throw new IllegalArgumentException("at most " + maxInline + " bytes inline, not " + request.inline.length);
        }
        if (request.imageBytes() > sends.slotBytes) {
            throw new IllegalArgumentException("the request has more pieces than the queue pair was made for");
        }
        for (MemoryRegion region : request.regions) {
            if (region.domain != domain) {
                throw new IllegalArgumentException("the region belongs to another protection domain");
            }
        }
    }

    /**
     * A call that posts a receive.
     *
     * @param request what it receives into
     * @return the call
     */
    public PostRecv postRecv(ReceiveRequest request) {
        checkOpen();
        if (receives == null) {
            throw new IllegalStateException("the queue pair receives from its shared receive queue");
        }
        return new PostRecv(this, receives, onDemand, receiveBell, request);
    }

    /** Where an operation that is under way is announced. */
    MemorySegment sendRing() {
        return sends.memory;
    }

    /** Requests that were left to the engine so far. */
    long postedToEngine() {
        return posted;
    }

    /** Carries out as many requests as possible, and leaves the rest to the engine, in order. */
    void post(PostSend call) {
        PostSend.Request[] requests = call.requests;
        int done = 0;
        while (isDirect && done < requests.length && tryDirect(requests[done])) {
            done++;
        }
        if (done > 0) {
            counters.addFirst(done);
            call.taken(done);
        }
        if (done < requests.length) {
            postToRing(call, done);
        }
    }

    private void postToRing(PostSend call, int first) {
        PostSend.Request[] requests = call.requests;
        int count = requests.length - first;
        checkOpen();
        // A program that never polls finds the queue full, even if the engine has emptied it.
        if (!sends.hasRoom(count) || signaled + count - (long) SEEN.getAcquire(this) > signaledAs.length) {
            throw QueueFullException.INSTANCE;
        }
        for (int i = 0; i < count; i++) {
            PostSend.Request request = requests[first + i];
            // The program may have changed inline data meanwhile.
            if (!sends.renew(i, request, request.version) || request.isInline) {
                MemorySegment.copy(request.image, request.at, sends.memory, sends.slot(i), request.imageBytes);
            }
            posted++;
            if (request.isSignaled) {
                signaledAs[(int) signaled++ & signaledAs.length - 1] = posted;
            }
        }
        sends.publish(count);
        counters.addSecond(count);
        board.ring(sendBell);
        call.taken(requests.length);
    }

    /** Carries a request out in this thread, if all before it are done and the direct path takes it. */
    private boolean tryDirect(PostSend.Request request) {
        if ((long) RETIRED.getAcquire(this) != posted || isBroken || !request.hasOpenRegions() || !sendCq.hasLocalRoom()) {
            return false;
        }
        boolean isDone;
        try {
            isDone = direct.execute(request);
        } catch (IllegalStateException e) {
            // Another thread has closed memory that this one was copying. The engine refuses the request, as a card would.
            checkOpen();
            if (request.hasOpenRegions()) {
                throw e;
            }
            return false;
        }
        if (isDone && request.isSignaled) {
            sendCq.addLocal(request.wrId, qpn, request.opcode.completed, (int) request.total);
        }
        return isDone;
    }

    /** Called by the polling thread: a request of this queue pair has completed. */
    void onCompletion(Completion completion) {
        if (completion.isReceive()) {
            if (onDemand != null) {
                onDemand.onCompletion();
            }
            return;
        }
        if (completion.status != 0) {
            isBroken = true;
            return;
        }
        RETIRED.setRelease(this, signaledAs[(int) signaledSeen & signaledAs.length - 1]);
        SEEN.setRelease(this, signaledSeen + 1);
    }

    @Override
    void destroy() throws VerbsException {
        isDirect = false;
        direct.close();
        boolean isOver = false;
        try {
            context.frames.askUninterrupted(Frames.DESTROY_QP, handle);
            isOver = true;
        } catch (EngineGoneException | EngineTimeoutException e) {
            isOver = true;
            throw e;
        } finally {
            if (!isOver) {
                direct.reopen();
            }
        }
    }

    @Override
    void release() {
        context.meter.close(counters);
        direct.release();
        sendCq.remove(this);
        if (onDemand != null) {
            recvCq.removeReceives(this, onDemand);
        }
        sends.close();
        if (receives != null) {
            receives.close();
        }
    }
}
