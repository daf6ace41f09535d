package highwire.rpc;

import java.io.IOException;

/** A call failed: the server's service threw, or one of the subclasses. */
public class RpcException extends IOException {
    private static final long serialVersionUID = 1;

    RpcException(String message) {
        super(message);
    }

    RpcException(String message, Throwable cause) {
        super(message, cause);
    }
}
