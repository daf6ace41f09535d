package highwire.verbs;

/** The engine has no shared memory left for it. */
public class NoMemoryException extends VerbsException {
    private static final long serialVersionUID = 1;

    NoMemoryException(String message) {
        super(message);
    }
}
