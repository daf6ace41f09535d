package highwire.netty;

import io.netty.util.internal.logging.InternalLogger;
import io.netty.util.internal.logging.InternalLoggerFactory;
import java.net.InetSocketAddress;
import java.util.LinkedHashMap;
import java.util.Map;

/** Peers that are reached over TCP: which of them need not be asked again for a while, and why. The reason is logged when it is new. */
final class Fallbacks {
    private static final InternalLogger LOGGER = InternalLoggerFactory.getInstance(HighwireSocketChannel.class);
    private static final int PEERS_MAX = 1024;

    private record Fallback(String reason, long until) {}

    private static final Map<InetSocketAddress, Fallback> PEERS = new LinkedHashMap<>() {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<InetSocketAddress, Fallback> eldest) {
            return size() > PEERS_MAX;
        }
    };

    private Fallbacks() {}

    /** Why the peer is not to be asked now; null if it is. */
    static synchronized String reason(InetSocketAddress peer) {
        Fallback known = PEERS.get(peer);
        return known == null || known.until - System.nanoTime() <= 0 ? null : known.reason;
    }

    /** The peer is reached over TCP. */
    static void add(InetSocketAddress peer, String reason) {
        boolean isNew;
        synchronized (Fallbacks.class) {
            Fallback known = PEERS.put(peer, new Fallback(reason, System.nanoTime() + Settings.retryNanos()));
            isNew = known == null || !known.reason.equals(reason);
        }
        if (isNew) {
            LOGGER.info("{} is reached over TCP: {}", peer, reason);
        }
    }

    /** The peer is reached over queue pairs. */
    static synchronized void remove(InetSocketAddress peer) {
        PEERS.remove(peer);
    }
}
