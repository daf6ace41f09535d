package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.nio.charset.StandardCharsets;

/** One end of a conversation: a context with one object of each kind. */
final class End implements AutoCloseable {
    static final int BYTES = 1 << 16;

    final Context context;
    final ProtectionDomain pd;
    final CompletionChannel channel;
    final CompletionQueue cq;
    final QueuePair qp;
    final RdmaArena arena;
    final MemoryRegion memory;
    private final Completion completion = new Completion();

    End(Engine engine, Service service) throws VerbsException {
        context = engine.context();
        pd = context.protectionDomain();
        channel = context.completionChannel();
        cq = context.completionQueue(64, channel);
        qp = pd.queuePair(QueuePairConfig.of(service, cq).withDepth(16, 16));
        arena = context.arena(BYTES);
        memory = pd.register(arena.allocate(BYTES), Access.ALL);
    }

    static End[] pair(Engine engine, Service service) throws VerbsException {
        End[] ends = {new End(engine, service), new End(engine, service)};
        connect(ends[0], ends[1]);
        return ends;
    }

    static void connect(End a, End b) throws VerbsException {
        ConnectedQueuePair.connect(a.qp, b.qp, ConnectOptions.DEFAULT);
    }

    void put(long at, String text) {
        MemorySegment.copy(MemorySegment.ofArray(text.getBytes(StandardCharsets.UTF_8)), 0, memory.segment(), at, text.length());
    }

    String text(long at, int length) {
        return new String(memory.segment().asSlice(at, length).toArray(ValueLayout.JAVA_BYTE), StandardCharsets.UTF_8);
    }

    long word(long at) {
        return Mapped.getLongAcquire(memory.segment(), at);
    }

    void setWord(long at, long value) {
        Mapped.putLongRelease(memory.segment(), at, value);
    }

    SendRequest to(End peer, Opcode opcode, long at) {
        return new SendRequest(opcode).remote(peer.memory.address() + at, peer.memory.rkey());
    }

    void receive(long wrId, long at, int length) {
        qp.postRecv(new ReceiveRequest().wrId(wrId).sge(memory, at, length)).exec();
    }

    /** The next completion, whatever it is. */
    Completion next() {
        Engine.until("a completion", () -> cq.poll(completion));
        return completion;
    }

    Completion success() {
        Completion found = next();
        assertTrue(found.isSuccess(), found::toString);
        return found;
    }

    @Override
    public void close() throws VerbsException {
        qp.close();
        cq.close();
        channel.close();
        memory.close();
        arena.close();
        pd.close();
        context.close();
    }
}
