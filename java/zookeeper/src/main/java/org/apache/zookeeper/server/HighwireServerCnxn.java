package org.apache.zookeeper.server;

import highwire.zookeeper.FrameReader;
import highwire.zookeeper.Greeting;
import highwire.zookeeper.Hub;
import highwire.zookeeper.Link;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.SelectionKey;
import java.nio.channels.SocketChannel;
import java.util.ArrayDeque;
import java.util.Queue;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.jute.BinaryInputArchive;
import org.apache.jute.Record;
import org.apache.zookeeper.ClientCnxn;
import org.apache.zookeeper.data.Stat;
import org.apache.zookeeper.proto.ConnectRequest;
import org.apache.zookeeper.proto.ReplyHeader;
import org.apache.zookeeper.proto.RequestHeader;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A client. Its first four bytes decide whether it stays a TCP client, which its superclass serves, or is given a queue pair. */
final class HighwireServerCnxn extends NIOServerCnxn implements Hub.Owner {
    private static final Logger LOG = LoggerFactory.getLogger(HighwireServerCnxn.class);

    private enum Kind {
        UNKNOWN,
        GREETING,
        /** Another thread makes the link: an engine that is silent must not keep this one from clients over TCP. */
        CONNECTING,
        TCP,
        LINK
    }

    /** Messages that came while the server accepted no more from the client. */
    private record Deferred(long wrId, int length) {}

    private final HighwireServerCnxnFactory factory;
    private final SocketChannel socket;
    private final Greeting greeting = new Greeting();
    private final AtomicBoolean isThrottled = new AtomicBoolean();
    private final AtomicBoolean isClosed = new AtomicBoolean();
    private volatile Kind kind = Kind.UNKNOWN;
    private volatile Hub hub;
    private volatile Link link;
    private volatile boolean endsWhenDrained;

    // Used by the hub's thread.
    private final Queue<Deferred> deferred = new ArrayDeque<>();
    private final Queue<ByteBuffer> frames = new ArrayDeque<>();
    private final FrameReader reader = new FrameReader(this::checkLength);
    /** Null until there is a session. */
    private volatile Reads reads;

    HighwireServerCnxn(ZooKeeperServer server, SocketChannel socket, SelectionKey key, HighwireServerCnxnFactory factory,
            NIOServerCnxnFactory.SelectorThread thread) throws IOException {
        super(server, socket, key, factory, thread);
        this.factory = factory;
        this.socket = socket;
    }

    @Override
    void doIO(SelectionKey key) throws InterruptedException {
        if (kind == Kind.UNKNOWN) {
            classify();
        }
        switch (kind) {
            case TCP -> super.doIO(key);
            case GREETING -> greet();
            case LINK -> lookForTheEnd();
            case CONNECTING -> lookWhileConnecting();
            case UNKNOWN -> { }
        }
    }

    /** The superclass finds the bytes in the place where it would have read them. */
    private void classify() {
        try {
            if (socket.read(incomingBuffer) < 0) {
                kind = Kind.TCP;
            } else if (!incomingBuffer.hasRemaining()) {
                boolean greets = incomingBuffer.getInt(0) == Greeting.MAGIC;
                if (greets) {
                    greeting.skipMagic();
                }
                kind = greets ? Kind.GREETING : Kind.TCP;
            }
        } catch (IOException e) {
            LOG.info("A client at {} has gone: {}", socket.socket().getRemoteSocketAddress(), e.getMessage());
            close(DisconnectReason.IO_EXCEPTION);
        }
    }

    private void greet() {
        try {
            String introduction = greeting.read(socket);
            if (introduction != null) {
                kind = Kind.CONNECTING;
                factory.engineWork(() -> answer(introduction));
            }
        } catch (IOException | IllegalArgumentException e) {
            refuse(e);
        }
    }

    private void answer(String introduction) {
        try {
            if (!isClosed.get()) {
                connect(introduction);
            }
        } catch (IOException | RuntimeException e) {
            refuse(e);
        }
    }

    /** Before there is a link: the end, or bytes that nobody expects. */
    private void lookWhileConnecting() {
        try {
            if (socket.read(ByteBuffer.allocate(1)) == 0) {
                return;
            }
        } catch (IOException e) {
            LOG.debug("The connection broke", e);
        }
        close(DisconnectReason.UNABLE_TO_READ_FROM_CLIENT);
    }

    private void refuse(Exception e) {
        if (!isClosed.get()) {
            LOG.warn("No queue pair for the client at {}: {}", socket.socket().getRemoteSocketAddress(), e.getMessage());
            try {
                Greeting.refuse(socket, String.valueOf(e.getMessage()));
            } catch (IOException gone) {
                LOG.debug("It has gone", gone);
            }
            close(DisconnectReason.IO_EXCEPTION);
        }
    }

    private void connect(String introduction) throws IOException {
        if (!isZKServerRunning()) {
            throw new IOException("ZooKeeperServer not running");
        }
        hub = factory.hub();
        Link made = hub.link(this);
        try {
            made.connect(introduction);
        } catch (IOException e) {
            hub.unlink(this, made, Runnable::run);
            throw e;
        }
        link = made;
        kind = Kind.LINK;
        if (made.hasMailbox()) {
            hub.lookForMail(this);
        }
        Greeting.introduce(socket, made.introduction());
        if (isClosed.get()) {
            // Closed meanwhile, when no link could be seen.
            hub.unlink(this, made, Runnable::run);
        }
    }

    /** Over TCP only the end can still come. */
    private void lookForTheEnd() {
        try {
            if (socket.read(ByteBuffer.allocate(1)) == 0) {
                return;
            }
        } catch (IOException e) {
            LOG.debug("The connection broke", e);
        }
        // The client's earlier messages are in the queue.
        hub.call(new Hub.Owner() {
            @Override
            public void received(long wrId, int length) {}

            @Override
            public boolean takeMail() {
                return false;
            }

            @Override
            public void proceed() {
                LOG.info("The client at {} has gone, session 0x{}", getRemoteSocketAddress(), Long.toHexString(getSessionId()));
                close(DisconnectReason.UNABLE_TO_READ_FROM_CLIENT);
            }

            @Override
            public void broken(String reason) {}
        });
    }

    private void checkLength(int length) throws IOException {
        if (length < 0 || length > BinaryInputArchive.maxBuffer) {
            throw new IOException("a frame of " + length + " bytes is out of range (jute.maxbuffer=" + BinaryInputArchive.maxBuffer + ")");
        }
        if (!isZKServerRunning()) {
            throw new IOException("ZooKeeperServer not running");
        }
        zkServer.checkRequestSizeWhenReceivingMessage(length);
    }

    @Override
    public void received(long wrId, int length) {
        if (isThrottled.get() || !deferred.isEmpty()) {
            // The place is not given back, so that the client's engine waits, as with TCP.
            deferred.add(new Deferred(wrId, length));
        } else {
            take(wrId, length);
        }
    }

    @Override
    public boolean takeMail() {
        boolean hasTaken = false;
        while (!isThrottled.get() && !isClosed.get() && take(() -> link.takeMail(reader, frames))) {
            hasTaken = true;
        }
        return hasTaken;
    }

    /** The source of the next piece of the stream. */
    private interface Source {
        /** Returns whether there was a piece, whose frames are complete now. */
        boolean take() throws IOException;
    }

    private void take(long wrId, int length) {
        take(() -> {
            link.take(wrId, length, reader, frames);
            return true;
        });
    }

    /** One client's invalid bytes must not end the thread of all. */
    private boolean take(Source source) {
        if (isClosed.get()) {
            return false;
        }
        try {
            boolean hasTaken = source.take();
            for (ByteBuffer frame = frames.poll(); frame != null && !isClosed.get(); frame = frames.poll()) {
                process(frame);
            }
            return hasTaken;
        } catch (ClientCnxnLimitException e) {
            ServerMetrics.getMetrics().CONNECTION_REJECTED.add(1);
            LOG.warn("Closing session 0x{}", Long.toHexString(getSessionId()), e);
            close(DisconnectReason.CLIENT_CNX_LIMIT);
        } catch (CloseRequestException e) {
            close(e.getReason());
        } catch (IOException | RuntimeException e) {
            LOG.warn("Closing session 0x{}", Long.toHexString(getSessionId()), e);
            close(DisconnectReason.IO_EXCEPTION);
        }
        return false;
    }

    private void process(ByteBuffer frame) throws IOException, ClientCnxnLimitException {
        packetReceived(4 + frame.remaining());
        factory.touchCnxn(this);
        if (reads != null) {
            RequestHeader header = new RequestHeader();
            ByteBufferInputStream.byteBuffer2Record(frame, header);
            RequestRecord record = RequestRecord.fromBytes(frame.slice());
            if (!reads.answer(this, header, record)) {
                reads.queued();
                zkServer.processPacket(this, header, record);
            }
            return;
        }
        if (!isZKServerRunning()) {
            throw new IOException("ZooKeeperServer not running");
        }
        ConnectRequest request = protocolManager.deserializeConnectRequest(BinaryInputArchive.getArchive(new ByteBufferInputStream(frame)));
        zkServer.processConnectRequest(this, request);
        reads = new Reads(zkServer);
    }

    @Override
    public void proceed() {
        if (isClosed.get()) {
            return;
        }
        while (!isThrottled.get() && !deferred.isEmpty() && !isClosed.get()) {
            Deferred next = deferred.remove();
            take(next.wrId, next.length);
        }
        try {
            if (endsWhenDrained) {
                if (link.isDrained()) {
                    close(DisconnectReason.CLIENT_CLOSED_CONNECTION);
                }
            } else {
                hub.waitForSends(this, !link.flush());
            }
        } catch (IOException e) {
            broken(e.getMessage());
        }
    }

    @Override
    public void broken(String reason) {
        if (!isClosed.get()) {
            LOG.warn("Closing session 0x{}: {}", Long.toHexString(getSessionId()), reason);
            close(DisconnectReason.IO_EXCEPTION);
        }
    }

    @Override
    public void sendBuffer(ByteBuffer... buffers) {
        if (kind != Kind.LINK) {
            super.sendBuffer(buffers);
            return;
        }
        Link to = link;
        try {
            if (buffers.length > 0 && buffers[0] == ServerCnxnFactory.closeConn) {
                endsWhenDrained = true;
                hub.waitForSends(this, true);
                return;
            }
            to.send(buffers);
            packetSent();
            if (to.hasBacklog()) {
                hub.waitForSends(this, true);
            }
        } catch (IOException e) {
            broken(e.getMessage());
        }
    }

    @Override
    public int sendResponse(ReplyHeader header, Record record, String tag, String cacheKey, Stat stat, int type) {
        int length = super.sendResponse(header, record, tag, cacheKey, stat, type);
        Reads of = reads;
        if (of != null && header.getXid() != ClientCnxn.NOTIFICATION_XID) {
            of.answered();
        }
        return length;
    }

    @Override
    public void disableRecv(boolean waitDisableRecv) {
        isThrottled.set(true);
        super.disableRecv(waitDisableRecv);
    }

    @Override
    public void enableRecv() {
        super.enableRecv();
        if (isThrottled.compareAndSet(true, false) && kind == Kind.LINK) {
            hub.call(this);
        }
    }

    /**
     * The server notices the end of a client over a queue pair whether or not it takes the client's requests.
     */
    @Override
    public int getInterestOps() {
        return kind == Kind.LINK || kind == Kind.CONNECTING ? isSelectable() ? SelectionKey.OP_READ : 0 : super.getInterestOps();
    }

    @Override
    public void close(DisconnectReason reason) {
        isClosed.set(true);
        super.close(reason);
        Link had = link;
        if (had != null) {
            hub.unlink(this, had, factory::engineWork);
        }
    }
}
