package org.apache.zookeeper;

/** What ZooKeeper shows to its own package alone. */
public final class Transports {
    private Transports() {}

    /** @param client of Highwire's socket. @return whether it is connected over a queue pair now. */
    public static boolean isOverQueuePairs(ZooKeeper client) {
        return client.cnxn.sendThread.getClientCnxnSocket() instanceof ClientCnxnSocketHighwire socket && socket.isOverQueuePairs();
    }
}
