package highwire.netty;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.util.concurrent.TimeUnit;

/** The sign of the peer's life beside a queue pair: the TCP connection, which carries nothing and ends when the peer does. In the channel's event loop. */
final class Sign {
    private final HighwireSocketChannel channel;
    private boolean isEnded;
    /** Why the connection is broken although the peer has not said that it ends. */
    private IOException reset;

    Sign(HighwireSocketChannel channel) {
        this.channel = channel;
    }

    boolean isEnded() {
        return isEnded;
    }

    /** Whether the peer has ended without having said so. */
    boolean isReset() {
        return reset != null;
    }

    /** The selector has found something at the TCP connection. */
    void look(SocketChannel socket, Link link) {
        try {
            int count = socket.read(ByteBuffer.allocate(1));
            if (count > 0) {
                link.fail("the peer has sent bytes over TCP");
            } else if (count < 0) {
                end();
                if (!channel.isInputShutdown() && !link.isPeerFinished()) {
                    onSilence(link);
                }
            }
        } catch (IOException e) {
            end();
            reset = e;
        }
    }

    private void end() {
        isEnded = true;
        channel.ignoreSign();
    }

    /** The peer has ended and has not said so over the queue pair. What comes from another engine may be on its way. */
    private void onSilence(Link link) {
        if (link.outgoing().isNear()) {
            reset = new IOException("Connection reset by peer: it has ended without closing");
        } else {
            channel.eventLoop().schedule(() -> {
                if (channel.isOpen() && !link.isPeerFinished()) {
                    reset = new IOException("Connection reset by peer: it has ended without closing");
                }
            }, Settings.patienceMillis(), TimeUnit.MILLISECONDS);
        }
    }

    /** Why nothing reaches the peer any more; null if it does. */
    IOException breakage(Link link) {
        if (link.isPeerClosed()) {
            return new IOException(link.isPeerFinished() ? "Broken pipe: the peer has closed the connection" : "Connection reset by peer");
        }
        if (link.failure() != null) {
            return new IOException("Connection reset: " + link.failure());
        }
        return reset;
    }
}
