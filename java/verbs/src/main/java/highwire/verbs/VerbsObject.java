package highwire.verbs;

/**
 * An object of the engine's. The object from which it was made stays as long as it does: closing that first
 * is refused.
 *
 * <p>Closing it again has no effect. Using a closed object throws {@link IllegalStateException}.
 */
public abstract class VerbsObject implements AutoCloseable {
    final Context context;
    private final String name;
    private final VerbsObject[] needs;
    private int users;
    private volatile boolean isClosed;
    private LeakDetector.Tracker tracker;

    VerbsObject(Context context, String name, VerbsObject... needs) {
        this.context = context;
        this.name = name;
        this.needs = needs;
    }

    /** Holds the objects that it needs. Called once it exists in the engine. */
    final void begin() {
        synchronized (context) {
            for (VerbsObject needed : needs) {
                if (needed != null) {
                    needed.users++;
                }
            }
            context.objects++;
        }
        tracker = LeakDetector.track(this, name, null);
    }

    /** {@return whether it was closed} */
    public final boolean isClosed() {
        return isClosed;
    }

    final void checkOpen() {
        if (isClosed) {
            throw new IllegalStateException("the " + name + " is closed");
        }
    }

    /**
     * Closes it.
     *
     * @throws InUseException another object still needs it, or a peer works on it at this moment; it stays open
     * @throws EngineTimeoutException the engine did not answer; it is closed, and everything of the context is gone
     */
    @Override
    public final void close() throws VerbsException {
        synchronized (context) {
            if (isClosed) {
                return;
            }
            if (users > 0) {
                throw new InUseException("the " + name + " is needed by " + users + " objects that are still open");
            }
            boolean isGone = false;
            try {
                destroy();
                isGone = true;
            } catch (EngineGoneException e) {
                // All objects have gone with the engine.
                isGone = true;
            } catch (EngineTimeoutException e) {
                isGone = true;
                throw e;
            } finally {
                if (isGone) {
                    gone();
                }
            }
        }
    }

    private void gone() {
        isClosed = true;
        context.objects--;
        for (VerbsObject needed : needs) {
            if (needed != null) {
                needed.users--;
            }
        }
        tracker.close();
        release();
    }

    /** Asks the engine to take it down. */
    abstract void destroy() throws VerbsException;

    /** Unmaps this program's mappings for it. */
    void release() {}
}
