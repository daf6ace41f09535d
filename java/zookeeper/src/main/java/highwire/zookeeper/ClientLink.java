package highwire.zookeeper;

import highwire.verbs.Completion;
import highwire.verbs.IdleStrategy;
import highwire.verbs.CompletionChannel;
import highwire.verbs.CompletionQueue;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardSocketOptions;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.SocketChannel;
import java.nio.channels.UnresolvedAddressException;
import java.nio.channels.UnsupportedAddressTypeException;
import java.time.Duration;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.locks.ReentrantLock;
import java.util.function.BooleanSupplier;
import java.util.function.Supplier;

/**
 * A client's connection: the TCP connection over which it meets the server, and the link. One thread uses it; others send, wake that one or hang up, and one of them at a time looks for mail in its
 * place while it waits for an answer itself.
 */
public final class ClientLink implements AutoCloseable {
    /** How often the TCP connection is looked at. */
    private static final long LOOK_NANOS = 50_000_000;

    /** The receiver of frames, one after the other. */
    public interface Receiver {
        /**
         * Takes a frame.
         *
         * @param frame without its length
         * @throws IOException it is invalid
         */
        void receive(ByteBuffer frame) throws IOException;
    }

    private final SocketChannel socket;
    private final Selector selector;
    private final FrameReader reader;
    private final Queue<ByteBuffer> frames = new ArrayDeque<>();
    private final IdleStrategy idle;
    /** Used by the thread that takes frames, and by the word that says whether a thread looks. */
    private final ReentrantLock taking = new ReentrantLock();
    /** How long a thread that waits for its answer looks. Holding the lock, or while it looks. */
    private final IdleStrategy looking;
    /** Changed under the lock: a thread looks for mail in place of the owner; and that one lies down. */
    private volatile boolean isLookedFor;
    private boolean isDown;
    /** The failure that a thread met while it looked for mail. */
    private volatile IOException failure;
    private final Completion completion = new Completion();
    private final ByteBuffer scratch = ByteBuffer.allocate(1);
    private Greeting greeting;
    private SocketAddress localAddress;
    private SocketAddress remoteAddress;
    private Device device;
    private CompletionChannel channel;
    private CompletionQueue received;
    /** Null if mailboxes are not wanted. */
    private Sleeper sleeper;
    private Link link;
    private long looked = System.nanoTime();
    private volatile boolean isAsleep;
    /** Threads that wake this one see it; null until it can sleep there. */
    private volatile CompletionChannel sleepsOn;
    private volatile boolean isClosed;

    private ClientLink(SocketChannel socket, Selector selector, FrameReader reader, Supplier<IdleStrategy> idle) {
        this.idle = idle.get();
        this.looking = idle.get();
        this.socket = socket;
        this.selector = selector;
        this.reader = reader;
    }

    /**
     * Begins to connect.
     *
     * @param server where it listens
     * @param reader puts frames together
     * @return the connection; {@link #greet} goes on
     * @throws IOException the address is none
     */
    public static ClientLink connect(InetSocketAddress server, FrameReader reader) throws IOException {
        SocketChannel socket = SocketChannel.open();
        Selector selector = null;
        try {
            socket.configureBlocking(false);
            socket.setOption(StandardSocketOptions.TCP_NODELAY, true);
            selector = Selector.open();
            socket.register(selector, SelectionKey.OP_CONNECT);
            socket.connect(server);
            return new ClientLink(socket, selector, reader, () -> IdleStrategy.adaptive(Settings.spin()));
        } catch (UnresolvedAddressException | UnsupportedAddressTypeException | SecurityException | IOException e) {
            Device.close(selector, socket);
            throw e;
        }
    }

    /**
     * Continues when the server has sent more.
     *
     * @param millis how long to wait for it
     * @return whether the link is there
     * @throws IOException the server is not there or refuses, or there is no engine
     */
    public boolean greet(int millis) throws IOException {
        selector.select(Math.max(1, millis));
        selector.selectedKeys().clear();
        if (greeting == null) {
            if (socket.finishConnect()) {
                localAddress = socket.getLocalAddress();
                remoteAddress = socket.getRemoteAddress();
                device = Device.acquire();
                channel = device.context().completionChannel();
                received = device.context().completionQueue(Settings.depth(), channel);
                sleeper = Settings.mailboxes() == 0 ? null : new Sleeper(device, channel);
                link = new Link(device, channel, received, 0, sleeper);
                greeting = new Greeting();
                Greeting.introduce(socket, link.introduction());
                socket.keyFor(selector).interestOps(SelectionKey.OP_READ);
            }
            return false;
        }
        String introduction = greeting.read(socket);
        if (introduction == null) {
            return false;
        }
        link.connect(introduction);
        sleepsOn = channel;
        return true;
    }

    /** {@return whether the server has taken the TCP connection: what is missing then are the queue pairs} */
    public boolean isConnected() {
        return localAddress != null;
    }

    /**
     * Waits until a message has come, or there is work to do, or a thread calls {@link #wakeup}.
     *
     * @param millis how long at most
     * @param hasWork whether there is work to do
     * @return false once the server has hung up; messages that it had sent before can still be taken
     * @throws IOException the engine has gone, or the link is broken
     * @throws InterruptedException the thread was interrupted
     */
    public boolean await(int millis, BooleanSupplier hasWork) throws IOException, InterruptedException {
        idle.begin();
        boolean hasCome = hasCome() || hasWork.getAsBoolean();
        while (!hasCome && !isLookedFor && idle.goOn()) {
            hasCome = hasCome() || hasWork.getAsBoolean();
        }
        if (hasCome) {
            idle.found();
        }
        long now = System.nanoTime();
        if (!hasCome) {
            isAsleep = true;
            received.requestNotify(false);
            lieDown(true);
            if (!hasCome() && !hasWork.getAsBoolean()) {
                channel.await(Duration.ofNanos(Math.min(LOOK_NANOS, Math.max(1, millis) * 1_000_000L)));
            }
            lieDown(false);
            isAsleep = false;
            now = System.nanoTime();
        }
        if (now - looked > LOOK_NANOS) {
            looked = now;
            return isThere();
        }
        return true;
    }

    /** Takes mail also if another thread looks for it. */
    private boolean hasCome() {
        return received.hasCompletion() || !isLookedFor && link.hasMail();
    }

    private void lieDown(boolean down) {
        if (sleeper == null) {
            return;
        }
        taking.lock();
        try {
            isDown = down;
            if (!isLookedFor) {
                tellPeers(down);
            }
        } finally {
            taking.unlock();
        }
    }

    /** Holding the lock: whether the server has to ring for its messages. */
    private void tellPeers(boolean sleeps) {
        if (sleeps) {
            sleeper.lieDown();
        } else {
            sleeper.getUp();
        }
    }

    private boolean isThere() {
        try {
            return socket.read(scratch.clear()) == 0;
        } catch (IOException e) {
            return false;
        }
    }

    /**
     * Takes the messages that have come.
     *
     * @param receiver gets the frames that are complete
     * @throws IOException the link is broken
     */
    public void take(Receiver receiver) throws IOException {
        if (failure != null) {
            throw failure;
        }
        taking.lock();
        try {
            takeMail(receiver);
            while (received.poll(completion)) {
                if (!completion.isSuccess()) {
                    throw new IOException("the connection is broken: a receive ended with " + completion.status());
                }
                link.take(completion.wrId(), completion.byteLen(), reader, frames);
            }
            handOver(receiver);
        } finally {
            taking.unlock();
        }
    }

    private void takeMail(Receiver receiver) throws IOException {
        while (link.takeMail(reader, frames)) {
            handOver(receiver);
        }
    }

    private void handOver(Receiver receiver) throws IOException {
        for (ByteBuffer frame = frames.poll(); frame != null; frame = frames.poll()) {
            receiver.receive(frame);
        }
    }

    /**
     * Begins to look for mail in place of the thread that uses this, which may sleep meanwhile: an answer then wakes no thread. A caller that is about to send calls it before, or the server
     * would ring for the answer.
     *
     * @return false if there is no mailbox, another thread looks already, or looking has not paid lately
     */
    public boolean beginLook() {
        if (sleepsOn == null || !link.hasMailbox() || taking.isHeldByCurrentThread() || !taking.tryLock()) {
            return false;
        }
        try {
            if (isClosed || isLookedFor || looking.isToRest()) {
                return false;
            }
            looking.begin();
            isLookedFor = true;
            if (isDown) {
                tellPeers(false);
            }
            return true;
        } finally {
            taking.unlock();
        }
    }

    /**
     * Takes the messages that have come, or else lets others run. Called by the thread to which {@link
     * #beginLook} returned true.
     *
     * @param receiver gets the frames that are complete
     * @return false when it is time to end
     * @throws IOException the link is broken
     */
    public boolean look(Receiver receiver) throws IOException {
        if (taking.tryLock()) {
            try {
                if (isClosed) {
                    return false;
                }
                if (link.hasMail()) {
                    takeMail(receiver);
                    looking.found();
                    return true;
                }
            } finally {
                taking.unlock();
            }
        }
        return looking.goOn();
    }

    /**
     * Leaves looking to the owner again. Messages that come from now on wake it; those that have come are
     * taken here.
     *
     * @param receiver gets the frames that are complete
     * @throws IOException the link is broken
     */
    public void endLook(Receiver receiver) throws IOException {
        taking.lock();
        try {
            isLookedFor = false;
            if (!isClosed && isDown) {
                tellPeers(true);
                takeMail(receiver);
            }
        } finally {
            taking.unlock();
        }
    }

    /**
     * Leaves it to the owner to report that the link is broken.
     *
     * @param reason the exception that {@link #take} must throw
     */
    public void fail(IOException reason) {
        failure = reason;
        wakeup();
    }

    /**
     * Sends a frame.
     *
     * @param buffers are sent in this order
     * @throws IOException the link is broken
     */
    public void send(ByteBuffer... buffers) throws IOException {
        link.send(buffers);
    }

    /**
     * Sends messages that had to wait for room.
     *
     * @throws IOException the link is broken
     */
    public void flush() throws IOException {
        link.flush();
    }

    /** {@return whether something waits for room} */
    public boolean hasBacklog() {
        return link.hasBacklog();
    }

    /** There is work to do, which the thread notices itself unless it sleeps. */
    public void nudge() {
        if (isAsleep || sleepsOn == null) {
            wakeup();
        }
    }

    /** Ends the wait of the waiting thread, or else the next one. */
    public void wakeup() {
        CompletionChannel on = sleepsOn;
        if (on == null) {
            selector.wakeup();
        } else {
            on.wakeup();
        }
    }

    /** Ends the connection like a broken network. */
    public void hangUp() {
        Device.close(socket);
        wakeup();
    }

    /** {@return this end's address of the TCP connection} */
    public SocketAddress localAddress() {
        return localAddress;
    }

    /** {@return the server's} */
    public SocketAddress remoteAddress() {
        return remoteAddress;
    }

    @Override
    public void close() {
        taking.lock();
        try {
            if (isClosed) {
                return;
            }
            isClosed = true;
            Device.close(socket, selector, link, sleeper, received, channel);
        } finally {
            taking.unlock();
        }
        if (device != null) {
            device.release();
        }
    }
}
