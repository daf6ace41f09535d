package highwire.rpc;

/** The answer did not come in time. It may still come; the call's slot stays taken until then. */
public final class RpcTimeoutException extends RpcException {
    private static final long serialVersionUID = 1;

    RpcTimeoutException(String message) {
        super(message);
    }
}
