package highwire.ffm;

import highwire.verbs.VerbsException;
import java.lang.foreign.MemorySegment;

/**
 * An object of the library's. The object from which it was made stays as long as it does: closing that first
 * is refused.
 *
 * <p>Closing it again has no effect. Using a closed object throws {@link IllegalStateException}, as its
 * memory is no longer the library's.
 */
public abstract class NativeObject implements AutoCloseable {
    final Libibverbs library;
    final MemorySegment pointer;
    private final String name;
    private final String destroy;
    private final NativeObject[] needs;
    private int users;
    private volatile boolean isClosed;

    NativeObject(Libibverbs library, MemorySegment pointer, String name, String destroy, NativeObject... needs) {
        this.library = library;
        this.pointer = pointer;
        this.name = name;
        this.destroy = destroy;
        this.needs = needs;
        synchronized (library) {
            for (NativeObject needed : needs) {
                needed.users++;
            }
        }
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
     * Closes it. No other thread may be using it.
     *
     * @throws VerbsException another object still needs it, or the library refuses; it stays open
     */
    @Override
    public final void close() throws VerbsException {
        synchronized (library) {
            if (isClosed) {
                return;
            }
            if (users > 0) {
                throw new StillNeededException("the " + name + " is needed by " + users + " objects that are still open");
            }
            isClosed = true;
            try {
                library.run(destroy, pointer);
            } catch (VerbsException e) {
                isClosed = false;
                throw e;
            }
            for (NativeObject needed : needs) {
                needed.users--;
            }
        }
    }
}
