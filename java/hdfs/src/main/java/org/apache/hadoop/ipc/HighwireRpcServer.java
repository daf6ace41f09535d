package org.apache.hadoop.ipc;

import highwire.hdfs.Engine;
import highwire.hdfs.Wire;
import highwire.rpc.RpcOptions;
import highwire.rpc.RpcServer;
import highwire.verbs.Context;
import java.io.IOException;
import java.lang.foreign.MemorySegment;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonConfigurationKeys;
import org.apache.hadoop.io.Writable;
import org.apache.hadoop.ipc.protobuf.ProtobufRpcEngine2Protos.RequestHeaderProto;
import org.apache.hadoop.security.UserGroupInformation;
import org.apache.hadoop.security.token.SecretManager;
import org.apache.hadoop.security.token.TokenIdentifier;
import org.apache.hadoop.util.StringUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A server that answers over TCP, as its superclass does, and over jvRPC beside it. It starts without an engine as well, and looks for one from time to time. */
final class HighwireRpcServer extends ProtobufRpcEngine2.Server {
    private static final Logger LOG = LoggerFactory.getLogger(HighwireRpcServer.class);
    private static final long LOOK_MILLIS = 1000;
    private static final int CALLERS_MAX = 1 << 16;
    private static final int KEPT_MAX = 256;

    private final RpcOptions options;
    private final boolean isOffered;
    private final int offset;
    private final AtomicLong last = new AtomicLong();
    private final Map<Long, HighwireCall.Caller> callers = newest(CALLERS_MAX);
    /** Answers that did not fit into a slot, until they are fetched or newer ones replace them. */
    private final Map<Long, byte[]> kept = newest(KEPT_MAX);
    private volatile boolean isStopped;
    private Thread keeper;

    HighwireRpcServer(Class<?> protocol, Object instance, Configuration conf, String address, int port, int handlers, int readers,
            int queueSize, boolean isVerbose, SecretManager<? extends TokenIdentifier> secrets, String ports,
            AlignmentContext alignment) throws IOException {
        super(protocol, instance, conf, address, port, handlers, readers, queueSize, isVerbose, secrets, ports, alignment);
        options = Wire.options(conf);
        offset = Wire.portOffset(conf);
        // jvRPC does not prove the identity that the server would have to check.
        isOffered = Wire.isEnabled(conf) && !UserGroupInformation.isSecurityEnabled() && alignment == null
                && !conf.getBoolean(CommonConfigurationKeys.HADOOP_SECURITY_AUTHORIZATION, false);
    }

    private static <V> Map<Long, V> newest(int count) {
        return Collections.synchronizedMap(new LinkedHashMap<>(16, 0.75f, true) {
            private static final long serialVersionUID = 1;

            @Override
            protected boolean removeEldestEntry(Map.Entry<Long, V> eldest) {
                return size() > count;
            }
        });
    }

    @Override
    public synchronized void start() {
        super.start();
        if (isOffered && keeper == null) {
            InetSocketAddress at = new InetSocketAddress(getListenerAddress().getAddress(), getPort() + offset);
            keeper = Thread.ofPlatform().daemon().name("highwire-hadoop-" + getPort()).start(() -> keep(at));
        }
    }

    @Override
    public void stop() {
        isStopped = true;
        Thread thread = keeper;
        if (thread != null) {
            thread.interrupt();
            try {
                thread.join();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }
        super.stop();
    }

    /** Listens whenever there is an engine, until the server stops. */
    private void keep(InetSocketAddress at) {
        String said = null;
        while (!isStopped) {
            try {
                Context context = Engine.context();
                try (RpcServer server = RpcServer.open(context, at, this::serve, options)) {
                    LOG.info("jvRPC listens at {}", server.address());
                    said = null;
                    while (!isStopped && context.valid()) {
                        Thread.sleep(LOOK_MILLIS);
                    }
                }
            } catch (InterruptedException e) {
                return;
            } catch (IOException | RuntimeException e) {
                String reason = e.toString();
                if (!reason.equals(said)) {
                    said = reason;
                    LOG.warn("No jvRPC at {}, calls go over TCP: {}", at, said);
                }
            }
            try {
                Thread.sleep(LOOK_MILLIS);
            } catch (InterruptedException e) {
                return;
            }
        }
    }

    private int serve(int method, MemorySegment arguments, int length, MemorySegment answer) throws IOException {
        return switch (method) {
            case Wire.INTRODUCE -> introduce(Wire.text(arguments, 0, length), answer);
            case Wire.CALL -> call(arguments, length, answer);
            case Wire.FETCH -> fetch(arguments, answer);
            default -> throw new RpcServerException("there is no method " + method);
        };
    }

    private int introduce(String text, MemorySegment answer) throws IOException {
        String[] lines = text.split("\n", -1);
        if (lines.length != 5 || !lines[0].equals(Wire.VERSION)) {
            throw new RpcServerException("the client says `" + lines[0] + "`; this server speaks " + Wire.VERSION);
        }
        UserGroupInformation user = UserGroupInformation.createRemoteUser(lines[1].isEmpty() ? "nobody" : lines[1]);
        if (!lines[2].isEmpty()) {
            user = UserGroupInformation.createProxyUser(lines[1], UserGroupInformation.createRemoteUser(lines[2]));
        }
        try {
            InetAddress address = InetAddress.ofLiteral(lines[4]);
            long number = last.incrementAndGet();
            callers.put(number, new HighwireCall.Caller(user, HexFormat.of().parseHex(lines[3]), address));
            Wire.put(answer, 0, number);
            return Long.BYTES;
        } catch (IllegalArgumentException e) {
            throw new RpcServerException("the client introduces itself with nonsense", e);
        }
    }

    private int call(MemorySegment arguments, int length, MemorySegment answer) throws IOException {
        if (length < Wire.CALL_BYTES) {
            throw new RpcServerException("a call of " + length + " bytes is none");
        }
        HighwireCall.Caller caller = callers.get(Wire.getLong(arguments, 0));
        if (caller == null) {
            return answer(Wire.UNKNOWN, new byte[0], 0, answer);
        }
        try {
            ProtobufRpcEngine2.RpcProtobufRequest request = new ProtobufRpcEngine2.RpcProtobufRequest();
            request.readFrom(ByteBuffer.wrap(Wire.bytes(arguments, Wire.CALL_BYTES, length - Wire.CALL_BYTES)));
            RequestHeaderProto header = request.getRequestHeader();
            HighwireCall call = new HighwireCall(caller, Wire.getInt(arguments, 8), Wire.getInt(arguments, 12),
                    header.getDeclaringClassProtocolName());
            Writable result = call.serve(this, request);
            ResponseBuffer out = new ResponseBuffer();
            ((RpcWritable) result).writeTo(out);
            return answer(Wire.OK, out.toByteArray(), Integer.BYTES, answer);
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
            throw new RpcServerException("the server ends");
        } catch (Throwable e) {
            String name = e.getClass().getName();
            String trace = StringUtils.stringifyException(e);
            // Otherwise the name would stand there twice.
            String message = trace.startsWith(name + ": ") ? trace.substring(name.length() + 2) : trace;
            byte[] text = (name + "\n" + message).getBytes(StandardCharsets.UTF_8);
            return answer(Wire.FAILED, Arrays.copyOf(text, (int) Math.min(text.length, answer.byteSize() - Wire.ANSWER_BYTES)), 0, answer);
        }
    }

    private int answer(int status, byte[] bytes, int first, MemorySegment answer) {
        int count = bytes.length - first;
        Wire.put(answer, 4, count);
        if (count <= answer.byteSize() - Wire.ANSWER_BYTES) {
            Wire.put(answer, 0, status);
            Wire.put(answer, Wire.ANSWER_BYTES, bytes, first, count);
            return Wire.ANSWER_BYTES + count;
        }
        long number = last.incrementAndGet();
        kept.put(number, Arrays.copyOfRange(bytes, first, bytes.length));
        Wire.put(answer, 0, Wire.KEPT);
        Wire.put(answer, Wire.ANSWER_BYTES, number);
        return Wire.ANSWER_BYTES + Long.BYTES;
    }

    private int fetch(MemorySegment arguments, MemorySegment answer) throws IOException {
        long number = Wire.getLong(arguments, 0);
        long at = Wire.getLong(arguments, 8);
        byte[] bytes = kept.get(number);
        if (bytes == null || at < 0 || at >= bytes.length) {
            throw new RpcServerException("nothing is kept there any more");
        }
        int count = (int) Math.min(answer.byteSize(), bytes.length - at);
        Wire.put(answer, 0, bytes, (int) at, count);
        if (at + count == bytes.length) {
            kept.remove(number);
        }
        return count;
    }
}
