package highwire.netty;

import io.netty.channel.EventLoop;
import io.netty.channel.IoEvent;
import io.netty.channel.IoEventLoop;
import io.netty.channel.IoRegistration;
import io.netty.channel.nio.NioIoHandle;
import io.netty.channel.nio.NioIoOps;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.DatagramChannel;
import java.nio.channels.SelectableChannel;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.function.BooleanSupplier;

/** Answers a listening channel's questions ({@link Probe}), and knows which connections will be of clients that have asked. All of it in the channel's event loop. */
final class ProbeServer implements NioIoHandle {
    private static final int CLIENTS_MAX = 4096;
    /** A client connects at once; later its port may be another client's. */
    private static final long CLIENT_NANOS = 5_000_000_000L;

    private record Client(byte[] nonce, long until) {}

    private final EventLoop loop;
    private final Path door;
    /** Whether the channel accepts connections without its program's doing. */
    private final BooleanSupplier accepts;
    private final DatagramChannel socket;
    private final ByteBuffer datagram = ByteBuffer.allocate(Probe.BYTES + 1);
    private final Map<InetSocketAddress, Client> clients = new LinkedHashMap<>() {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<InetSocketAddress, Client> eldest) {
            return size() > CLIENTS_MAX;
        }
    };
    private int waiting;

    ProbeServer(EventLoop loop, InetSocketAddress address, BooleanSupplier accepts) throws IOException {
        this.loop = loop;
        this.accepts = accepts;
        this.door = HighwireIoHandler.of(loop).door();
        this.socket = DatagramChannel.open();
        boolean isMade = false;
        try {
            socket.configureBlocking(false);
            socket.bind(address);
            isMade = true;
        } finally {
            if (!isMade) {
                socket.close();
            }
        }
        ((IoEventLoop) loop).register(this).addListener(registered -> {
            if (registered.isSuccess()) {
                ((IoRegistration) registered.getNow()).submit(NioIoOps.READ);
            }
        });
        // Opened now, so that the first client does not wait for it.
        Device.at(door);
    }

    /** The nonce of the client whose connection was accepted; null if it has not asked. */
    byte[] expected(InetSocketAddress address) {
        Client client = clients.remove(address);
        return client == null || client.until - System.nanoTime() <= 0 ? null : client.nonce;
    }

    @Override
    public SelectableChannel selectableChannel() {
        return socket;
    }

    @Override
    public void handle(IoRegistration registration, IoEvent event) {
        try {
            while (true) {
                datagram.clear();
                InetSocketAddress from = (InetSocketAddress) socket.receive(datagram);
                if (from == null) {
                    return;
                }
                Probe question = Probe.parse(datagram.flip());
                if (question != null && question.kind == Probe.QUESTION) {
                    answer(question, from);
                }
            }
        } catch (IOException e) {
            // Of one datagram. The client asks again.
        }
    }

    private void answer(Probe question, InetSocketAddress from) {
        if (waiting >= CLIENTS_MAX) {
            return;
        }
        waiting++;
        Device.at(door).whenComplete((device, failure) -> loop.execute(() -> {
            waiting--;
            boolean isServed = failure == null && device.failure() == null && question.version == Probe.VERSION;
            // A client waits for this end's introduction, which comes once it is accepted.
            int kind = !isServed ? Probe.NO : accepts.getAsBoolean() ? Probe.YES : Probe.NOT_NOW;
            InetSocketAddress client = new InetSocketAddress(from.getAddress(), question.port);
            clients.remove(client);
            if (kind == Probe.YES) {
                clients.put(client, new Client(question.nonce, System.nanoTime() + CLIENT_NANOS));
            }
            try {
                socket.send(new Probe(kind, question.nonce, question.port).bytes(), from);
            } catch (IOException e) {
                // The client asks again, or takes TCP.
            }
        }));
    }

    @Override
    public void close() {
        try {
            socket.close();
        } catch (IOException e) {
            // The kernel closes it even if it reports an error.
        }
    }
}
