package highwire.ffm;

import highwire.verbs.VerbsException;

/** An object cannot be closed while another one needs it. */
public final class StillNeededException extends VerbsException {
    private static final long serialVersionUID = 1;

    StillNeededException(String message) {
        super(message, null);
    }
}
