package highwire.benchmarks.echo;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.DatagramChannel;

/** The JDK's datagram channels: UDP on the loopback interface, a message in each datagram. */
record DatagramEcho(Waits waits) implements Echo {
    /** A bound socket. */
    private class End {
        final DatagramChannel channel = DatagramChannel.open();
        final ByteBuffer buffer;

        End(int bytes) throws IOException {
            buffer = ByteBuffer.allocateDirect(bytes);
            channel.bind(at(0)).configureBlocking(waits == Waits.BLOCKING);
        }

        String port() throws IOException {
            return Integer.toString(((InetSocketAddress) channel.getLocalAddress()).getPort());
        }

        void receive() throws IOException {
            buffer.clear();
            while (channel.read(buffer) == 0) {
                Thread.onSpinWait();
            }
        }

        void send() throws IOException {
            channel.write(buffer.clear());
        }
    }

    private static InetSocketAddress at(int port) {
        return new InetSocketAddress(InetAddress.getLoopbackAddress(), port);
    }

    @Override
    public Server serve(int bytes) throws IOException {
        End end = new End(bytes);
        String port = end.port();
        return new Server() {
            @Override
            public String introduction() {
                return port;
            }

            @Override
            public void meet(String client) throws IOException {
                end.channel.connect(at(Integer.parseInt(client)));
                Thread.ofPlatform().name("echo").daemon().start(() -> answer(end));
            }

            @Override
            public void close() throws IOException {
                end.channel.close();
            }
        };
    }

    private static void answer(End end) {
        try {
            while (true) {
                end.receive();
                end.send();
            }
        } catch (IOException e) {
            // One of the ends was closed.
        }
    }

    @Override
    public Client connect(String server, int bytes) throws IOException {
        End end = new End(bytes);
        end.channel.connect(at(Integer.parseInt(server)));
        String port = end.port();
        return new Turns() {
            @Override
            public String introduction() {
                return port;
            }

            @Override
            int exchange(int number) throws IOException {
                end.buffer.putInt(0, number);
                end.send();
                end.receive();
                return end.buffer.getInt(0);
            }

            @Override
            public void close() throws IOException {
                end.channel.close();
            }
        };
    }
}
