package highwire.zookeeper;

/** Clients over queue pairs, with mailboxes. */
class SessionsOverQueuePairsTest extends Sessions {
    SessionsOverQueuePairsTest() {
        super(Server.QUEUE_PAIRS);
    }
}
