package highwire.verbs;

/** The memory does not lie in an {@link RdmaArena}, so no other process can see it and it cannot be registered. */
public class ForeignMemoryException extends IllegalArgumentException {
    private static final long serialVersionUID = 1;

    ForeignMemoryException(String message) {
        super(message);
    }
}
