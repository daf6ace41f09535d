package highwire.verbs;

/** Every slot of the queue is taken: poll completions, and try again. Made once, without a stack trace, so that it allocates nothing. */
public final class QueueFullException extends IllegalStateException {
    private static final long serialVersionUID = 1;
    /** The only one. */
    public static final QueueFullException INSTANCE = new QueueFullException();

    private QueueFullException() {
        super("the queue is full: poll completions first");
    }

    @Override
    public synchronized Throwable fillInStackTrace() {
        return this;
    }
}
