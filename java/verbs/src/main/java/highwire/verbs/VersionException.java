package highwire.verbs;

/** The engine and this library have different versions; the message names both. */
public class VersionException extends VerbsException {
    private static final long serialVersionUID = 1;

    VersionException(String message) {
        super(message);
    }
}
