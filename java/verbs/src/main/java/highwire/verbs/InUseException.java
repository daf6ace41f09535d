package highwire.verbs;

/** Something else still needs the object, which therefore stays. */
public class InUseException extends VerbsException {
    private static final long serialVersionUID = 1;

    InUseException(String message) {
        super(message);
    }
}
