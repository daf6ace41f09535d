package highwire.netty;

import io.netty.channel.EventLoop;
import io.netty.channel.IoEvent;
import io.netty.channel.IoEventLoop;
import io.netty.channel.IoRegistration;
import io.netty.channel.nio.NioIoHandle;
import io.netty.channel.nio.NioIoOps;
import io.netty.util.concurrent.Future;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.DatagramChannel;
import java.nio.channels.SelectableChannel;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** One question to one server ({@link Probe}). In the event loop of the channel that wants to connect. */
final class ProbeClient implements NioIoHandle {
    /** A question is asked this often. */
    private static final int QUESTIONS = 4;
    /** A reason that the next connection need not have. */
    static final String NOT_NOW = "it accepts no connections at this moment";

    private final Probe question;
    private final DatagramChannel socket;
    private final ByteBuffer datagram = ByteBuffer.allocate(Probe.BYTES + 1);
    /** Gets null if the peer has Highwire, and else why not. */
    private final Consumer<String> answered;
    private IoRegistration registration;
    private Future<?> timer;
    private int asked;
    private boolean isOver;

    ProbeClient(EventLoop loop, InetSocketAddress peer, InetAddress local, byte[] nonce, int port, Consumer<String> answered) throws IOException {
        this.question = new Probe(Probe.QUESTION, nonce, port);
        this.answered = answered;
        this.socket = DatagramChannel.open();
        boolean isMade = false;
        try {
            socket.configureBlocking(false);
            if (local != null) {
                socket.bind(new InetSocketAddress(local, 0));
            }
            // Connected, so that a port at which nobody listens is reported.
            socket.connect(peer);
            isMade = true;
        } finally {
            if (!isMade) {
                socket.close();
            }
        }
        int pause = Math.max(1, Settings.probeMillis() / QUESTIONS);
        timer = loop.scheduleAtFixedRate(this::ask, pause, pause, TimeUnit.MILLISECONDS);
        ((IoEventLoop) loop).register(this).addListener(registered -> {
            if (!registered.isSuccess()) {
                over("no answer can be waited for: " + registered.cause());
            } else if (!isOver) {
                registration = (IoRegistration) registered.getNow();
                registration.submit(NioIoOps.READ);
                ask();
            }
        });
    }

    private void ask() {
        if (isOver) {
            return;
        }
        if (asked++ == QUESTIONS) {
            over("nothing there answers to Highwire in " + Settings.probeMillis() + " ms");
            return;
        }
        try {
            socket.write(question.bytes());
        } catch (IOException e) {
            over("it has no Highwire");
        }
    }

    @Override
    public SelectableChannel selectableChannel() {
        return socket;
    }

    @Override
    public void handle(IoRegistration of, IoEvent event) {
        try {
            while (!isOver) {
                datagram.clear();
                if (socket.read(datagram) <= 0) {
                    return;
                }
                Probe answer = Probe.parse(datagram.flip());
                if (answer != null && answer.kind != Probe.QUESTION && Arrays.equals(answer.nonce, question.nonce)) {
                    over(reason(answer));
                }
            }
        } catch (IOException e) {
            over("it has no Highwire");
        }
    }

    private static String reason(Probe answer) {
        if (answer.kind == Probe.YES) {
            return null;
        }
        if (answer.kind == Probe.NOT_NOW) {
            return NOT_NOW;
        }
        return answer.version == Probe.VERSION ? "it has no engine" : "it speaks version " + answer.version + ", and this end " + Probe.VERSION;
    }

    private void over(String reason) {
        if (!isOver) {
            close();
            answered.accept(reason);
        }
    }

    @Override
    public void close() {
        isOver = true;
        timer.cancel(false);
        if (registration != null) {
            registration.cancel();
        }
        try {
            socket.close();
        } catch (IOException e) {
            // The kernel closes it even if it reports an error.
        }
    }
}
