package highwire.verbs;

/** Another object still needs this one, which therefore stays. */
public class InUseException extends VerbsException {
    private static final long serialVersionUID = 1;

    InUseException(String message) {
        super(message);
    }
}
