package highwire.ffm;

import highwire.verbs.VerbsException;

/** A function of libibverbs failed. */
public final class NativeVerbsException extends VerbsException {
    private static final long serialVersionUID = 1;

    /** The number that the function gave, as Linux counts them. */
    private final int errno;

    NativeVerbsException(String function, int errno) {
        super(function + " failed: " + name(errno), null);
        this.errno = errno;
    }

    /** {@return the number that the function gave, as Linux counts them} */
    public int errno() {
        return errno;
    }

    private static String name(int errno) {
        return switch (errno) {
            case 1 -> "EPERM";
            case 2 -> "ENOENT";
            case 11 -> "EAGAIN";
            case 12 -> "ENOMEM (a full queue, or no memory)";
            case 13 -> "EACCES";
            case 14 -> "EFAULT (no such memory)";
            case 16 -> "EBUSY (in use)";
            case 19 -> "ENODEV";
            case 22 -> "EINVAL (not a request, attribute or state that the device takes)";
            case 95 -> "EOPNOTSUPP";
            case 110 -> "ETIMEDOUT";
            default -> "errno " + errno;
        };
    }
}
