package highwire.netty;

import io.netty.channel.EventLoop;
import io.netty.util.concurrent.Future;
import java.io.IOException;
import java.nio.channels.SocketChannel;
import java.nio.file.Path;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;

/**
 * How the two ends of a TCP connection come to a {@link Link}, or to plain TCP with a reason. In the channel's event loop, but for calls to the engine.
 *
 * <pre>
 *   server                         client
 *     makes its end
 *     INTRODUCTION ───────────────▶ makes its end, connects it
 *     connects its end ◀─────────── INTRODUCTION
 *     READY ──────────────────────▶
 * </pre>
 */
final class Negotiation {
    /** What comes of it; one of the three is called, once. */
    interface Outcome {
        /** Both ends can write. */
        void linked(Link link);

        /** All further bytes are the application's. */
        void plain(String reason);

        /** The connection is of no use. */
        void failed(IOException reason);
    }

    private interface Step {
        void run() throws Exception;
    }

    private final EventLoop loop;
    private final HighwireIoHandler handler;
    private final Path door;
    private final SocketChannel socket;
    private final boolean isServer;
    private final Outcome outcome;
    private final Greeting greeting;
    private final Future<?> timer;
    private Link link;
    private boolean isOver;

    Negotiation(EventLoop loop, SocketChannel socket, boolean isServer, byte[] nonce, Outcome outcome) {
        this.loop = loop;
        this.handler = HighwireIoHandler.of(loop);
        this.door = handler.door();
        this.socket = socket;
        this.isServer = isServer;
        this.outcome = outcome;
        this.greeting = new Greeting(nonce);
        int patience = Settings.patienceMillis();
        this.timer = loop.schedule(() -> fail(new IOException("the peer's greeting has not come in " + patience + " ms")), patience, TimeUnit.MILLISECONDS);
        if (isServer) {
            call(this::makeEnd, () -> greeting.say(socket, Greeting.INTRODUCTION, link.introduction()));
        }
    }

    /** Bytes have come. */
    void read() {
        try {
            if (isOver || !greeting.read(socket)) {
                return;
            }
            int kind = greeting.kind();
            String text = greeting.text();
            greeting.restart();
            if (kind == Greeting.REFUSAL) {
                plain("the peer says: " + text);
            } else if (kind == Greeting.READY && !isServer && link != null) {
                linked();
            } else if (kind == Greeting.INTRODUCTION && isServer == (link != null)) {
                onIntroduction(text);
            } else {
                throw new IOException("the peer's greeting is of kind " + kind);
            }
        } catch (IOException e) {
            fail(e);
        }
    }

    private void onIntroduction(String text) {
        if (isServer) {
            call(() -> link.connect(text), () -> {
                greeting.say(socket, Greeting.READY, "");
                linked();
            });
        } else {
            call(() -> {
                makeEnd();
                link.connect(text);
            }, () -> greeting.say(socket, Greeting.INTRODUCTION, link.introduction()));
        }
    }

    private void makeEnd() throws Exception {
        Device device = Device.at(door).getNow(null);
        if (device == null) {
            throw new IOException("no engine is open");
        }
        handler.bellAt(device);
        link = new Link(device);
    }

    /** Makes a call to the engine, and goes on in the event loop. If the engine refuses, the connection is plain TCP. */
    private void call(Step call, Step then) {
        Device.at(door).whenComplete((device, failure) -> Device.control(() -> {
            Exception refused = null;
            try {
                call.run();
            } catch (Exception e) {
                refused = e;
            }
            Exception reason = refused;
            try {
                loop.execute(() -> goOn(then, reason));
            } catch (RejectedExecutionException e) {
                drop();
            }
        }));
    }

    private void goOn(Step then, Exception refused) {
        if (isOver) {
            drop();
            return;
        }
        try {
            if (refused == null) {
                then.run();
            } else {
                greeting.say(socket, Greeting.REFUSAL, String.valueOf(refused.getMessage()));
                plain(refused.getMessage());
            }
        } catch (Exception e) {
            fail(e instanceof IOException io ? io : new IOException(e));
        }
    }

    private void linked() {
        end();
        outcome.linked(link);
    }

    private void plain(String reason) {
        end();
        drop();
        outcome.plain(reason);
    }

    private void fail(IOException reason) {
        if (!isOver) {
            end();
            drop();
            outcome.failed(reason);
        }
    }

    private void end() {
        isOver = true;
        timer.cancel(false);
    }

    /** Nothing comes of it any more. */
    void cancel() {
        if (!isOver) {
            end();
            drop();
        }
    }

    private void drop() {
        // A call that is on its way drops what it has made.
        Device.control(() -> {
            Link made = link;
            link = null;
            if (made != null) {
                made.close(0);
            }
        });
    }
}
