package highwire.verbs;

/** There is no such change of the queue pair's state, or not with these attributes. */
public class WrongStateException extends VerbsException {
    private static final long serialVersionUID = 1;

    WrongStateException(String message) {
        super(message);
    }
}
