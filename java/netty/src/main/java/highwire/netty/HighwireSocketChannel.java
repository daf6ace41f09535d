package highwire.netty;

import io.netty.channel.Channel;
import io.netty.channel.ChannelException;
import io.netty.channel.ChannelFuture;
import io.netty.channel.ChannelOutboundBuffer;
import io.netty.channel.ChannelPromise;
import io.netty.channel.EventLoop;
import io.netty.channel.IoEvent;
import io.netty.channel.IoRegistration;
import io.netty.channel.nio.NioIoEvent;
import io.netty.channel.nio.NioIoOps;
import io.netty.channel.socket.nio.NioSocketChannel;
import io.netty.util.concurrent.GlobalEventExecutor;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.channels.CancelledKeyException;
import java.nio.channels.SocketChannel;
import java.security.SecureRandom;
import java.util.concurrent.Executor;

/**
 * A socket channel whose bytes go over a queue pair, or over TCP if the peer has no Highwire or an engine is missing. It takes the place of {@code EpollSocketChannel}; its event
 * loop has a {@link HighwireIoHandler}.
 *
 * <p>{@code connect} decides between the two. The TCP connection stays open beside a queue pair: when it ends, the peer has ended.
 */
// Its parts keep a reference to it and use it in the event loop alone.
@SuppressWarnings("this-escape")
public class HighwireSocketChannel extends NioSocketChannel {
    /** How the channel reaches its peer. */
    private enum State { PLAIN, ASKING, CONNECTING, GREETING, LINKED }

    private static final SecureRandom RANDOM = new SecureRandom();

    private State state = State.PLAIN;
    private HighwireIoHandler handler;
    private long bell;
    private InetSocketAddress peer;
    private byte[] nonce;
    private ProbeClient probe;
    private Negotiation negotiation;
    private Throwable connectFailure;
    private volatile Link link;
    private volatile String fallback;

    private final LinkReader reader = new LinkReader(this);
    private final LinkWriter writer = new LinkWriter();
    private final Sign sign = new Sign(this);

    /** For a bootstrap, which makes it by its class. */
    public HighwireSocketChannel() {}

    /**
     * An accepted connection.
     *
     * @param parent the listening channel
     * @param socket the connection
     * @param nonce the client's if it has asked for Highwire; else null
     */
    HighwireSocketChannel(Channel parent, SocketChannel socket, byte[] nonce) {
        super(parent, socket);
        this.nonce = nonce;
        if (nonce != null) {
            state = State.GREETING;
        }
    }

    /** {@return whether bytes go over a queue pair} */
    public boolean isOverQueuePair() {
        return link != null;
    }

    /** {@return why bytes go over TCP; null if they do not, or if the peer is a client that has not asked for anything else} */
    public String fallbackReason() {
        return fallback;
    }

    @Override
    protected boolean isCompatible(EventLoop loop) {
        return super.isCompatible(loop) && HighwireIoHandler.of(loop) != null;
    }

    @Override
    protected AbstractNioUnsafe newUnsafe() {
        return new HighwireUnsafe();
    }

    @Override
    public boolean isActive() {
        return (state == State.PLAIN || state == State.LINKED) && super.isActive();
    }

    @Override
    protected SocketAddress localAddress0() {
        // Before it is connected the socket is bound, to no particular address.
        return state == State.PLAIN || javaChannel().isConnected() ? super.localAddress0() : null;
    }

    @Override
    protected void doRegister(ChannelPromise promise) {
        super.doRegister(promise);
        promise.addListener(registered -> {
            if (registered.isSuccess()) {
                begin();
            }
        });
    }

    private void begin() {
        handler = HighwireIoHandler.of(eventLoop());
        if (state == State.LINKED) {
            handler.add(this);
            link.owner(handler);
            keepSign();
        } else if (state == State.GREETING && negotiation == null && isOpen()) {
            negotiation = new Negotiation(eventLoop(), javaChannel(), true, nonce, new Accepted());
            addAndSubmit(NioIoOps.READ);
        }
    }

    @Override
    protected void doDeregister() throws Exception {
        if (handler != null) {
            handler.remove(this);
        }
        super.doDeregister();
    }

    // Connecting.

    @Override
    protected boolean doConnect(SocketAddress remote, SocketAddress local) throws Exception {
        if (!(remote instanceof InetSocketAddress address) || address.isUnresolved()) {
            return super.doConnect(remote, local);
        }
        peer = address;
        fallback = Fallbacks.reason(peer);
        if (fallback != null) {
            return super.doConnect(remote, local);
        }
        boolean isBegun = false;
        try {
            if (local != null) {
                javaChannel().bind(local);
            }
            isBegun = true;
        } finally {
            if (!isBegun) {
                doClose();
            }
        }
        state = State.ASKING;
        Device.at(handler.door()).whenComplete((device, failure) -> eventLoop().execute(() -> ask(failure)));
        return false;
    }

    private void ask(Throwable noEngine) {
        if (!isOpen()) {
            return;
        }
        if (noEngine != null) {
            connectPlain(noEngine.getMessage());
            return;
        }
        try {
            nonce = new byte[Greeting.NONCE_BYTES];
            RANDOM.nextBytes(nonce);
            InetSocketAddress bound = (InetSocketAddress) javaChannel().getLocalAddress();
            if (bound == null) {
                bound = (InetSocketAddress) javaChannel().bind(null).getLocalAddress();
            }
            InetAddress from = bound.getAddress().isAnyLocalAddress() ? null : bound.getAddress();
            probe = new ProbeClient(eventLoop(), peer, from, nonce, bound.getPort(), this::answered);
        } catch (IOException e) {
            connectPlain("it cannot be asked: " + e.getMessage());
        }
    }

    private void answered(String reason) {
        if (!isOpen()) {
            return;
        }
        if (reason == null) {
            connectSocket(State.CONNECTING);
        } else {
            connectPlain(reason);
        }
    }

    private void connectPlain(String reason) {
        fallback(reason);
        connectSocket(State.PLAIN);
    }

    private void fallback(String reason) {
        fallback = reason;
        if (peer != null && !reason.equals(ProbeClient.NOT_NOW)) {
            Fallbacks.add(peer, reason);
        }
    }

    private void connectSocket(State next) {
        state = next;
        try {
            if (javaChannel().connect(peer)) {
                onConnected();
            } else {
                addAndSubmit(NioIoOps.CONNECT);
            }
        } catch (Throwable e) {
            failConnect(e);
        }
    }

    private void onConnected() {
        if (state == State.PLAIN) {
            unsafe().finishConnect();
            return;
        }
        state = State.GREETING;
        negotiation = new Negotiation(eventLoop(), javaChannel(), false, nonce, new Connected());
        addAndSubmit(NioIoOps.READ);
    }

    private void failConnect(Throwable reason) {
        connectFailure = reason;
        try {
            // Only the socket: the rest is closed once the program knows the reason.
            javaChannel().close();
        } catch (IOException e) {
            reason.addSuppressed(e);
        }
        unsafe().finishConnect();
    }

    @Override
    protected void doFinishConnect() throws Exception {
        if (connectFailure instanceof Exception e) {
            throw e;
        }
        if (connectFailure != null) {
            throw new IOException(connectFailure);
        }
        if (negotiation == null) {
            super.doFinishConnect();
        } else {
            settle();
        }
    }

    /** The negotiation is over. */
    @SuppressWarnings("deprecation")
    private void settle() {
        invalidateLocalAddress();
        Link made = link;
        if (made == null) {
            state = State.PLAIN;
            removeAndSubmit(NioIoOps.READ);
        } else {
            state = State.LINKED;
            handler.add(this);
            made.owner(handler);
            keepSign();
        }
    }

    /** What comes of a client's negotiation. */
    private final class Connected implements Negotiation.Outcome {
        @Override
        public void linked(Link made) {
            link = made;
            Fallbacks.remove(peer);
            unsafe().finishConnect();
        }

        @Override
        public void plain(String reason) {
            fallback(reason);
            unsafe().finishConnect();
        }

        @Override
        public void failed(IOException reason) {
            // Once more, over TCP, is the program's choice: some bytes of a connection may be lost already.
            Fallbacks.add(peer, reason.getMessage());
            failConnect(reason);
        }
    }

    /** What comes of a server's. */
    private final class Accepted implements Negotiation.Outcome {
        @Override
        public void linked(Link made) {
            link = made;
            settle();
            pipeline().fireChannelActive();
        }

        @Override
        public void plain(String reason) {
            fallback = reason;
            settle();
            pipeline().fireChannelActive();
        }

        @Override
        public void failed(IOException reason) {
            unsafe().close(voidPromise());
        }
    }

    // Reading.

    @Override
    protected void doBeginRead() throws Exception {
        if (state == State.PLAIN) {
            super.doBeginRead();
            return;
        }
        reader.begin();
        keepSign();
    }

    /** The TCP connection is looked at, for its end. */
    private void keepSign() {
        if (!sign.isEnded() && isRegistered() && registration().isValid()) {
            addAndSubmit(NioIoOps.READ);
        }
    }

    /** The TCP connection has ended. */
    void ignoreSign() {
        removeAndSubmit(NioIoOps.READ);
    }

    /** Whether a turn has something to do. */
    boolean hasWork() {
        return link.isBusy()
                || mayWrite()
                || reader.mayRead() && (link.hasInput() || sign.breakage(link) != null)
                || reader.mayEnd(link);
    }

    /** Whether something waits for room, and there is some or never will be. */
    private boolean mayWrite() {
        return writer.wantsRoom() && (link.outgoing().room() > 0 || sign.breakage(link) != null);
    }

    Link link() {
        return link;
    }

    /** From now on this rings for the event loop. */
    void bell(long number) {
        bell = number;
    }

    void lieDown() {
        link.lieDown(bell, writer.wantsRoom());
    }

    void getUp() {
        if (isOpen()) {
            link.getUp();
        }
    }

    /** Does what there is to do; whether there was something. */
    boolean turn() {
        link.turn();
        boolean isDone = mayWrite();
        if (isDone) {
            writer.retry();
            unsafe().forceFlush();
        }
        boolean mayRead = isOpen() && reader.mayRead();
        // Asked before the looks for bytes and for the end, which then see all that the peer has done before it closed.
        IOException broken = mayRead ? sign.breakage(link) : null;
        if (isOpen() && reader.mayEnd(link)) {
            reader.end();
            return true;
        }
        if (mayRead) {
            if (link.readable() > 0) {
                reader.read(link);
                return true;
            }
            if (broken != null) {
                pipeline().fireExceptionCaught(broken);
                unsafe().close(voidPromise());
                return true;
            }
        }
        return isDone;
    }

    // Writing.

    @Override
    protected void doWrite(ChannelOutboundBuffer in) throws Exception {
        if (state != State.LINKED) {
            super.doWrite(in);
            return;
        }
        IOException broken = sign.breakage(link);
        if (broken != null) {
            throw broken;
        }
        keepSign();
        if (!writer.write(in, link.outgoing(), config().getWriteSpinCount())) {
            incompleteWrite(false);
        }
    }

    // Ending.

    @Override
    public ChannelFuture shutdownOutput(ChannelPromise promise) {
        if (!eventLoop().inEventLoop()) {
            eventLoop().execute(() -> shutdownOutput(promise));
            return promise;
        }
        if (state == State.LINKED && isOpen()) {
            link.outgoing().finish(Memory.FINISHED);
        }
        return super.shutdownOutput(promise);
    }

    @Override
    protected void doClose() throws Exception {
        if (handler != null) {
            handler.remove(this);
        }
        if (probe != null) {
            probe.close();
        }
        if (negotiation != null) {
            negotiation.cancel();
        }
        if (link != null) {
            // Before the TCP connection ends, so that the peer knows why it does.
            link.close(sign.isReset() ? 0 : linger() == 0 ? Memory.CLOSED : Memory.FINISHED | Memory.CLOSED);
        }
        super.doClose();
    }

    private int linger() {
        try {
            return config().getSoLinger();
        } catch (ChannelException e) {
            return -1;
        }
    }

    private final class HighwireUnsafe extends NioByteUnsafe {
        @Override
        public void handle(IoRegistration registration, IoEvent event) {
            if (state == State.PLAIN) {
                super.handle(registration, event);
                return;
            }
            try {
                NioIoOps ops = ((NioIoEvent) event).ops();
                if (ops.contains(NioIoOps.CONNECT)) {
                    removeAndSubmit(NioIoOps.CONNECT);
                    if (javaChannel().finishConnect()) {
                        onConnected();
                    }
                } else if (ops.contains(NioIoOps.READ)) {
                    if (state == State.LINKED) {
                        sign.look(javaChannel(), link);
                    } else if (negotiation != null) {
                        negotiation.read();
                    }
                }
            } catch (CancelledKeyException e) {
                close(voidPromise());
            } catch (IOException e) {
                failConnect(e);
            }
        }

        @Override
        protected Executor prepareToClose() {
            // As Netty does it: closing a socket that lingers would hold the event loop.
            if (state == State.PLAIN && javaChannel().isOpen() && linger() > 0) {
                try {
                    doDeregister();
                    return GlobalEventExecutor.INSTANCE;
                } catch (Throwable e) {
                    return null;
                }
            }
            return null;
        }
    }
}
