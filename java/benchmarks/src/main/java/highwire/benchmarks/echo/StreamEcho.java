package highwire.benchmarks.echo;

import java.io.EOFException;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.net.StandardProtocolFamily;
import java.net.StandardSocketOptions;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;

/** The JDK's socket channels: TCP on the loopback interface, or Unix-domain sockets. */
record StreamEcho(StandardProtocolFamily family, Waits waits) implements Echo {
    private final class Answering implements Server, Runnable {
        private final ServerSocketChannel listener = ServerSocketChannel.open(family);
        private final int bytes;
        private volatile SocketChannel channel;

        Answering(int bytes) throws IOException {
            this.bytes = bytes;
            listener.bind(isUnix() ? UnixDomainSocketAddress.of(unusedPath()) : new InetSocketAddress(InetAddress.getLoopbackAddress(), 0));
            Thread.ofPlatform().name("echo").daemon().start(this);
        }

        @Override
        public String introduction() {
            try {
                SocketAddress address = listener.getLocalAddress();
                return address instanceof InetSocketAddress internet ? Integer.toString(internet.getPort()) : address.toString();
            } catch (IOException e) {
                throw new IllegalStateException(e);
            }
        }

        @Override
        public void run() {
            try {
                channel = listener.accept();
                prepare(channel);
                ByteBuffer buffer = ByteBuffer.allocateDirect(bytes);
                while (true) {
                    fill(channel, buffer);
                    drain(channel, buffer);
                }
            } catch (IOException e) {
                // One of the ends was closed.
            }
        }

        @Override
        public void close() throws IOException {
            if (isUnix()) {
                Files.deleteIfExists(((UnixDomainSocketAddress) listener.getLocalAddress()).getPath());
            }
            listener.close();
            if (channel != null) {
                channel.close();
            }
        }
    }

    private final class Asking extends Turns {
        private final SocketChannel channel;
        private final ByteBuffer buffer;

        Asking(String server, int bytes) throws IOException {
            channel = SocketChannel.open(isUnix()
                    ? UnixDomainSocketAddress.of(server)
                    : new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(server)));
            prepare(channel);
            buffer = ByteBuffer.allocateDirect(bytes);
        }

        @Override
        int exchange(int number) throws IOException {
            buffer.putInt(0, number);
            drain(channel, buffer);
            fill(channel, buffer);
            return buffer.getInt(0);
        }

        @Override
        public void close() throws IOException {
            channel.close();
        }
    }

    private boolean isUnix() {
        return family == StandardProtocolFamily.UNIX;
    }

    private static Path unusedPath() throws IOException {
        Path path = Files.createTempFile("echo-", ".socket");
        Files.delete(path);
        return path;
    }

    private void prepare(SocketChannel channel) throws IOException {
        if (!isUnix()) {
            channel.setOption(StandardSocketOptions.TCP_NODELAY, true);
        }
        channel.configureBlocking(waits == Waits.BLOCKING);
    }

    private static void fill(SocketChannel channel, ByteBuffer buffer) throws IOException {
        buffer.clear();
        while (buffer.hasRemaining()) {
            int count = channel.read(buffer);
            if (count < 0) {
                throw new EOFException("the other end was closed");
            }
            if (count == 0) {
                Thread.onSpinWait();
            }
        }
    }

    private static void drain(SocketChannel channel, ByteBuffer buffer) throws IOException {
        buffer.clear();
        while (buffer.hasRemaining()) {
            channel.write(buffer);
        }
    }

    @Override
    public Server serve(int bytes) throws IOException {
        return new Answering(bytes);
    }

    @Override
    public Client connect(String server, int bytes) throws IOException {
        return new Asking(server, bytes);
    }
}
