package highwire.zookeeper;

import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;

/** Clients over queue pairs without mailboxes, as between machines. */
class SessionsOverSendsTest extends Sessions {
    SessionsOverSendsTest() {
        super(Server.QUEUE_PAIRS);
    }

    @BeforeAll
    static void wantNoMailboxes() {
        System.setProperty(Settings.MAILBOXES, "0");
    }

    @AfterAll
    static void wantMailboxes() {
        System.clearProperty(Settings.MAILBOXES);
    }
}
