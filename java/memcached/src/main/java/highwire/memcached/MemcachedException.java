package highwire.memcached;

import java.io.IOException;

/** The server refuses, is silent, or has gone. */
public final class MemcachedException extends IOException {
    private static final long serialVersionUID = 1;

    MemcachedException(String message) {
        super(message);
    }

    MemcachedException(String message, Throwable cause) {
        super(message, cause);
    }
}
