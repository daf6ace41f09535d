package highwire.ffm;

import highwire.verbs.VerbsException;

/** There is no libibverbs, or no device of the name. */
public final class NoDriverException extends VerbsException {
    private static final long serialVersionUID = 1;

    NoDriverException(String message, Throwable cause) {
        super(message, cause);
    }
}
