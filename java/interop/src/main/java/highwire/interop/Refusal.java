package highwire.interop;

/** Why a request is refused: an errno, as the verbs number errors, and words. */
final class Refusal extends Exception {
    private static final long serialVersionUID = 1;

    static final int ENOENT = 2;
    static final int ENOMEM = 12;
    static final int ENODEV = 19;
    static final int EINVAL = 22;
    static final int ERANGE = 34;
    static final int ENOSYS = 38;

    private final int errno;

    Refusal(int errno, String text) {
        super(text);
        this.errno = errno;
    }

    /** The line that answers the request. */
    String line() {
        return "err " + errno + " " + String.valueOf(getMessage()).replace('\n', ' ');
    }
}
