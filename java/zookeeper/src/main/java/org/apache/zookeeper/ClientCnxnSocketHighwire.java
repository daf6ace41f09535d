package org.apache.zookeeper;

import highwire.zookeeper.ClientLink;
import highwire.zookeeper.Fallback;
import highwire.zookeeper.FrameReader;
import highwire.zookeeper.Settings;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.ByteBuffer;
import java.util.Iterator;
import java.util.Queue;
import java.util.concurrent.locks.ReentrantLock;
import org.apache.zookeeper.ClientCnxn.EndOfStreamException;
import org.apache.zookeeper.ClientCnxn.Packet;
import org.apache.zookeeper.ZooDefs.OpCode;
import org.apache.zookeeper.client.ZKClientConfig;
import org.apache.zookeeper.common.ZKConfig;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * ZooKeeper's client over a queue pair: {@code zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketHighwire}. A caller sends its own request, so that it costs no
 * hand-over to the SendThread; it looks for its answer a while, so that that costs no hand-over back. The SendThread does the rest.
 *
 * <p>Where there are no queue pairs, at the server or here, the superclass connects over TCP instead. {@link Fallback} remembers the server, and says when to come back.
 */
public final class ClientCnxnSocketHighwire extends ClientCnxnSocketNIO {
    private static final Logger LOG = LoggerFactory.getLogger(ClientCnxnSocketHighwire.class);
    /** As ZooKeeper's own: a client that lost its server does not come back at once. */
    private static final int PAUSE_MILLIS = 100;

    private final int maxLength;
    /** Null for a client that is to have queue pairs or nothing. */
    private final Fallback fallback;
    /** Whether the superclass has the connection. */
    private volatile boolean isTcp;
    private InetSocketAddress server;
    /** Null while there is no connection. */
    private volatile ClientLink link;
    /** The first packet of a connection was sent; the others wait for its answer. */
    private boolean isPrimed;
    private volatile boolean isOpen;
    /** Held by the thread that sends: packets are pending in the order in which they went out. */
    private final ReentrantLock sending = new ReentrantLock();
    /**
     * The queue in which packets wait for their answers, and its owner; null while only the SendThread may
     * send.
     */
    private Queue<Packet> pending;
    private ClientCnxn client;
    /** Whether another thread has had an answer since the SendThread was last awake. */
    private volatile boolean hasHeard;

    /**
     * Made by ZooKeeper, by name.
     *
     * @param config the client's
     * @throws IOException a property is no number
     */
    public ClientCnxnSocketHighwire(ZKClientConfig config) throws IOException {
        super(config);
        fallback = Settings.fallback() ? new Fallback() : null;
        maxLength = config.getInt(ZKConfig.JUTE_MAXBUFFER, ZKClientConfig.CLIENT_MAX_PACKET_LENGTH_DEFAULT);
    }

    /** Whether there is a connection that is none over TCP. */
    boolean isOverQueuePairs() {
        return !isTcp && isOpen && link != null;
    }

    @Override
    boolean isConnected() {
        return isTcp ? super.isConnected() : link != null;
    }

    @Override
    void connect(InetSocketAddress address) throws IOException {
        initialized = false;
        isPrimed = false;
        isOpen = false;
        server = address;
        isTcp = fallback != null && fallback.isForTcp(address);
        if (isTcp) {
            super.connect(address);
            return;
        }
        link = ClientLink.connect(address, new FrameReader(length -> {
            if (length < 0 || length > maxLength) {
                throw new IOException("Packet len " + length + " is out of range!");
            }
        }));
    }

    @Override
    void doTransport(int timeout, Queue<Packet> pendingQueue, ClientCnxn cnxn) throws IOException, InterruptedException {
        if (isTcp) {
            if (fallback.isToComeBack(server) && outgoingQueue.isEmpty() && isIdle(pendingQueue)) {
                throw new EndOfStreamException("There are queue pairs at " + server + " again, so the connection over TCP ends");
            }
            super.doTransport(timeout, pendingQueue, cnxn);
            return;
        }
        ClientLink on = link;
        if (!isOpen) {
            try {
                isOpen = on.greet(timeout);
            } catch (IOException | IllegalStateException e) {
                takeTcp(on, e);
                return;
            }
            updateNow();
            if (isOpen) {
                if (fallback != null) {
                    fallback.works(server);
                }
                updateLastSendAndHeard();
                sendThread.primeConnection();
            }
            return;
        }
        boolean hasEnded = !on.await(timeout, () -> sendable() != null);
        updateNow();
        on.take(this::receive);
        if (hasHeard) {
            hasHeard = false;
            updateLastHeard();
        }
        if (hasEnded) {
            throw new EndOfStreamException("Unable to read additional data from server sessionid 0x" + Long.toHexString(sessionId)
                    + ", likely server has closed its connection");
        }
        sending.lock();
        try {
            pending = pendingQueue;
            client = cnxn;
            sendAll();
            on.flush();
            if (sendThread.tunnelAuthInProgress()) {
                pending = null;
            }
        } finally {
            sending.unlock();
        }
    }

    private static boolean isIdle(Queue<Packet> pendingQueue) {
        synchronized (pendingQueue) {
            return pendingQueue.isEmpty();
        }
    }

    /** There are no queue pairs: goes on over TCP, if the server is there. */
    private void takeTcp(ClientLink had, Exception reason) throws IOException {
        if (fallback == null || !had.isConnected()) {
            throw reason instanceof IOException known ? known : new IOException(reason);
        }
        fallback.fails(server, reason.getMessage());
        link = null;
        had.close();
        isTcp = true;
        super.connect(server);
    }

    /** Holding the lock. */
    private void sendAll() throws IOException {
        for (Packet next = sendable(); next != null; next = sendable()) {
            send(next, pending, client);
        }
    }

    /** Sends waiting packets, in the caller's thread; false if the SendThread must do it. */
    private boolean sendHere() {
        if (!sending.tryLock()) {
            return false;
        }
        try {
            if (pending == null || !initialized) {
                return false;
            }
            sendAll();
            return !link.hasBacklog() && outgoingQueue.isEmpty();
        } catch (IOException | IllegalStateException e) {
            // The SendThread meets the same failure, and knows what to do.
            return false;
        } finally {
            sending.unlock();
        }
    }

    /**
     * Called by the thread of the caller that waits for an answer. The SendThread has only a session at the
     * beginning, so there is one.
     */
    private void receiveHere(ByteBuffer frame) throws IOException {
        recvCount.getAndIncrement();
        sendThread.readResponse(frame);
        hasHeard = true;
    }

    /** Looks for the answer to a packet in flight, for a while. */
    private void lookForAnswer(ClientLink on, Packet packet) throws IOException {
        while (!packet.finished && on.look(this::receiveHere)) {
            // Until the answer is there, or it is time to sleep.
        }
    }

    private void receive(ByteBuffer frame) throws IOException {
        recvCount.getAndIncrement();
        if (initialized) {
            sendThread.readResponse(frame);
        } else {
            incomingBuffer = frame;
            readConnectResult();
            initialized = true;
        }
        updateLastHeard();
    }

    private void send(Packet packet, Queue<Packet> pendingQueue, ClientCnxn cnxn) throws IOException {
        // The time when the SendThread was last awake, if another thread sends: a ping may come early.
        updateLastSend();
        boolean isAnswered = packet.requestHeader != null && packet.requestHeader.getType() != OpCode.ping
                && packet.requestHeader.getType() != OpCode.auth;
        if (isAnswered) {
            packet.requestHeader.setXid(cnxn.getXid());
        }
        packet.createBB();
        outgoingQueue.removeFirstOccurrence(packet);
        if (isAnswered) {
            synchronized (pendingQueue) {
                pendingQueue.add(packet);
            }
        }
        isPrimed = true;
        sentCount.getAndIncrement();
        link.send(packet.bb);
    }

    /** The packet that may be sent now. */
    private Packet sendable() {
        if (outgoingQueue.isEmpty() || link.hasBacklog()) {
            return null;
        }
        if (isPrimed && !(initialized && sendThread.getZkState().isConnected())) {
            return null;
        }
        if (!sendThread.tunnelAuthInProgress()) {
            return outgoingQueue.peekFirst();
        }
        // Until SASL is done only the request for a session may be sent, at any place of the queue.
        for (Iterator<Packet> packets = outgoingQueue.iterator(); packets.hasNext();) {
            Packet packet = packets.next();
            if (packet.requestHeader == null) {
                packets.remove();
                outgoingQueue.addFirst(packet);
                return packet;
            }
        }
        return null;
    }

    @Override
    void sendPacket(Packet packet) throws IOException {
        if (isTcp) {
            super.sendPacket(packet);
            return;
        }
        packet.createBB();
        link.send(packet.bb);
    }

    @Override
    void cleanup() {
        sending.lock();
        pending = null;
        sending.unlock();
        if (isTcp) {
            super.cleanup();
            return;
        }
        ClientLink had = link;
        if (had != null) {
            if (fallback != null && !isOpen && had.isConnected()) {
                // A server that takes connections and says nothing.
                fallback.fails(server, "it has not answered the greeting");
            }
            had.close();
        }
        try {
            Thread.sleep(PAUSE_MILLIS);
        } catch (InterruptedException e) {
            LOG.debug("SendThread interrupted during sleep, ignoring");
        }
        link = null;
    }

    @Override
    void close() {
        ClientLink had = link;
        if (had != null) {
            had.close();
        }
        // Its selector.
        super.close();
    }

    @Override
    void packetAdded() {
        if (isTcp) {
            super.packetAdded();
            return;
        }
        ClientLink on = link;
        if (on == null) {
            return;
        }
        // The packet that this thread has added, unless another thread was faster.
        Packet packet = outgoingQueue.peekLast();
        boolean looks = packet != null && isAwaited(packet) && on.beginLook();
        boolean isSent = sendHere();
        if (!isSent) {
            on.nudge();
        }
        if (looks) {
            try {
                if (isSent) {
                    lookForAnswer(on, packet);
                }
                on.endLook(this::receiveHere);
            } catch (IOException | RuntimeException e) {
                on.fail(e instanceof IOException io ? io : new IOException(e));
            }
        }
    }

    /** Whether a thread is about to wait for its answer: only then has it neither callback nor path. */
    private static boolean isAwaited(Packet packet) {
        return packet.cb == null && packet.clientPath == null && packet.replyHeader != null;
    }

    @Override
    void onClosing() {
        super.onClosing();
        wakeup();
    }

    @Override
    void saslCompleted() {
        if (isTcp) {
            super.saslCompleted();
            return;
        }
        wakeup();
    }

    @Override
    void connectionPrimed() {
        if (isTcp) {
            super.connectionPrimed();
        }
    }

    private void wakeup() {
        ClientLink on = link;
        if (on != null) {
            on.wakeup();
        }
    }

    @Override
    SocketAddress getRemoteSocketAddress() {
        if (isTcp) {
            return super.getRemoteSocketAddress();
        }
        ClientLink on = link;
        return on == null ? null : on.remoteAddress();
    }

    @Override
    SocketAddress getLocalSocketAddress() {
        if (isTcp) {
            return super.getLocalSocketAddress();
        }
        ClientLink on = link;
        return on == null ? null : on.localAddress();
    }

    @Override
    void testableCloseSocket() throws IOException {
        if (isTcp) {
            super.testableCloseSocket();
            return;
        }
        ClientLink on = link;
        if (on != null) {
            on.hangUp();
        }
    }
}
