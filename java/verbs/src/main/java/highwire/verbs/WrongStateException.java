package highwire.verbs;

/** The queue pair does not go from its state to that one, or not with these attributes. */
public class WrongStateException extends VerbsException {
    private static final long serialVersionUID = 1;

    WrongStateException(String message) {
        super(message);
    }
}
