package highwire.zookeeper;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Servers at which this JVM takes TCP, for want of queue pairs there or of an engine here.
 *
 * <p>A client that has taken TCP has a thread look, after {@link Settings#retry}, whether the server and it could have queue pairs now. If so it ends its
 * connection at a moment when nothing is under way, and comes back with the same session.
 */
public final class Fallback {
    private static final Logger LOG = LoggerFactory.getLogger(Fallback.class);
    /** When to look again, by server, in nanoseconds. */
    private static final Map<InetSocketAddress, Long> LOOKS = new ConcurrentHashMap<>();
    /** How long a server may take to answer a greeting. */
    private static final long ANSWER_NANOS = 10_000_000_000L;

    private final long retryNanos = Settings.retry().toNanos();
    private volatile boolean isLooking;
    private volatile InetSocketAddress found;

    /** What one client knows. */
    public Fallback() {}

    /**
     * Whether a client shall not ask a server for queue pairs now.
     *
     * @param server where a client wants to connect
     * @return whether it shall not ask for queue pairs now
     */
    public boolean isForTcp(InetSocketAddress server) {
        found = null;
        Long look = LOOKS.get(server);
        return look != null && System.nanoTime() - look < 0;
    }

    /**
     * Keeps in mind that a server has given no queue pair.
     *
     * @param server gave no queue pair
     * @param reason why
     */
    public void fails(InetSocketAddress server, String reason) {
        if (LOOKS.put(server, System.nanoTime() + retryNanos) == null) {
            LOG.warn("Connections with {} go over TCP: {}", server, reason);
        }
    }

    /**
     * Keeps in mind that a server has given a queue pair.
     *
     * @param server has given a queue pair
     */
    public void works(InetSocketAddress server) {
        if (LOOKS.remove(server) != null) {
            LOG.info("Connections with {} go over queue pairs again", server);
        }
    }

    /**
     * Called often by a client with a connection over TCP.
     *
     * @param server where
     * @return whether it can have a queue pair instead
     */
    public boolean isToComeBack(InetSocketAddress server) {
        if (server.equals(found)) {
            return true;
        }
        Long look = LOOKS.get(server);
        if (!isLooking && (look == null || System.nanoTime() - look >= 0)) {
            isLooking = true;
            // An engine that is silent must not keep the client from its connection.
            Thread.ofPlatform().daemon().name("highwire-zookeeper-look").start(() -> look(server));
        }
        return false;
    }

    private void look(InetSocketAddress server) {
        try (ClientLink link = ClientLink.connect(server, new FrameReader(length -> { }))) {
            long deadline = System.nanoTime() + ANSWER_NANOS;
            while (!link.greet(100)) {
                if (System.nanoTime() - deadline > 0) {
                    throw new IOException("the server has not answered the greeting");
                }
            }
            LOOKS.computeIfPresent(server, (same, look) -> System.nanoTime());
            found = server;
        } catch (IOException | IllegalStateException e) {
            fails(server, e.getMessage());
        } finally {
            isLooking = false;
        }
    }
}
