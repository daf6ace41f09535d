package highwire.rpc;

import java.lang.foreign.MemorySegment;

/** A server's methods. The server's thread calls them, one call at a time. */
@FunctionalInterface
public interface RpcService {
    /**
     * Answers a call.
     *
     * @param method the method's number
     * @param arguments as the client marshalled them, rounded up to eight bytes
     * @param length how many of those bytes are the client's
     * @param answer where to put the answer
     * @return bytes of the answer
     * @throws Exception the client gets its text as an {@link RpcException}
     */
    int serve(int method, MemorySegment arguments, int length, MemorySegment answer) throws Exception;
}
