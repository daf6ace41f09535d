package highwire.verbs;

import java.io.IOException;

/** A control call failed; the subclass says how, the message why. */
public class VerbsException extends IOException {
    private static final long serialVersionUID = 1;

    VerbsException(String message) {
        super(message);
    }

    /**
     * An exception of another driver.
     *
     * @param message why
     * @param cause the cause, or null
     */
    protected VerbsException(String message, Throwable cause) {
        super(message, cause);
    }

    /** The exception for a door's status. */
    static VerbsException of(int status, String text) {
        return switch (status) {
            case 1 -> new VersionException(text);
            case 4 -> new InUseException(text);
            case 5 -> new RefusedException(text);
            case 6 -> new NoMemoryException(text);
            case 7 -> new WrongStateException(text);
            default -> new VerbsException(text);
        };
    }
}
