package highwire.verbs;

/** The engine cannot do what was asked, whatever the circumstances. */
public class RefusedException extends VerbsException {
    private static final long serialVersionUID = 1;

    RefusedException(String message) {
        super(message);
    }
}
