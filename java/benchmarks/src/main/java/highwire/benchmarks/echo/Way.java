package highwire.benchmarks.echo;

import static java.net.StandardProtocolFamily.INET;
import static java.net.StandardProtocolFamily.UNIX;

import java.util.function.Supplier;

/** All ways that are compared. */
public enum Way {
    /** Highwire between two JVMs of one engine. */
    WRITE("Highwire WRITE", Path.SHARED_MEMORY, Waits.POLLING, WriteEcho::new),
    /** The same, one-sided. */
    READ("Highwire READ", Path.SHARED_MEMORY, Waits.POLLING, () -> new ReadEcho(Waits.POLLING)),
    /** The same, two-sided. */
    SEND("Highwire SEND/RECV", Path.SHARED_MEMORY, Waits.POLLING, () -> new SendEcho(Waits.POLLING)),
    /** The same, asleep. */
    SEND_BLOCKING("Highwire SEND/RECV", Path.SHARED_MEMORY, Waits.BLOCKING, () -> new SendEcho(Waits.BLOCKING)),
    /** Calls. */
    RPC("Highwire jvRPC", Path.SHARED_MEMORY, Waits.POLLING, () -> new RpcEcho(Waits.POLLING)),
    /** Calls, asleep. */
    RPC_BLOCKING("Highwire jvRPC", Path.SHARED_MEMORY, Waits.BLOCKING, () -> new RpcEcho(Waits.BLOCKING)),
    /** Aeron without its network. */
    AERON_IPC("Aeron IPC", Path.SHARED_MEMORY, Waits.POLLING, () -> new AeronEcho(false)),
    /** UCX behind Java. */
    JUCX("JUCX tagged", Path.SHARED_MEMORY, Waits.POLLING, () -> new JucxEcho("posix,self,tcp")),
    /** Highwire between two JVMs, each with an engine of its own. */
    READ_UDP("Highwire READ", Path.UDP, Waits.POLLING, () -> new ReadEcho(Waits.POLLING)),
    /** The same, asleep. */
    READ_UDP_BLOCKING("Highwire READ", Path.UDP, Waits.BLOCKING, () -> new ReadEcho(Waits.BLOCKING)),
    /** The same, two-sided. */
    SEND_UDP("Highwire SEND/RECV", Path.UDP, Waits.POLLING, () -> new SendEcho(Waits.POLLING)),
    /** The same, asleep. */
    SEND_UDP_BLOCKING("Highwire SEND/RECV", Path.UDP, Waits.BLOCKING, () -> new SendEcho(Waits.BLOCKING)),
    /** Calls. */
    RPC_UDP("Highwire jvRPC", Path.UDP, Waits.POLLING, () -> new RpcEcho(Waits.POLLING)),
    /** Aeron over its network. */
    AERON_UDP("Aeron", Path.UDP, Waits.POLLING, () -> new AeronEcho(true)),
    /** The JDK's datagrams. */
    NIO_UDP("NIO", Path.UDP, Waits.POLLING, () -> new DatagramEcho(Waits.POLLING)),
    /** The same, asleep. */
    NIO_UDP_BLOCKING("NIO", Path.UDP, Waits.BLOCKING, () -> new DatagramEcho(Waits.BLOCKING)),
    /** The JDK's streams. */
    NIO_TCP("NIO", Path.TCP, Waits.POLLING, () -> new StreamEcho(INET, Waits.POLLING)),
    /** The same, asleep. */
    NIO_TCP_BLOCKING("NIO", Path.TCP, Waits.BLOCKING, () -> new StreamEcho(INET, Waits.BLOCKING)),
    /** The JDK's streams within a machine. */
    NIO_UNIX("NIO", Path.UNIX_SOCKET, Waits.POLLING, () -> new StreamEcho(UNIX, Waits.POLLING)),
    /** The same, asleep. */
    NIO_UNIX_BLOCKING("NIO", Path.UNIX_SOCKET, Waits.BLOCKING, () -> new StreamEcho(UNIX, Waits.BLOCKING)),
    /** UCX behind Java, over sockets. */
    JUCX_TCP("JUCX tagged", Path.TCP, Waits.POLLING, () -> new JucxEcho("tcp,self")),
    /** Netty on the JDK's selectors. */
    NETTY_NIO("Netty NIO", Path.TCP, Waits.BLOCKING, () -> new NettyEcho(NettyEcho.Kind.NIO)),
    /** Netty with native code. */
    NETTY_EPOLL("Netty epoll", Path.TCP, Waits.BLOCKING, () -> new NettyEcho(NettyEcho.Kind.EPOLL)),
    /** The same within a machine. */
    NETTY_EPOLL_UNIX("Netty epoll", Path.UNIX_SOCKET, Waits.BLOCKING, () -> new NettyEcho(NettyEcho.Kind.EPOLL_UNIX)),
    /** Netty on io_uring. */
    NETTY_IO_URING("Netty io_uring", Path.TCP, Waits.BLOCKING, () -> new NettyEcho(NettyEcho.Kind.IO_URING)),
    /** Calls of gRPC. */
    GRPC("gRPC", Path.TCP, Waits.BLOCKING, () -> new GrpcEcho(false)),
    /** The same within a machine. */
    GRPC_UNIX("gRPC", Path.UNIX_SOCKET, Waits.BLOCKING, () -> new GrpcEcho(true));

    /** The link of the messages. */
    enum Path {
        SHARED_MEMORY("shared memory"),
        UDP("UDP"),
        TCP("TCP"),
        UNIX_SOCKET("Unix socket");

        final String text;

        Path(String text) {
            this.text = text;
        }
    }

    final String title;
    final Path path;
    final Waits waits;
    private final Supplier<Echo> echo;

    Way(String title, Path path, Waits waits, Supplier<Echo> echo) {
        this.title = title;
        this.path = path;
        this.waits = waits;
        this.echo = echo;
    }

    /** @return it. */
    public Echo echo() {
        return echo.get();
    }

    /** Whether it is Highwire's, so that both ends need an engine. */
    boolean isOurs() {
        return title.startsWith("Highwire");
    }
}
