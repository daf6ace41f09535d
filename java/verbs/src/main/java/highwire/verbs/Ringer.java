package highwire.verbs;

import java.io.IOException;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Rings the {@link Bell}s of other programs, over one connection for each. No call waits: a connection that takes no more has rings enough that
 * nobody has heard.
 */
final class Ringer {
    private static final ByteBuffer RING = ByteBuffer.allocateDirect(1);
    /** Connections among which those to programs that have ended are not looked for. */
    private static final int UNSWEPT = 8;

    private final Path directory;
    private final Map<Long, SocketChannel> connections = new ConcurrentHashMap<>();
    private volatile int sweepAt = UNSWEPT;
    private volatile boolean isClosed;

    Ringer(Path directory) {
        this.directory = directory;
    }

    /** Wakes whoever listens; false if nobody does any more. */
    boolean ring(long bell) {
        SocketChannel known = connections.get(bell);
        if (known != null) {
            if (isWritten(known)) {
                return true;
            }
            // The listener had too many, or has ended, which connecting anew tells.
            forget(bell, known);
        }
        return ringAnew(bell);
    }

    private boolean ringAnew(long bell) {
        try {
            SocketChannel made = SocketChannel.open(StandardProtocolFamily.UNIX);
            boolean isKept = false;
            try {
                made.configureBlocking(false);
                // Connecting rings: a byte behind it would wake the listener once more. If its queue is full the listener has been woken, and has yet to look.
                isKept = made.connect(UnixDomainSocketAddress.of(Bell.path(directory, bell))) && keep(bell, made);
                return true;
            } finally {
                if (!isKept) {
                    made.close();
                }
            }
        } catch (IOException e) {
            return false;
        }
    }

    private static boolean isWritten(SocketChannel connection) {
        try {
            connection.write(RING.duplicate());
            return true;
        } catch (IOException e) {
            return false;
        }
    }

    /** Keeps a connection, unless another thread has made one meanwhile. */
    private boolean keep(long bell, SocketChannel made) {
        if (connections.size() >= sweepAt) {
            sweep();
        }
        if (connections.putIfAbsent(bell, made) != null) {
            return false;
        }
        if (isClosed) {
            forget(bell, made);
        }
        return true;
    }

    /** Closes connections to programs that have ended. As many again may come before the next look, so that looking costs each newcomer the same. */
    private synchronized void sweep() {
        connections.forEach((bell, connection) -> {
            if (hasHungUp(connection)) {
                forget(bell, connection);
            }
        });
        sweepAt = 2 * connections.size() + UNSWEPT;
    }

    /** A listener writes nothing. */
    private static boolean hasHungUp(SocketChannel connection) {
        try {
            return connection.read(ByteBuffer.allocate(1)) < 0;
        } catch (IOException e) {
            return true;
        }
    }

    private void forget(long bell, SocketChannel connection) {
        connections.remove(bell, connection);
        try {
            connection.close();
        } catch (IOException e) {
            // The kernel closes it even if it reports an error.
        }
    }

    /** How many are open. */
    int connections() {
        return connections.size();
    }

    void close() {
        isClosed = true;
        connections.forEach(this::forget);
    }
}
