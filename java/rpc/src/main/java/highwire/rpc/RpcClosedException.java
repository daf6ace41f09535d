package highwire.rpc;

/** The other end has gone, or refuses; it will answer no call any more. */
public final class RpcClosedException extends RpcException {
    private static final long serialVersionUID = 1;

    RpcClosedException(String message) {
        super(message);
    }

    RpcClosedException(String message, Throwable cause) {
        super(message, cause);
    }
}
