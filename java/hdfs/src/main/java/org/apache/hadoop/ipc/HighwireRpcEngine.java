package org.apache.hadoop.ipc;

import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.net.InetSocketAddress;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.net.SocketFactory;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.io.retry.RetryPolicy;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.SecretManager;
import org.apache.hadoop.security.token.TokenIdentifier;

/**
 * Calls of protocols with protocol buffers over jvRPC: {@code rpc.engine.<protocol>=org.apache.hadoop.ipc.HighwireRpcEngine}.
 *
 * <p>A server goes on listening for TCP as before and listens for jvRPC beside it; a client that finds no jvRPC calls over TCP.
 */
public final class HighwireRpcEngine extends ProtobufRpcEngine2 {
    /** Made by Hadoop, by name. */
    public HighwireRpcEngine() {}

    private static <T> ProtocolProxy<T> proxy(Class<T> protocol, InvocationHandler handler) {
        return new ProtocolProxy<>(protocol,
                protocol.cast(Proxy.newProxyInstance(protocol.getClassLoader(), new Class<?>[] {protocol}, handler)), false);
    }

    @Override
    public <T> ProtocolProxy<T> getProxy(Class<T> protocol, long version, Client.ConnectionId connection, Configuration conf,
            SocketFactory factory, AlignmentContext alignment) throws IOException {
        return proxy(protocol, new HighwireInvoker(protocol, connection, conf, factory, alignment));
    }

    @Override
    public <T> ProtocolProxy<T> getProxy(Class<T> protocol, long version, InetSocketAddress address, UserGroupInformation user,
            Configuration conf, SocketFactory factory, int timeout, RetryPolicy retries, AtomicBoolean fallback,
            AlignmentContext alignment) throws IOException {
        return proxy(protocol, new HighwireInvoker(protocol, address, user, conf, factory, timeout, retries, fallback, alignment));
    }

    @Override
    public RPC.Server getServer(Class<?> protocol, Object instance, String address, int port, int handlers, int readers,
            int queueSize, boolean isVerbose, Configuration conf, SecretManager<? extends TokenIdentifier> secrets, String ports,
            AlignmentContext alignment) throws IOException {
        return new HighwireRpcServer(protocol, instance, conf, address, port, handlers, readers, queueSize, isVerbose, secrets, ports, alignment);
    }
}
