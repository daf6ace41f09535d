package org.apache.hadoop.ipc;

import java.net.InetAddress;
import java.security.PrivilegedExceptionAction;
import org.apache.hadoop.io.Writable;
import org.apache.hadoop.ipc.protobuf.RpcHeaderProtos.RpcResponseHeaderProto.RpcStatusProto;
import org.apache.hadoop.security.UserGroupInformation;

/**
 * A call as Hadoop's services see it: the caller, its address, and whether the call was seen before. Its
 * answer may have to wait, for the edit log for example.
 */
final class HighwireCall extends Server.Call {
    /** The caller. */
    record Caller(UserGroupInformation user, byte[] clientId, InetAddress address) {}

    private final Caller caller;
    private final String protocol;
    private boolean isDone;
    private Throwable aborted;

    HighwireCall(Caller caller, int callId, int retry, String protocol) {
        super(callId, retry, RPC.RpcKind.RPC_PROTOCOL_BUFFER, caller.clientId());
        this.caller = caller;
        this.protocol = protocol;
    }

    /** Serves it in this thread, in the caller's name. */
    Writable serve(RPC.Server server, ProtobufRpcEngine2.RpcProtobufRequest request) throws Exception {
        Server.getCurCall().set(this);
        try {
            Object[] result = new Object[1];
            caller.user().doAs((PrivilegedExceptionAction<Void>) () -> {
                try {
                    result[0] = server.call(RPC.RpcKind.RPC_PROTOCOL_BUFFER, protocol, request, getTimestampNanos());
                } catch (Throwable e) {
                    // NameNodes throw AssertionError at a client's mistake, and TCP's server returns it.
                    result[0] = e;
                }
                return null;
            });
            sendResponse();
            await();
            switch (result[0]) {
                case Exception failure -> throw failure;
                case Error failure -> throw failure;
                case null, default -> {
                    return (Writable) result[0];
                }
            }
        } finally {
            Server.getCurCall().set(null);
        }
    }

    private synchronized void await() throws Exception {
        while (!isDone) {
            wait();
        }
        if (aborted != null) {
            throw aborted instanceof Exception failure ? failure : new RpcServerException("the call was aborted", aborted);
        }
    }

    /** Called by the thread that finishes last: this thread, or the one for which the answer waited. */
    @Override
    synchronized void doResponse(Throwable failure, RpcStatusProto status) {
        aborted = failure;
        isDone = true;
        notifyAll();
    }

    @Override
    public UserGroupInformation getRemoteUser() {
        return caller.user();
    }

    @Override
    public InetAddress getHostInetAddress() {
        return caller.address();
    }

    @Override
    public String getProtocol() {
        return protocol;
    }
}
