package highwire.netty;

import highwire.verbs.Completion;
import highwire.verbs.CompletionQueue;
import highwire.verbs.ConnectOptions;
import highwire.verbs.Endpoint;
import highwire.verbs.PostRecv;
import highwire.verbs.QueuePair;
import highwire.verbs.QueuePairConfig;
import highwire.verbs.ReceiveRequest;
import highwire.verbs.Service;
import highwire.verbs.VerbsException;
import io.netty.buffer.ByteBuf;
import io.netty.buffer.ByteBufAllocator;
import java.io.IOException;
import java.net.InetAddress;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.locks.LockSupport;

/**
 * One end of a stream of bytes each way over an RC queue pair. Each end WRITEs into blocks of the other's {@link Memory}, and then how far it has come.
 *
 * <p>A block can be written again once the stream has left it and all bytes of it that were lent to the pipeline have come back. Blocks come back in any order. So bytes that a
 * program keeps for ever cost their block and do not stop the stream; once half of the blocks are lent, bytes are copied instead.
 *
 * <p>An event loop owns it. Calls to the engine ({@link #Link}, {@link #connect}, the end of {@link #close}) are for the thread that makes those.
 */
final class Link {
    /** Shorter reads are copied: that costs less than a buffer of their own. */
    static final int LENT_MIN = 1024;
    private static final int RECEIVES = 64;
    /** Between two looks at what is on its way while a link closes. */
    private static final long DRAIN_NANOS = 50_000;

    private final Device device;
    private final CompletionQueue completions;
    private final QueuePair qp;
    private final Memory memory;
    private final Completion completion = new Completion();
    private final Block[] order;
    private final ConcurrentLinkedQueue<Block> freed = new ConcurrentLinkedQueue<>();
    private Outgoing outgoing;
    private PostRecv receive;
    private volatile HighwireIoHandler owner;
    private String failure;
    private boolean isClosed;
    /** Bytes that the peer has written, and those that were read. */
    private long arrived;
    private long read;
    private boolean isPeerFinished;
    private boolean isPeerClosed;
    private long seenTail;
    /** Blocks of the incoming stream that the peer may use or has used, and blocks that the stream has left. */
    private long posted;
    private long left;
    private long turn;

    /**
     * Makes an end that has no peer yet.
     *
     * @param device the engine
     * @throws VerbsException the engine refuses
     */
    Link(Device device) throws VerbsException {
        this.device = device;
        CompletionQueue queue = null;
        QueuePair pair = null;
        Memory room = null;
        boolean isMade = false;
        try {
            queue = device.context().completionQueue(Outgoing.DEPTH + RECEIVES, device.channel());
            pair = device.domain().queuePair(new QueuePairConfig(Service.RC, queue, queue, null, Outgoing.DEPTH, RECEIVES, 1, 1, 8));
            room = new Memory(device);
            pair.prepare(Memory.ACCESS);
            isMade = true;
        } finally {
            if (!isMade) {
                Device.close(pair, queue);
                if (room != null) {
                    room.release();
                }
            }
        }
        completions = queue;
        qp = pair;
        memory = room;
        order = new Block[memory.blocks];
        for (int i = 0; i < order.length; i++) {
            order[i] = new Block(this, i);
            order[i].begin();
        }
        posted = order.length;
    }

    /** @return what the peer needs to know. */
    String introduction() {
        return qp.endpoint() + " " + memory.block + " " + memory.blocks + " " + memory.region.address() + " " + Integer.toUnsignedString(memory.region.rkey());
    }

    /**
     * Connects to the peer.
     *
     * @param introduction the peer's
     * @throws IOException it is none, or the engine refuses
     */
    void connect(String introduction) throws IOException {
        Endpoint peer;
        String[] words = introduction.split(" ");
        try {
            if (words.length != 5) {
                throw new IllegalArgumentException(words.length + " words");
            }
            peer = Endpoint.parse(words[0]);
            outgoing = new Outgoing(
                    this, peer.address().equals(address()), Integer.parseInt(words[1]), Integer.parseInt(words[2]), Long.parseLong(words[3]),
                    Integer.parseUnsignedInt(words[4]));
        } catch (IllegalArgumentException e) {
            throw new IOException("the peer introduces itself as `" + introduction + "`: " + e.getMessage(), e);
        }
        if (!outgoing.isNear()) {
            receive = qp.postRecv(new ReceiveRequest());
            for (int i = 0; i < RECEIVES; i++) {
                receive.exec();
            }
        }
        ConnectOptions options = ConnectOptions.DEFAULT;
        qp.connect(peer, new ConnectOptions(Memory.ACCESS, options.mtu(), options.irn(), options.timeout(), options.retryCount(), 7));
    }

    private InetAddress address() {
        return device.context().address();
    }

    Device device() {
        return device;
    }

    QueuePair qp() {
        return qp;
    }

    Memory memory() {
        return memory;
    }

    Outgoing outgoing() {
        return outgoing;
    }

    /** The event loop whose turn looks at this link. */
    void owner(HighwireIoHandler handler) {
        owner = handler;
        device.add(completions, this);
    }

    /** Any thread: the owner has something to look at here. */
    void wakeOwner() {
        HighwireIoHandler handler = owner;
        if (handler != null) {
            handler.wakeup();
        }
    }

    /** Any thread: no byte of a block is lent any more, and the stream has left it. */
    void freed(Block block) {
        freed.add(block);
        HighwireIoHandler handler = owner;
        if (handler != null && !handler.isLoop(Thread.currentThread())) {
            handler.wakeup();
        }
    }

    /** Whether a turn has anything to do here, apart from what the channel wants to read or write. */
    boolean isBusy() {
        return canCredit() || completions.hasCompletion() || failure == null && device.failure() != null;
    }

    /** Takes completions, and gives blocks back to the peer. */
    void turn() {
        if (isClosed) {
            return;
        }
        if (device.failure() != null) {
            fail("the engine has ended: " + device.failure());
        }
        reap();
        while (canCredit()) {
            Block block = freed.poll();
            block.begin();
            order[(int) (posted % order.length)] = block;
            outgoing.credit((int) (posted % order.length), posted + 1 << 16 | block.index);
            posted++;
        }
    }

    private boolean canCredit() {
        return !freed.isEmpty() && failure == null && !isPeerFinished() && !isPeerClosed && outgoing.hasSlot();
    }

    /** Takes completions. */
    void reap() {
        while (completions.poll(completion)) {
            if (!completion.isSuccess()) {
                fail("an operation on the peer's memory ended with " + completion.status());
            } else if (completion.isReceive()) {
                receive.exec();
            } else {
                outgoing.completed(completion.wrId());
            }
        }
    }

    /** The stream is broken. The first reason counts. */
    void fail(String reason) {
        if (failure == null) {
            failure = reason;
        }
    }

    String failure() {
        return failure;
    }

    /** Whether the peer has written more, or writes no more. */
    boolean hasInput() {
        return arrived != read || memory.tail() != seenTail;
    }

    /** How many bytes can be read in one piece. */
    int readable() {
        look();
        return (int) Math.min(arrived - read, memory.block - read % memory.block);
    }

    private void look() {
        long tail = memory.tail();
        if (tail == seenTail) {
            return;
        }
        long bytes = tail >>> 2;
        if (bytes < arrived || bytes > posted * memory.block) {
            fail("the peer says that it has written " + bytes + " bytes, of at most " + posted * memory.block);
            return;
        }
        seenTail = tail;
        arrived = bytes;
        isPeerFinished = (tail & Memory.FINISHED) != 0;
        isPeerClosed = (tail & Memory.CLOSED) != 0;
    }

    /** Whether the peer writes no more; what it has written may still be unread. */
    boolean isPeerFinished() {
        look();
        return isPeerFinished;
    }

    /** Whether the peer reads no more. */
    boolean isPeerClosed() {
        look();
        return isPeerClosed;
    }

    /** Whether the next bytes should be lent instead of copied. */
    boolean mayLend(int length) {
        // Blocks that the stream has left and that are still lent, beside those that the peer has.
        long lent = left + order.length - posted - freed.size();
        return length >= LENT_MIN && lent < order.length / 2;
    }

    /** The next bytes where they lie. */
    ByteBuf lend(ByteBufAllocator allocator, int length) {
        Block block = block();
        ByteBuf lent = new LentByteBuf(allocator, memory, block, memory.received(place(), length));
        advance(length);
        return lent;
    }

    /** Copies the next bytes. */
    void copy(ByteBuf into, int length) {
        into.writeBytes(memory.received(place(), length));
        advance(length);
    }

    private Block block() {
        return order[(int) (read / memory.block % order.length)];
    }

    private int place() {
        return block().index * memory.block + (int) (read % memory.block);
    }

    private void advance(int length) {
        Block block = block();
        read += length;
        if (read % memory.block == 0) {
            left++;
            block.release();
        }
    }

    /** From now on the peer rings. Look at the link once more, behind a full fence. */
    void lieDown(long bell, boolean wantsRoom) {
        memory.alarm(++turn << 33 | bell << 1 | (wantsRoom ? Memory.WANTS_ROOM : 0));
        if (!outgoing.isNear() || outgoing.isPending()) {
            completions.requestNotify(false);
        }
    }

    void getUp() {
        memory.alarm(0);
    }

    /**
     * Ends this end. What it has written reaches the peer, as long as that is there.
     *
     * @param last what the peer is told, flags of a tail; 0 for nothing
     */
    void close(long last) {
        if (isClosed) {
            return;
        }
        if (last != 0 && failure == null) {
            outgoing.finish(last);
        }
        isClosed = true;
        owner = null;
        long deadline = System.nanoTime() + 1_000_000L * Settings.patienceMillis();
        Device.control(() -> drain(deadline));
    }

    /** What is on its way goes on; other calls to the engine take turns with it. */
    private void drain(long deadline) {
        reap();
        if (outgoing != null && outgoing.isPending() && failure == null && device.failure() == null && System.nanoTime() < deadline) {
            LockSupport.parkNanos(DRAIN_NANOS);
            Device.control(() -> drain(deadline));
            return;
        }
        device.remove(completions);
        Device.close(qp, completions);
        memory.release();
    }
}
