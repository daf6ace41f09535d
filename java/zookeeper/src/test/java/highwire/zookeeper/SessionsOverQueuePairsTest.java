package highwire.zookeeper;

/** Clients over queue pairs. */
class SessionsOverQueuePairsTest extends Sessions {
    SessionsOverQueuePairsTest() {
        super(Server.QUEUE_PAIRS);
    }
}
