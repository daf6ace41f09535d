package highwire.verbs;

/** The engine did not answer in time. The context is closed, since the result of the request is unknown. */
public class EngineTimeoutException extends VerbsException {
    private static final long serialVersionUID = 1;

    EngineTimeoutException(String message) {
        super(message);
    }
}
