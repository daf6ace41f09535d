package highwire.zookeeper;

import highwire.verbs.Completion;
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
import java.util.Queue;
import java.util.function.BooleanSupplier;

/** A client's connection: the TCP connection over which it meets the server, and the link. One thread uses it; others wake that one or hang up. */
public final class ClientLink implements AutoCloseable {
    /** How often the TCP connection is looked at. */
    private static final long LOOK_NANOS = 50_000_000;

    private final SocketChannel socket;
    private final Selector selector;
    private final Spin spin = new Spin();
    private final Completion completion = new Completion();
    private final ByteBuffer scratch = ByteBuffer.allocate(1);
    private Greeting greeting;
    private SocketAddress localAddress;
    private SocketAddress remoteAddress;
    private Device device;
    private CompletionChannel channel;
    private CompletionQueue received;
    /** Null where mailboxes are not wanted. */
    private Sleeper sleeper;
    private Link link;
    private long looked = System.nanoTime();
    private volatile boolean isAsleep;
    /** Seen by threads that wake this one; null until it can sleep there. */
    private volatile CompletionChannel sleepsOn;
    private volatile boolean isClosed;

    private ClientLink(SocketChannel socket, Selector selector) {
        this.socket = socket;
        this.selector = selector;
    }

    /**
     * Begins to connect.
     *
     * @param server where it listens
     * @return the connection; {@link #greet} goes on
     * @throws IOException the address is none
     */
    public static ClientLink connect(InetSocketAddress server) throws IOException {
        SocketChannel socket = SocketChannel.open();
        Selector selector = null;
        try {
            socket.configureBlocking(false);
            socket.setOption(StandardSocketOptions.TCP_NODELAY, true);
            selector = Selector.open();
            socket.register(selector, SelectionKey.OP_CONNECT);
            socket.connect(server);
            return new ClientLink(socket, selector);
        } catch (UnresolvedAddressException | UnsupportedAddressTypeException | SecurityException | IOException e) {
            Device.close(selector, socket);
            throw e;
        }
    }

    /**
     * Goes on with what the server does next.
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

    /**
     * Waits until something has come, or there is something to do, or a thread calls {@link #wakeup}.
     *
     * @param millis how long at most
     * @param hasWork whether there is something to do
     * @return false once the server has hung up; what it had sent before can still be taken
     * @throws IOException the engine has gone, or the link is broken
     * @throws InterruptedException the thread was interrupted
     */
    public boolean await(int millis, BooleanSupplier hasWork) throws IOException, InterruptedException {
        spin.reset();
        boolean hasCome = hasCome() || hasWork.getAsBoolean();
        while (!hasCome && spin.goOn()) {
            hasCome = hasCome() || hasWork.getAsBoolean();
        }
        long now = System.nanoTime();
        if (!hasCome) {
            isAsleep = true;
            received.requestNotify(false);
            if (sleeper != null) {
                sleeper.lieDown();
            }
            if (!hasCome() && !hasWork.getAsBoolean()) {
                channel.await(Duration.ofNanos(Math.min(LOOK_NANOS, Math.max(1, millis) * 1_000_000L)));
            }
            if (sleeper != null) {
                sleeper.getUp();
            }
            isAsleep = false;
            now = System.nanoTime();
        }
        if (now - looked > LOOK_NANOS) {
            looked = now;
            return isThere();
        }
        return true;
    }

    private boolean hasCome() {
        return received.hasCompletion() || link.hasMail();
    }

    private boolean isThere() {
        try {
            return socket.read(scratch.clear()) == 0;
        } catch (IOException e) {
            return false;
        }
    }

    /**
     * Takes what has come.
     *
     * @param reader puts frames together
     * @param frames gets those that are complete
     * @throws IOException the link is broken
     */
    public void take(FrameReader reader, Queue<ByteBuffer> frames) throws IOException {
        while (link.takeMail(reader, frames)) {
            // All that has come.
        }
        while (received.poll(completion)) {
            if (!completion.isSuccess()) {
                throw new IOException("the connection is broken: a receive ended with " + completion.status());
            }
            link.take(completion.wrId(), completion.byteLen(), reader, frames);
        }
    }

    /** @param buffers are sent in this order. @throws IOException the link is broken */
    public void send(ByteBuffer... buffers) throws IOException {
        link.send(buffers);
    }

    /** Sends what had to wait for room. @throws IOException the link is broken */
    public void flush() throws IOException {
        link.flush();
    }

    /** @return whether something waits for room. */
    public boolean hasBacklog() {
        return link.hasBacklog();
    }

    /** There is something to do, as the thread sees for itself unless it sleeps. */
    public void nudge() {
        if (isAsleep || sleepsOn == null) {
            wakeup();
        }
    }

    /** Ends the wait of the thread that waits, or else the next one. */
    public void wakeup() {
        CompletionChannel on = sleepsOn;
        if (on == null) {
            selector.wakeup();
        } else {
            on.wakeup();
        }
    }

    /** Ends the connection as a network that breaks would. */
    public void hangUp() {
        Device.close(socket);
        wakeup();
    }

    /** @return this end's address of the TCP connection. */
    public SocketAddress localAddress() {
        return localAddress;
    }

    /** @return the server's. */
    public SocketAddress remoteAddress() {
        return remoteAddress;
    }

    @Override
    public void close() {
        if (isClosed) {
            return;
        }
        isClosed = true;
        Device.close(socket, selector, link, sleeper, received, channel);
        if (device != null) {
            device.release();
        }
    }
}
