package highwire.verbs;

import java.io.IOException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.time.Duration;
import java.util.Arrays;

/**
 * A completion queue. One thread polls it at a time; any number of threads post on queue pairs that complete into it.
 *
 * <p>Completions come from two places: the engine's ring, and a list in the heap for requests that a posting thread carried out itself. A queue
 * pair does the latter only while nothing of its is in the ring, so taking the list first keeps its order.
 */
public final class CompletionQueue extends VerbsObject {
    private static final VarHandle LOCAL_TAIL;
    private static final VarHandle LOCAL_HEAD;
    private static final VarHandle LOCK;

    static {
        try {
            MethodHandles.Lookup lookup = MethodHandles.lookup();
            LOCAL_TAIL = lookup.findVarHandle(CompletionQueue.class, "localTail", long.class);
            LOCAL_HEAD = lookup.findVarHandle(CompletionQueue.class, "localHeadShared", long.class);
            LOCK = lookup.findVarHandle(CompletionQueue.class, "lock", int.class);
        } catch (ReflectiveOperationException e) {
            throw new ExceptionInInitializerError(e);
        }
    }

    /** Threads that may be about to add to the list at one time. */
    private static final int POSTERS_MAX = 64;

    final long handle;
    private final CompletionChannel channel;
    private final Counters counters;
    private final Arena arena;
    private final MemorySegment ring;
    private final long mask;
    private long head;
    private long tailCached;

    private final long[] localIds;
    private final long[] localWords;
    private final int localMask;
    private long localHead;
    private long localHeadShared;
    private long localTail;
    private int lock;
    private volatile boolean isArmed;
    private volatile QueuePair[] queuePairs = new QueuePair[2];
    /**
     * Receives that complete here and that peers may complete, the next one to check, and how many such
     * completions were polled.
     */
    private volatile Receives[] receives = new Receives[0];
    private int next;
    private long completed;

    private CompletionQueue(
            Context context, long handle, CompletionChannel channel, long bell, Arena arena, MemorySegment ring) {
        super(context, "completion queue", channel);
        this.handle = handle;
        this.channel = channel;
        this.arena = arena;
        this.ring = ring;
        int slots = Mapped.getInt(ring, Layout.RING_SLOT_COUNT_OFFSET);
        this.mask = slots - 1L;
        int local = Integer.highestOneBit(Math.max(slots, 2 * POSTERS_MAX) * 2 - 1);
        this.localIds = new long[local];
        this.localWords = new long[local];
        this.localMask = local - 1;
        begin();
        this.counters = context.meter.open(false);
        if (channel != null) {
            Mapped.putLongRelease(ring, Layout.RING_BELL_OFFSET, bell);
            channel.add(this);
        }
    }

    static CompletionQueue create(Context context, int capacity, CompletionChannel channel) throws VerbsException {
        if (capacity <= 0) {
            throw new IllegalArgumentException("a completion queue for " + capacity + " completions");
        }
        long bell = channel == null ? 0 : channel.bell();
        long[] made = context.frames.ask(Frames.CREATE_CQ, capacity, channel == null ? 0 : channel.number);
        Arena arena = context.resources.open();
        boolean isMade = false;
        try {
            MemorySegment ring = context.mapSegment(made[1], made[2], arena);
            ProducerRing.check(ring, Layout.RING_KIND_COMPLETION);
            CompletionQueue queue = new CompletionQueue(context, made[0], channel, bell, arena, ring);
            isMade = true;
            return queue;
        } catch (IOException e) {
            throw Context.cannotMap("the completion queue", e);
        } finally {
            if (!isMade) {
                context.resources.close(arena);
                context.frames.askUninterrupted(Frames.DESTROY_CQ, made[0]);
            }
        }
    }

    /** {@return how many completions it holds} */
    public int capacity() {
        return (int) mask + 1;
    }

    /** {@return completions that were lost because the queue was full; the engine has broken the queue pairs that lost them} */
    public long overruns() {
        return Mapped.getLongAcquire(ring, Layout.RING_OVERRUN_OFFSET);
    }

    /**
     * Takes one completion.
     *
     * @param into is filled
     * @return false if none waits
     */
    public boolean poll(Completion into) {
        if (localHead != (long) LOCAL_TAIL.getAcquire(this)) {
            takeLocal(into);
            return true;
        }
        if (head == tailCached && !isRingChanged()) {
            return false;
        }
        return head != tailCached || head != Mapped.getLongAcquire(ring, Layout.RING_TAIL_OFFSET)
                ? pollRing(into)
                : completed != Mapped.getLongAcquire(ring, Layout.RING_COMPLETED_OFFSET) && pollCompleted(into);
    }

    /**
     * Whether the engine or a peer may have written into the ring. Asked behind an Acquire, which no load overtakes. So plain loads look anew
     * each time, and the mapping is checked once for both. What they find is read again with Acquire before it is used.
     */
    private boolean isRingChanged() {
        return (head ^ Mapped.hint(ring, Layout.RING_TAIL_OFFSET) | completed ^ Mapped.hint(ring, Layout.RING_COMPLETED_OFFSET)) != 0;
    }

    /** A completion that a peer has made. */
    private boolean pollCompleted(Completion into) {
        long all = Mapped.getLongAcquire(ring, Layout.RING_COMPLETED_OFFSET);
        Receives[] queues = receives;
        boolean isAwaited = false;
        for (int i = 0; i < queues.length; i++) {
            next = next + 1 < queues.length ? next + 1 : 0;
            if (queues[next].take(into)) {
                completed++;
                counters.addFirst(1);
                return true;
            }
            isAwaited |= queues[next].isAwaited();
        }
        if (!isAwaited) {
            // Completions of a queue pair that was reset or closed belong to no queue pair.
            completed = all;
        }
        return false;
    }

    private boolean isCompleted() {
        if (completed != Mapped.getLongAcquire(ring, Layout.RING_COMPLETED_OFFSET)) {
            for (Receives queue : receives) {
                if (queue.isCompleted()) {
                    return true;
                }
            }
        }
        return false;
    }

    /**
     * Takes completions, oldest first of each queue pair.
     *
     * @param into are filled from the first on
     * @return how many were
     */
    public int poll(Completion[] into) {
        int count = 0;
        while (count < into.length && poll(into[count])) {
            count++;
        }
        return count;
    }

    /**
     * A call that polls for up to so many completions, for repeated use.
     *
     * @param count completions at most
     * @return the call
     */
    public PollCq pollCall(int count) {
        return new PollCq(this, count);
    }

    private boolean pollRing(Completion into) {
        if (head == tailCached) {
            long tail = Mapped.getLongAcquire(ring, Layout.RING_TAIL_OFFSET);
            if (tail - head < 0 || tail - head > mask + 1) {
                throw new IllegalStateException("the completion queue is corrupt: tail " + tail + ", head " + head);
            }
            tailCached = tail;
        }
        // A completion that a thread made before it posted the request that has just completed goes first.
        if (localHead != (long) LOCAL_TAIL.getAcquire(this)) {
            takeLocal(into);
            return true;
        }
        if (completed != Mapped.getLongAcquire(ring, Layout.RING_COMPLETED_OFFSET) && pollCompleted(into)) {
            return true;
        }
        long slot = Layout.RING_HEADER_BYTES + (head & mask) * Layout.CQE_BYTES;
        into.read(ring, slot);
        head++;
        // Release: this thread's reads of the slot are done before the engine may overwrite it.
        Mapped.putLongRelease(ring, Layout.RING_HEAD_OFFSET, head);
        QueuePair owner = find(into.qpn);
        if (owner != null) {
            owner.onCompletion(into);
        }
        counters.addFirst(1);
        if (into.status != 0) {
            onFailure(into);
        }
        return true;
    }

    private void onFailure(Completion failed) {
        counters.addSecond(1);
        FlightEvents.FailedCompletion event = new FlightEvents.FailedCompletion();
        if (event.shouldCommit()) {
            event.qpn = failed.qpn;
            event.wrId = failed.wrId;
            event.status = failed.status().name();
            event.commit();
        }
    }

    private void takeLocal(Completion into) {
        counters.addFirst(1);
        int at = (int) localHead & localMask;
        long word = localWords[at];
        into.wrId = localIds[at];
        into.status = 0;
        into.opcode = (int) (word >>> 24) & 0xFF;
        into.flags = 0;
        into.byteLen = (int) (word >>> 32);
        into.imm = 0;
        into.qpn = (int) word & 0xFF_FFFF;
        into.sourceQpn = 0;
        localHead++;
        // Release: this thread has read the place before a poster may use it again.
        LOCAL_HEAD.setRelease(this, localHead);
    }

    /** Whether this thread may carry out a request: its completion will find room. */
    boolean hasLocalRoom() {
        return (long) LOCAL_TAIL.getOpaque(this) - (long) LOCAL_HEAD.getAcquire(this) < localMask + 1 - POSTERS_MAX;
    }

    /** Adds a completion of a request that this thread carried out. */
    void addLocal(long wrId, int qpn, int opcode, int byteLen) {
        while (!LOCK.weakCompareAndSetAcquire(this, 0, 1)) {
            Thread.onSpinWait();
        }
        int at = (int) localTail & localMask;
        localIds[at] = wrId;
        localWords[at] = (long) byteLen << 32 | (long) opcode << 24 | qpn;
        LOCAL_TAIL.setRelease(this, localTail + 1);
        LOCK.setRelease(this, 0);
        if (channel != null) {
            // The completion is visible before this thread looks for a sleeper; the sleeper arms before it
            // looks.
            VarHandle.fullFence();
            if (isArmed) {
                isArmed = false;
                channel.report(this);
            }
        }
    }

    /** {@return whether a completion waits; asked by the thread that polls} */
    public boolean hasCompletion() {
        return localHead != (long) LOCAL_TAIL.getAcquire(this)
                || isRingChanged() && (head != Mapped.getLongAcquire(ring, Layout.RING_TAIL_OFFSET) || isCompleted());
    }

    /** Whether a peer has rung because of a completion here. */
    boolean hasRung() {
        return isArmed && Mapped.getLongAcquire(ring, Layout.RING_ARM_OFFSET) == 0 && isCompleted();
    }

    /**
     * Asks for one event on the channel at the next completion. Completions that wait already bring none: poll once more afterwards.
     *
     * @param solicitedOnly only for messages whose sender asked for it, and for failures
     * @throws IllegalStateException the queue has no channel
     */
    public void requestNotify(boolean solicitedOnly) {
        checkOpen();
        if (channel == null) {
            throw new IllegalStateException("the completion queue was made without a channel");
        }
        isArmed = true;
        long what = solicitedOnly ? Layout.ARM_SOLICITED : Layout.ARM_NEXT;
        long armed;
        do {
            armed = Mapped.getLongOpaque(ring, Layout.RING_ARM_OFFSET);
        } while (armed < what && !Mapped.LONG.compareAndSet(ring, Layout.RING_ARM_OFFSET, armed, what));
        VarHandle.fullFence();
    }

    /**
     * Sleeps until a completion waits. For a queue that has its channel to itself; queues that share one are told apart by
     * {@link CompletionChannel#await}.
     *
     * @param timeout how long at most
     * @return false if that passed first
     * @throws EngineGoneException the engine has ended
     * @throws InterruptedException the thread was interrupted
     */
    public boolean await(Duration timeout) throws EngineGoneException, InterruptedException {
        long deadline = System.nanoTime() + Timeouts.nanos(timeout);
        while (!hasCompletion()) {
            requestNotify(false);
            if (hasCompletion()) {
                return true;
            }
            long left = deadline - System.nanoTime();
            if (left <= 0) {
                return false;
            }
            channel.await(Duration.ofNanos(left));
        }
        return true;
    }

    synchronized void addReceives(QueuePair queuePair, Receives queue) {
        if (find(queuePair.qpn()) == null) {
            add(queuePair);
        }
        Receives[] more = Arrays.copyOf(receives, receives.length + 1);
        more[receives.length] = queue;
        receives = more;
    }

    synchronized void removeReceives(QueuePair queuePair, Receives queue) {
        remove(queuePair);
        receives = Arrays.stream(receives).filter(other -> other != queue).toArray(Receives[]::new);
    }

    /** Completions of receives of a queue pair that the engine has left here and no thread has polled. */
    int waitingReceives(int qpn) {
        long tail = Mapped.getLongAcquire(ring, Layout.RING_TAIL_OFFSET);
        Completion waiting = new Completion();
        int count = 0;
        for (long at = head; at != tail; at++) {
            waiting.read(ring, Layout.RING_HEADER_BYTES + (at & mask) * Layout.CQE_BYTES);
            count += waiting.qpn == qpn && waiting.isReceive() ? 1 : 0;
        }
        return count;
    }

    synchronized void add(QueuePair queuePair) {
        QueuePair[] old = queuePairs;
        int count = 1;
        for (QueuePair known : old) {
            count += known == null ? 0 : 1;
        }
        QueuePair[] wider = new QueuePair[Math.max(2, Integer.highestOneBit(count) * 4)];
        for (QueuePair known : old) {
            if (known != null) {
                put(wider, known);
            }
        }
        put(wider, queuePair);
        queuePairs = wider;
    }

    synchronized void remove(QueuePair queuePair) {
        QueuePair[] fewer = new QueuePair[queuePairs.length];
        for (QueuePair known : queuePairs) {
            if (known != null && known != queuePair) {
                put(fewer, known);
            }
        }
        queuePairs = fewer;
    }

    private static void put(QueuePair[] table, QueuePair queuePair) {
        int at = queuePair.qpn() & table.length - 1;
        while (table[at] != null && table[at] != queuePair) {
            at = at + 1 & table.length - 1;
        }
        table[at] = queuePair;
    }

    private QueuePair find(int qpn) {
        QueuePair[] table = queuePairs;
        for (int at = qpn & table.length - 1; table[at] != null; at = at + 1 & table.length - 1) {
            if (table[at].qpn() == qpn) {
                return table[at];
            }
        }
        return null;
    }

    @Override
    void destroy() throws VerbsException {
        context.frames.askUninterrupted(Frames.DESTROY_CQ, handle);
    }

    @Override
    void release() {
        context.meter.close(counters);
        if (channel != null) {
            channel.remove(this);
        }
        context.resources.close(arena);
    }
}
