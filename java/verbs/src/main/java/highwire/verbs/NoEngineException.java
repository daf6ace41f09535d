package highwire.verbs;

/** There is no engine to connect to; the message says how to start one. */
public class NoEngineException extends VerbsException {
    private static final long serialVersionUID = 1;

    NoEngineException(String message) {
        super(message);
    }
}
