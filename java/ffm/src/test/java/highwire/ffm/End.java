package highwire.ffm;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import highwire.verbs.Access;
import highwire.verbs.Completion;
import highwire.verbs.ConnectOptions;
import highwire.verbs.Opcode;
import highwire.verbs.Service;
import highwire.verbs.VerbsException;
import java.lang.foreign.Arena;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.lang.invoke.VarHandle;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.BooleanSupplier;

/** One end of a conversation over the drop-in library. */
final class End implements AutoCloseable {
    static final String DEVICE = "hw0";
    static final int BYTES = 1 << 16;
    static final Path LIBRARY = Path.of(System.getProperty("highwire.libs", "../../target/debug/highwire-libs"), "libibverbs.so.1");
    private static final VarHandle LONG = ValueLayout.JAVA_LONG.varHandle();
    private static final long PATIENCE_NANOS = 60_000_000_000L;

    final Device device;
    final ProtectionDomain pd;
    final CompletionChannel channel;
    final CompletionQueue cq;
    final QueuePair qp;
    final Arena arena = Arena.ofShared();
    final MemoryRegion memory;
    private final PollCq poll;
    private final Completion completion = new Completion();

    End(Service service) throws VerbsException {
        device = device();
        pd = device.protectionDomain();
        channel = device.completionChannel();
        cq = device.completionQueue(64, channel);
        poll = cq.pollCall(1);
        qp = pd.queuePair(service, cq, 16, 4);
        memory = pd.register(arena.allocate(BYTES, 4096), Access.ALL);
    }

    /** The only device of the drop-in library, in place of the system's. */
    static Device device() throws VerbsException {
        assumeTrue(Files.exists(LIBRARY), "skipped: " + LIBRARY + " is not there: cargo xtask libs");
        System.setProperty(Libibverbs.PROPERTY, LIBRARY.toString());
        return Device.open(DEVICE);
    }

    static End[] pair(Service service) throws VerbsException {
        End[] ends = {new End(service), new End(service)};
        for (End end : ends) {
            end.qp.prepare(Access.ALL);
        }
        ends[0].qp.connect(ends[1].qp.endpoint(), ConnectOptions.DEFAULT);
        ends[1].qp.connect(ends[0].qp.endpoint(), ConnectOptions.DEFAULT);
        return ends;
    }

    static void until(String what, BooleanSupplier isSo) {
        long deadline = System.nanoTime() + PATIENCE_NANOS;
        while (!isSo.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, what + " did not come to pass");
            Thread.yield();
        }
    }

    void put(long at, String text) {
        MemorySegment.copy(MemorySegment.ofArray(text.getBytes(StandardCharsets.UTF_8)), 0, memory.segment(), at, text.length());
    }

    String text(long at, int length) {
        return new String(memory.segment().asSlice(at, length).toArray(ValueLayout.JAVA_BYTE), StandardCharsets.UTF_8);
    }

    long word(long at) {
        return (long) LONG.getAcquire(memory.segment(), at);
    }

    void setWord(long at, long value) {
        LONG.setRelease(memory.segment(), at, value);
    }

    /** A request with one piece. */
    PostSend request(Opcode opcode, long at, int length) {
        return qp.postSend(opcode, 1).sge(0, memory, at, length);
    }

    void receive(long wrId, long at, int length) {
        qp.postRecv(1).wrId(wrId).sge(0, memory, at, length).exec();
    }

    /** The next completion, whatever it is. */
    Completion next() {
        until("a completion", () -> poll.exec().result() == 1);
        return poll.completion(0, completion);
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
        pd.close();
        device.close();
        arena.close();
    }
}
