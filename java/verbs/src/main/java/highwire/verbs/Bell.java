package highwire.verbs;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.nio.channels.SelectableChannel;
import java.nio.channels.SelectionKey;
import java.nio.channels.Selector;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Where other programs of this machine wake a thread of this one that sleeps in a {@link Selector}, with {@link Context#ring}. The engine takes no part in it.
 *
 * <p>It is a Unix-domain socket in the engine's directory, which no other user can enter. Each program that rings connects once, which is its first ring, and writes a byte for each further
 * one. A named pipe would be cheaper, but a thread of a JVM cannot wait for one with a time-out. The engine gives out the number, and removes the file when the bell or its program has ended.
 *
 * <p>One thread listens: it registers {@link #listener}, and each channel that {@link #accept} returns, with its selector.
 */
public final class Bell implements AutoCloseable {
    /** Programs that may be connected. Connecting wakes the listener as well, so a further one is heard and then hung up on. */
    static final int RINGERS_MAX = 1024;
    private static final String NAME = "wake-";
    private static final int RINGS_TAKEN = 64;

    private final Frames frames;
    private final Resources resources;
    private final long handle;
    private final long number;
    private final ServerSocketChannel socket;
    private final Set<SocketChannel> ringers = ConcurrentHashMap.newKeySet();
    private final ByteBuffer rings = ByteBuffer.allocateDirect(RINGS_TAKEN);

    private Bell(Frames frames, Resources resources, long[] made, ServerSocketChannel socket) {
        this.frames = frames;
        this.resources = resources;
        this.handle = made[0];
        this.number = made[1];
        this.socket = socket;
    }

    static Bell create(Frames frames, Resources resources, Path directory) throws VerbsException {
        long[] made = frames.ask(Frames.CREATE_BELL);
        ServerSocketChannel socket = null;
        boolean isMade = false;
        try {
            socket = ServerSocketChannel.open(StandardProtocolFamily.UNIX);
            socket.bind(UnixDomainSocketAddress.of(path(directory, made[1]))).configureBlocking(false);
            Bell bell = new Bell(frames, resources, made, socket);
            resources.add(bell);
            isMade = true;
            return bell;
        } catch (IOException e) {
            throw new VerbsException("no bell at " + path(directory, made[1]) + ": " + e.getMessage(), e);
        } finally {
            if (!isMade) {
                close(socket);
                frames.askUninterrupted(Frames.DESTROY_BELL, made[0]);
            }
        }
    }

    static Path path(Path directory, long number) {
        return directory.resolve(NAME + number);
    }

    /** {@return what other programs ring, and may be told; not 0, and below 2<sup>32</sup>} */
    public long number() {
        return number;
    }

    /** {@return the socket that is ready to accept when a program rings for the first time} */
    public SelectableChannel listener() {
        return socket;
    }

    /**
     * Takes a program that rings for the first time.
     *
     * @return its connection, which is ready to be read whenever it rings; null if there is none
     * @throws IOException the bell is closed, or no descriptor is left
     */
    public SelectableChannel accept() throws IOException {
        while (true) {
            SocketChannel ringer = socket.accept();
            if (ringer == null || ringers.size() < RINGERS_MAX && isKept(ringer)) {
                return ringer;
            }
            close(ringer);
        }
    }

    private boolean isKept(SocketChannel ringer) throws IOException {
        ringer.configureBlocking(false);
        ringers.add(ringer);
        // Whoever closes the bell has closed the socket before it goes through the ringers.
        return socket.isOpen();
    }

    /**
     * Takes the rings of one program.
     *
     * @param ringer a connection that {@link #accept} returned
     * @return whether it has rung; if it has hung up its connection is closed
     */
    public boolean take(SelectableChannel ringer) {
        try {
            // More than one read takes are left for the next look, as rings that came later.
            int got = ((SocketChannel) ringer).read(rings.clear());
            if (got < 0) {
                hangUp(ringer);
            }
            return got > 0;
        } catch (IOException e) {
            hangUp(ringer);
            return false;
        }
    }

    private void hangUp(SelectableChannel ringer) {
        ringers.remove(ringer);
        close(ringer);
    }

    /** Has a selector listen; {@link #hear} takes the keys. */
    void listen(Selector selector) throws ClosedChannelException {
        socket.register(selector, SelectionKey.OP_ACCEPT, this);
    }

    /** Takes what a key of {@link #listen} is ready for; whether a program has rung. */
    boolean hear(SelectionKey key) throws IOException {
        if (key.channel() != socket) {
            return take(key.channel());
        }
        for (SelectableChannel ringer = accept(); ringer != null; ringer = accept()) {
            ringer.register(key.selector(), SelectionKey.OP_READ, this);
        }
        // Also of one too many, which was hung up on, the ring is heard.
        return true;
    }

    /** Ends it: programs that ring have nobody to wake. */
    @Override
    public void close() throws VerbsException {
        if (resources.remove(this)) {
            shut();
            try {
                frames.askUninterrupted(Frames.DESTROY_BELL, handle);
            } catch (EngineGoneException | IllegalStateException e) {
                // The name has gone with the engine, or with the session.
            }
        }
    }

    /** Closes the sockets alone. */
    void shut() {
        close(socket);
        ringers.forEach(Bell::close);
    }

    private static void close(java.nio.channels.Channel channel) {
        try {
            if (channel != null) {
                channel.close();
            }
        } catch (IOException e) {
            // The kernel closes it even if it reports an error.
        }
    }
}
