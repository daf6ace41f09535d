package highwire.benchmarks.echo;

import highwire.verbs.Access;
import highwire.verbs.Completion;
import highwire.verbs.CompletionChannel;
import highwire.verbs.CompletionQueue;
import highwire.verbs.ConnectOptions;
import highwire.verbs.Context;
import highwire.verbs.Endpoint;
import highwire.verbs.Engines;
import highwire.verbs.MemoryRegion;
import highwire.verbs.Opcode;
import highwire.verbs.PostRecv;
import highwire.verbs.PostSend;
import highwire.verbs.ProtectionDomain;
import highwire.verbs.QpAttr;
import highwire.verbs.QpState;
import highwire.verbs.QueuePair;
import highwire.verbs.QueuePairConfig;
import highwire.verbs.RdmaArena;
import highwire.verbs.ReceiveRequest;
import highwire.verbs.SendRequest;
import highwire.verbs.Service;
import java.io.IOException;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.time.Duration;

/** A queue pair at either end, and memory: one outgoing message, and behind it one incoming. */
final class VerbsEnd implements AutoCloseable {
    private static final VarHandle INT = ValueLayout.JAVA_INT.varHandle();
    private static final Duration PATIENCE = Duration.ofSeconds(30);
    private static final int DEPTH = 16;

    final int bytes;
    private final Waits waits;
    private final long incoming;
    private final Context context = Context.open(Engines.find(), PATIENCE);
    private final ProtectionDomain domain = context.protectionDomain();
    private final CompletionChannel channel;
    private final CompletionQueue sends;
    private final CompletionQueue receives;
    private final QueuePair qp;
    private final RdmaArena arena;
    private final MemoryRegion memory;
    private final PostRecv receive;
    private final Completion completion = new Completion();
    private long peerAddress;
    private int peerKey;
    private boolean isNear;
    private volatile boolean isStopped;

    VerbsEnd(int bytes, Waits waits) throws IOException {
        this.bytes = bytes;
        this.waits = waits;
        incoming = bytes + 4095L & -4096L;
        channel = waits == Waits.BLOCKING ? context.completionChannel() : null;
        sends = queue();
        receives = queue();
        qp = domain.queuePair(new QueuePairConfig(Service.RC, sends, receives, null, DEPTH, DEPTH, 1, 1, 0));
        arena = context.arena(2 * incoming);
        memory = domain.register(arena.segment(), Access.ALL);
        receive = qp.postRecv(new ReceiveRequest().sge(memory, incoming, bytes));
        qp.prepare(Access.ALL);
        receive.exec();
    }

    private CompletionQueue queue() throws IOException {
        return channel == null ? context.completionQueue(2 * DEPTH) : context.completionQueue(2 * DEPTH, channel);
    }

    String introduction() {
        return qp.endpoint() + " " + memory.address() + " " + Integer.toUnsignedString(memory.rkey());
    }

    void connect(String peer) throws IOException {
        String[] words = peer.split(" ");
        peerAddress = Long.parseLong(words[1]);
        peerKey = Integer.parseUnsignedInt(words[2]);
        Endpoint end = Endpoint.parse(words[0]);
        isNear = end.address().equals(context.address());
        qp.connect(end, ConnectOptions.DEFAULT);
    }

    private void pause() {
        if (!isNear) {
            // An engine has to run before a message can arrive, and it may want this very core.
            Thread.yield();
        } else {
            Thread.onSpinWait();
        }
    }

    /** A call that sends the outgoing message. */
    PostSend outgoing(Opcode opcode) {
        return call(opcode, 0);
    }

    /** A call that sends back the incoming message, from its place. */
    PostSend back(Opcode opcode) {
        return call(opcode, incoming);
    }

    /** A call that READs the peer's message into the place of the incoming one. */
    PostSend read() {
        return qp.postSend(new SendRequest(Opcode.READ).remote(peerAddress, peerKey).sge(memory, incoming, bytes));
    }

    private PostSend call(Opcode opcode, long from) {
        return qp.postSend(new SendRequest(opcode).remote(peerAddress + incoming, peerKey).sge(memory, from, bytes));
    }

    /** Takes the completions of sends, without waiting for any. */
    void reap() throws IOException {
        while (sends.poll(completion)) {
            check();
        }
    }

    /** Waits until a send has completed. */
    void awaitSent() throws IOException, InterruptedException {
        await(sends);
    }

    /** Waits for a message, and receives the next one into the same place; false once the end is stopped. */
    boolean awaitReceived() throws IOException, InterruptedException {
        if (!await(receives)) {
            return false;
        }
        receive.exec();
        return true;
    }

    private boolean await(CompletionQueue queue) throws IOException, InterruptedException {
        while (!queue.poll(completion)) {
            if (isStopped) {
                return false;
            }
            if (waits == Waits.POLLING) {
                pause();
            } else {
                sleep(queue);
            }
        }
        check();
        return true;
    }

    /** The queues share a channel; the other queue's events are handled when its turn comes. */
    private void sleep(CompletionQueue queue) throws IOException, InterruptedException {
        queue.requestNotify(false);
        if (!queue.hasCompletion()) {
            channel.await(PATIENCE);
        }
    }

    /** Spins until another message lies in the place of the incoming one; false once the end is stopped. */
    boolean awaitNumber(int number) {
        while (last() != number) {
            if (isStopped) {
                return false;
            }
            Thread.onSpinWait();
        }
        return true;
    }

    /** Ends the wait of the thread that waits here. */
    void stop() {
        isStopped = true;
    }

    private void check() throws IOException {
        if (!completion.isSuccess()) {
            throw new IOException(completion.toString());
        }
    }

    /** Both ends of a message carry its number; the last bytes of a WRITE become visible last. */
    void number(int number) {
        INT.set(memory.segment(), 0L, number);
        INT.set(memory.segment(), bytes - 4L, number);
    }

    /** Makes visible that a READ has to overwrite the message. */
    void forget() {
        INT.set(memory.segment(), incoming, 0);
    }

    int first() {
        return (int) INT.get(memory.segment(), incoming);
    }

    private int last() {
        return (int) INT.getAcquire(memory.segment(), incoming + bytes - 4);
    }

    @Override
    public void close() throws IOException {
        qp.modify(new QpAttr().state(QpState.ERROR));
        qp.close();
        memory.close();
        arena.close();
        sends.close();
        receives.close();
        if (channel != null) {
            channel.close();
        }
        domain.close();
        context.close();
    }
}
