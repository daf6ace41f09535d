package highwire.verbs;

/** The engine can never do what the program asks. */
public class RefusedException extends VerbsException {
    private static final long serialVersionUID = 1;

    RefusedException(String message) {
        super(message);
    }
}
