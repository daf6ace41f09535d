package highwire.zookeeper;

import java.io.IOException;

/**
 * Two ends cannot connect over queue pairs; the message says why. ZooKeeper's client goes on to the next
 * server, as after any other loss.
 */
public final class GreetingException extends IOException {
    private static final long serialVersionUID = 1;

    /**
     * A greeting that failed.
     *
     * @param message why
     */
    public GreetingException(String message) {
        super(message);
    }
}
