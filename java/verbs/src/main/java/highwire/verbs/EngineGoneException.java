package highwire.verbs;

/** The engine has ended or has closed the connection. Every object of the context is gone with it. */
public class EngineGoneException extends VerbsException {
    private static final long serialVersionUID = 1;

    EngineGoneException(String message) {
        super(message);
    }
}
