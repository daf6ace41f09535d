package highwire.verbs;

/**
 * The thread was interrupted before the engine answered. The call has no effect, except that a change of a queue pair may still take place;
 * the context and its other objects go on. The thread's interrupt status is set.
 */
public class CallInterruptedException extends VerbsException {
    private static final long serialVersionUID = 1;

    CallInterruptedException(String message) {
        super(message);
    }
}
