package org.apache.zookeeper.server;

import highwire.zookeeper.Settings;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.ZooDefs.OpCode;
import org.apache.zookeeper.proto.RequestHeader;
import org.apache.zookeeper.server.quorum.LearnerZooKeeperServer;

/**
 * Reads of one client that its thread at the server answers at once, by ZooKeeper's last processor: in turn, as long as everything that the client asked before has been answered, and between two
 * transactions, none of which is seen before its watches have fired. Whatever is not as usual goes through all of ZooKeeper's threads.
 *
 * <p>The first request of a connection always goes through ZooKeeper's threads: earlier requests of its
 * session over another connection may still be under way.
 */
final class Reads {
    private final boolean isWanted = Settings.reads() && !Boolean.getBoolean(AuthenticationHelper.ENFORCE_AUTH_ENABLED)
            && !Boolean.getBoolean(AuthenticationHelper.SESSION_REQUIRE_CLIENT_SASL_AUTH);
    private final ZooKeeperServer server;
    private final FinalRequestProcessor processor;
    /** Whether a request went through ZooKeeper's threads, and how many of all that were taken are not yet answered. */
    private boolean hasQueued;
    private final AtomicInteger unanswered = new AtomicInteger();

    Reads(ZooKeeperServer server) {
        this.server = server;
        processor = new FinalRequestProcessor(server);
    }

    /** A request is about to go through ZooKeeper's threads. */
    void queued() {
        hasQueued = true;
        unanswered.incrementAndGet();
    }

    /** A request has been answered, by either way. */
    void answered() {
        unanswered.decrementAndGet();
    }

    /**
     * Answers a request if that is possible now. Called by the thread that takes requests, which has to queue
     * it if not.
     */
    boolean answer(ServerCnxn client, RequestHeader header, RequestRecord record) {
        if (!isWanted || !isRead(header.getType()) || !hasQueued || unanswered.get() != 0 || !isUnhindered(record)) {
            return false;
        }
        // The server is not shut down, nor its tree emptied, meanwhile.
        synchronized (server) {
            if (!server.isRunning()) {
                return false;
            }
            Request request = new Request(client, client.getSessionId(), header.getXid(), header.getType(), record, client.getAuthInfo());
            request.setOwner(ServerCnxn.me);
            try {
                server.touch(client);
                if (!(server instanceof LearnerZooKeeperServer)) {
                    server.sessionTracker.checkSession(client.getSessionId(), request.getOwner());
                }
            } catch (ZooKeeperServer.MissingSessionException | KeeperException e) {
                return false;
            }
            unanswered.incrementAndGet();
            client.incrOutstandingAndCheckThrottle(header);
            server.incInProcess();
            request.zxid = server.getZxid();
            // Held while a transaction is applied and its watches fire.
            synchronized (server.outstandingChanges) {
                processor.processRequest(request);
            }
            return true;
        }
    }

    private static boolean isRead(int type) {
        return switch (type) {
            case OpCode.exists, OpCode.getData, OpCode.getACL, OpCode.getChildren, OpCode.getChildren2, OpCode.getAllChildrenNumber -> true;
            default -> false;
        };
    }

    /** Whether the server's operator has set no limit that a request would have to wait for. */
    private boolean isUnhindered(RequestRecord record) {
        int large = server.getLargeRequestThreshold();
        return RequestThrottler.getMaxRequests() == 0 && (large == -1 || record.limit() <= large);
    }
}
