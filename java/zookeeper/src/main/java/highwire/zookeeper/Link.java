package highwire.zookeeper;

import highwire.verbs.Access;
import highwire.verbs.Completion;
import highwire.verbs.CompletionChannel;
import highwire.verbs.CompletionQueue;
import highwire.verbs.ConnectOptions;
import highwire.verbs.Endpoint;
import highwire.verbs.MemoryRegion;
import highwire.verbs.Opcode;
import highwire.verbs.PostRecv;
import highwire.verbs.PostSend;
import highwire.verbs.QueuePair;
import highwire.verbs.QueuePairConfig;
import highwire.verbs.RdmaArena;
import highwire.verbs.ReceiveRequest;
import highwire.verbs.SendRequest;
import highwire.verbs.Service;
import highwire.verbs.VerbsException;
import java.io.IOException;
import java.net.InetAddress;
import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Queue;

/**
 * A stream of bytes each way between two ends: an RC queue pair, receives of one size, and SENDs of at most
 * the size of the peer's receives; or {@link Mailbox}es, if both ends have the same engine.
 *
 * <p>Receives complete into a queue of the owner's, sends into one of the link's own, which reports only
 * while bytes wait for room. Any thread sends; one thread takes the messages.
 */
public final class Link implements AutoCloseable {
    /** The number of a receive is the link's times this, and the receive's place. */
    static final int DEPTH_MAX = 1 << 8;

    private final InetAddress address;
    private final int depth;
    private final int segment;
    private final CompletionQueue sends;
    private final QueuePair qp;
    private final RdmaArena arena;
    private final MemoryRegion memory;
    private final ByteBuffer bytes;
    private final PostRecv[] receives;
    private final PostSend send;
    private final Completion completion = new Completion();
    private final ArrayDeque<ByteBuffer> backlog = new ArrayDeque<>();
    /** Null if the owner has no use for one. */
    private final Mailbox mailbox;
    private int peerSegment;
    private long sent;
    private long done;
    private String failure;
    private boolean isEnded;
    private boolean isClosed;

    /**
     * Makes an end that can receive but has no peer yet.
     *
     * @param device the engine
     * @param channel where its sends report
     * @param received where its receives complete
     * @param id the link's number at its owner
     * @param sleeper the thread that takes messages, if it polls mailboxes as well; else null
     * @throws VerbsException the engine refuses
     */
    Link(Device device, CompletionChannel channel, CompletionQueue received, int id, Sleeper sleeper) throws VerbsException {
        this.depth = Settings.depth();
        this.segment = Settings.segment();
        CompletionQueue queue = null;
        QueuePair pair = null;
        RdmaArena room = null;
        MemoryRegion region = null;
        Mailbox box = null;
        boolean isMade = false;
        try {
            queue = device.context().completionQueue(depth, channel);
            pair = device.domain().queuePair(
                    new QueuePairConfig(Service.RC, queue, received, null, depth, depth, 1, 1, 0));
            room = device.context().arena(2L * depth * segment);
            region = device.domain().register(room.segment(), Access.LOCAL_WRITE);
            box = sleeper == null ? null : new Mailbox(device, pair, queue, sleeper);
            // The peer can access nothing here but the receives, or the mailbox.
            pair.prepare(box == null ? 0 : Mailbox.ACCESS);
            isMade = true;
        } finally {
            if (!isMade) {
                Device.close(pair, queue, region, room, box);
            }
        }
        this.sends = queue;
        this.qp = pair;
        this.arena = room;
        this.memory = region;
        this.mailbox = box;
        this.address = device.context().address();
        this.bytes = memory.segment().asByteBuffer();
        this.send = qp.postSend(new SendRequest(Opcode.SEND).sge(memory, 0, 0));
        this.receives = new PostRecv[depth];
        for (int slot = 0; slot < depth; slot++) {
            receives[slot] = qp.postRecv(new ReceiveRequest()
                    .wrId((long) id * DEPTH_MAX + slot).sge(memory, (long) slot * segment, segment));
            receives[slot].exec();
        }
    }

    /**
     * The owner's number of the link whose receive completed.
     *
     * @param completion of a receive
     * @return the link's number
     */
    public static int idOf(Completion completion) {
        return (int) (completion.wrId() / DEPTH_MAX);
    }

    /** {@return what the peer needs to know} */
    public String introduction() {
        return qp.endpoint() + " " + segment + (mailbox == null ? "" : " " + mailbox.introduction());
    }

    /**
     * Connects to the peer.
     *
     * @param introduction the peer's
     * @throws IOException the introduction is invalid, or the engine refuses
     */
    public synchronized void connect(String introduction) throws IOException {
        String[] words = introduction.split(" ");
        try {
            if (words.length == 2 || words.length == 2 + Mailbox.WORDS) {
                Endpoint peer = Endpoint.parse(words[0]);
                peerSegment = Math.min(segment, Integer.parseInt(words[1]));
                if (peerSegment > 0) {
                    if (mailbox != null && words.length > 2 && peer.address().equals(address)) {
                        mailbox.connect(Arrays.copyOfRange(words, 2, words.length));
                    }
                    // A peer that takes nothing for a while is given time, as over TCP.
                    ConnectOptions options = ConnectOptions.DEFAULT;
                    qp.connect(peer, new ConnectOptions(0, options.mtu(), options.irn(), options.timeout(), options.retryCount(), 7));
                    return;
                }
            }
        } catch (IllegalArgumentException e) {
            throw new GreetingException("the peer introduces itself as `" + introduction + "`: " + e.getMessage());
        }
        throw new GreetingException("the peer introduces itself as `" + introduction + "`");
    }

    /**
     * Sends, or keeps the buffers until there is room. The link owns them.
     *
     * @param buffers in this order
     * @throws IOException the link is broken
     */
    public synchronized void send(ByteBuffer... buffers) throws IOException {
        if (isEnded) {
            return;
        }
        for (ByteBuffer buffer : buffers) {
            if (buffer.hasRemaining()) {
                backlog.add(buffer);
            }
        }
        flush();
    }

    /**
     * Sends as much as there is room for.
     *
     * @return whether nothing is kept any more
     * @throws IOException the link is broken
     */
    public synchronized boolean flush() throws IOException {
        if (hasMailbox()) {
            return post();
        }
        reap();
        while (!isEnded && !backlog.isEmpty()) {
            if (sent - done == depth) {
                sends.requestNotify(false);
                reap();
                if (sent - done == depth) {
                    return false;
                }
            }
            postSend();
        }
        return true;
    }

    private void postSend() {
        int at = (depth + (int) (sent % depth)) * segment;
        ByteBuffer slot = bytes.slice(at, peerSegment);
        fill(slot);
        send.request(0).wrId(sent).sge(0, at, slot.position());
        send.exec();
        sent++;
    }

    private void fill(ByteBuffer slot) {
        while (slot.hasRemaining() && !backlog.isEmpty()) {
            ByteBuffer next = backlog.getFirst();
            FrameReader.move(next, slot);
            if (!next.hasRemaining()) {
                backlog.removeFirst();
            }
        }
    }

    /** Puts as much as there is room for into the peer's mailbox. */
    private boolean post() throws IOException {
        checkWhole();
        try {
            while (!isEnded && !backlog.isEmpty()) {
                if (!mailbox.hasRoom()) {
                    return false;
                }
                ByteBuffer slot = mailbox.outgoing();
                fill(slot);
                mailbox.send(slot.position());
            }
            return true;
        } catch (IOException e) {
            // Bytes taken from the backlog are lost, so the next caller must hear of the failure, too.
            failure = e.getMessage();
            throw e;
        }
    }

    private void checkWhole() throws IOException {
        if (failure != null) {
            throw new IOException("the connection is broken: " + failure);
        }
    }

    private void reap() throws IOException {
        while (!isEnded && sends.poll(completion)) {
            if (!completion.isSuccess() && failure == null) {
                failure = "a SEND ended with " + completion.status();
            }
            done++;
        }
        checkWhole();
    }

    /**
     * Whether the peer has received everything sent. Until it has, the link reports when more has arrived.
     *
     * @return whether it has
     * @throws IOException the link is broken
     */
    public synchronized boolean isDrained() throws IOException {
        if (!flush()) {
            return false;
        }
        if (sent != done && !isEnded) {
            sends.requestNotify(false);
            reap();
        }
        return sent == done || isEnded;
    }

    /** {@return whether it has to wait for room before it can send more} */
    public synchronized boolean hasBacklog() {
        return !backlog.isEmpty();
    }

    /**
     * Takes the message of a receive, and posts the receive again.
     *
     * @param wrId of the completion
     * @param length of the completion
     * @param reader puts frames together
     * @param frames gets those that are complete
     * @throws IOException the peer has sent nonsense
     */
    public synchronized void take(long wrId, int length, FrameReader reader, Queue<ByteBuffer> frames) throws IOException {
        if (isEnded) {
            return;
        }
        int slot = (int) (wrId % DEPTH_MAX);
        reader.take(bytes.slice(slot * segment, length), frames);
        receives[slot].exec();
    }

    /** {@return whether both ends have a mailbox, so that all messages come through it} */
    public boolean hasMailbox() {
        return mailbox != null && mailbox.isConnected();
    }

    /** {@return whether a message lies in the mailbox} */
    public boolean hasMail() {
        return hasMailbox() && mailbox.hasMail();
    }

    /**
     * Takes the next message from the mailbox.
     *
     * @param reader puts frames together
     * @param frames gets those that are complete
     * @return whether there was one
     * @throws IOException the peer has sent nonsense
     */
    public synchronized boolean takeMail(FrameReader reader, Queue<ByteBuffer> frames) throws IOException {
        if (isEnded || !hasMail()) {
            return false;
        }
        reader.take(mailbox.incoming(), frames);
        mailbox.taken();
        return true;
    }

    /** Nothing is sent or taken any more; {@link #close} must follow. */
    public synchronized void end() {
        isEnded = true;
        backlog.clear();
    }

    /** Ends the link; bytes that the peer has not received are lost. */
    @Override
    public synchronized void close() {
        end();
        if (isClosed) {
            return;
        }
        isClosed = true;
        Device.close(qp, sends, memory, arena, mailbox);
    }
}
