package org.apache.hadoop.ipc;

import highwire.hdfs.Sessions;
import highwire.hdfs.Sessions.Answer;
import highwire.hdfs.Sessions.Session;
import highwire.hdfs.Wire;
import java.io.IOException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicBoolean;
import javax.net.SocketFactory;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.io.retry.RetryPolicy;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.thirdparty.protobuf.Message;
import org.apache.hadoop.thirdparty.protobuf.ServiceException;

/** A client's calls: over jvRPC if possible, and otherwise as its superclass makes them. */
final class HighwireInvoker extends ProtobufRpcEngine2.Invoker {
    /** This JVM's number, by which a server recognises a call that it has seen before. */
    private static final String CLIENT_ID = HexFormat.of().formatHex(ClientId.getClientId());

    private final Sessions sessions;
    private final String caller;
    private final int timeoutMillis;
    private final Map<Method, Message> prototypes = new ConcurrentHashMap<>();

    HighwireInvoker(Class<?> protocol, InetSocketAddress address, UserGroupInformation user, Configuration conf, SocketFactory factory,
            int timeout, RetryPolicy retries, AtomicBoolean fallback, AlignmentContext alignment) throws IOException {
        super(protocol, address, user, conf, factory, timeout, retries, fallback, alignment);
        sessions = sessions(getConnectionId(), conf, alignment);
        caller = caller(getConnectionId());
        timeoutMillis = getConnectionId().getRpcTimeout();
    }

    HighwireInvoker(Class<?> protocol, Client.ConnectionId connection, Configuration conf, SocketFactory factory,
            AlignmentContext alignment) {
        super(protocol, connection, conf, factory, alignment);
        sessions = sessions(connection, conf, alignment);
        caller = caller(connection);
        timeoutMillis = connection.getRpcTimeout();
    }

    /** A client that must prove its identity, or reads from observers, stays with TCP. */
    private static Sessions sessions(Client.ConnectionId connection, Configuration conf, AlignmentContext alignment) {
        InetSocketAddress server = connection.getAddress();
        int port = server.getPort() + Wire.portOffset(conf);
        if (!Wire.isEnabled(conf) || UserGroupInformation.isSecurityEnabled() || alignment != null || server.isUnresolved() || port > 65_535) {
            return null;
        }
        return Sessions.with(new InetSocketAddress(server.getAddress(), port));
    }

    private static String caller(Client.ConnectionId connection) {
        UserGroupInformation user = connection.getTicket();
        UserGroupInformation real = user == null ? null : user.getRealUser();
        InetAddress server = connection.getAddress().getAddress();
        InetAddress here = InetAddress.getLoopbackAddress();
        try {
            here = server == null || server.isLoopbackAddress() ? here : InetAddress.getLocalHost();
        } catch (UnknownHostException e) {
            // Otherwise the server believes that the client is on its own machine.
        }
        return String.join("\n", Wire.VERSION, user == null ? "" : user.getUserName(), real == null ? "" : real.getUserName(), CLIENT_ID,
                here.getHostAddress());
    }

    @Override
    public Message invoke(Object proxy, Method method, Object[] arguments) throws ServiceException {
        if (sessions == null || Client.isAsynchronousMode() || arguments.length != 2 || arguments[1] == null) {
            return super.invoke(proxy, method, arguments);
        }
        Session session = sessions.borrow();
        if (session == null) {
            return super.invoke(proxy, method, arguments);
        }
        boolean works = false;
        Answer answer = null;
        try {
            byte[] request = request(method, (Message) arguments[1]);
            if (request.length <= session.room()) {
                int callId = Client.getCallId();
                int retry = Client.getRetryCount();
                // Taken, so that a retry can set them again.
                Client.setCallIdAndRetryCountUnprotected(null, retry, Client.getExternalHandler());
                answer = session.call(caller, callId, retry, request, timeoutMillis);
            }
            works = true;
        } catch (IOException e) {
            throw new ServiceException(e);
        } finally {
            sessions.giveBack(session, works);
        }
        return answer == null ? super.invoke(proxy, method, arguments) : result(method, answer);
    }

    private byte[] request(Method method, Message message) throws IOException {
        ResponseBuffer out = new ResponseBuffer();
        ((RpcWritable) constructRpcRequest(method, message)).writeTo(out);
        byte[] framed = out.toByteArray();
        // Without the length, which the slot has.
        return Arrays.copyOfRange(framed, Integer.BYTES, framed.length);
    }

    private Message result(Method method, Answer answer) throws ServiceException {
        try {
            if (answer.status() == Wire.OK) {
                return RpcWritable.Buffer.wrap(ByteBuffer.wrap(answer.bytes())).getValue(prototype(method));
            }
        } catch (IOException | ReflectiveOperationException e) {
            throw new ServiceException(e);
        }
        String[] words = new String(answer.bytes(), StandardCharsets.UTF_8).split("\n", 2);
        if (answer.status() != Wire.FAILED || words.length != 2) {
            throw new ServiceException(new RpcClientException("the server answered with status " + answer.status()));
        }
        throw new ServiceException(new RemoteException(words[0], words[1]));
    }

    private Message prototype(Method method) throws ReflectiveOperationException {
        Message known = prototypes.get(method);
        if (known == null) {
            known = (Message) method.getReturnType().getMethod("getDefaultInstance").invoke(null);
            prototypes.put(method, known);
        }
        return known;
    }
}
