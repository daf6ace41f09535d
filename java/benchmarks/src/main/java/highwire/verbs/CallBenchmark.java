package highwire.verbs;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.foreign.MemorySegment;
import java.lang.reflect.Field;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Comparator;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.openjdk.jmh.annotations.Benchmark;
import org.openjdk.jmh.annotations.BenchmarkMode;
import org.openjdk.jmh.annotations.Fork;
import org.openjdk.jmh.annotations.Level;
import org.openjdk.jmh.annotations.Measurement;
import org.openjdk.jmh.annotations.Mode;
import org.openjdk.jmh.annotations.OperationsPerInvocation;
import org.openjdk.jmh.annotations.OutputTimeUnit;
import org.openjdk.jmh.annotations.Param;
import org.openjdk.jmh.annotations.Scope;
import org.openjdk.jmh.annotations.Setup;
import org.openjdk.jmh.annotations.State;
import org.openjdk.jmh.annotations.TearDown;
import org.openjdk.jmh.annotations.Warmup;

/**
 * What a call costs the thread that makes it. The engine is stopped (SIGSTOP) once all is connected, so that nothing but the call is measured;
 * in its place each operation gives the ring's slot back, one store.
 */
@State(Scope.Thread)
@BenchmarkMode(Mode.AverageTime)
@OutputTimeUnit(TimeUnit.NANOSECONDS)
@Warmup(iterations = 3, time = 1)
@Measurement(iterations = 5, time = 1)
@Fork(1)
public class CallBenchmark {
    static final int BATCH = 16;

    /** Pieces of the request. */
    @Param({"1", "4", "16"})
    public int sges;

    private Process engine;
    private Path folder;
    private QueuePair qp;
    private MemoryRegion memory;
    private MemorySegment ring;
    private long posted;
    private PostSend cached;
    private PostSend batch;
    private PostSend write;
    private CompletionQueue cq;
    private PollCq poll;
    private final Completion completion = new Completion();
    private long address;

    /** Starts an engine, connects two queue pairs, and stops the engine. */
    @Setup(Level.Trial)
    public void setUp() throws Exception {
        folder = Files.createTempDirectory(Path.of("/dev/shm"), "highwire-java-");
        ProcessBuilder builder = new ProcessBuilder(System.getProperty("highwire.program", "highwire"), "serve");
        builder.environment().put("HIGHWIRE_SHM_DIR", folder.toString());
        engine = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String line = new BufferedReader(new InputStreamReader(engine.getInputStream())).readLine();
        Context context = Context.open(Path.of(line.substring(line.lastIndexOf(' ') + 1)), Duration.ofSeconds(30));
        ProtectionDomain pd = context.protectionDomain();
        cq = context.completionQueue(1024);
        poll = cq.pollCall(8);
        qp = pd.queuePair(QueuePairConfig.of(Service.RC, cq).withSges(16, 64));
        QueuePair peer = pd.queuePair(QueuePairConfig.of(Service.RC, cq));
        RdmaArena arena = context.arena(1 << 16);
        memory = pd.register(arena.segment(), Access.ALL);
        address = memory.address();
        qp.connect(peer.endpoint(), ConnectOptions.DEFAULT);
        peer.connect(qp.endpoint(), ConnectOptions.DEFAULT);
        cached = qp.postSend(send());
        SendRequest[] requests = new SendRequest[BATCH];
        Arrays.setAll(requests, request -> send());
        batch = qp.postSend(requests);
        write = qp.postSend(new SendRequest(Opcode.WRITE).remote(address + 4096, memory.rkey()).sge(memory, 0, 8));
        Field sends = QueuePair.class.getDeclaredField("sends");
        sends.setAccessible(true);
        ring = ((ProducerRing) sends.get(qp)).memory;
        new ProcessBuilder("kill", "-STOP", Long.toString(engine.pid())).inheritIO().start().waitFor();
    }

    private SendRequest send() {
        SendRequest request = new SendRequest(Opcode.SEND).signaled(false);
        for (int i = 0; i < sges; i++) {
            request.sge(memory, 64L * i, 64);
        }
        return request;
    }

    /** The engine ends without having been continued. */
    @TearDown(Level.Trial)
    public void tearDown() throws IOException, InterruptedException {
        engine.destroyForcibly().waitFor();
        try (Stream<Path> left = Files.walk(folder)) {
            left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }

    private void giveBack() {
        posted++;
        Mapped.putLongRelease(ring, Layout.RING_HEAD_OFFSET, posted);
    }

    /** The request is serialised already: ring write and doorbell. */
    @Benchmark
    public void execCached() {
        cached.exec();
        giveBack();
    }

    /** The same with two fields changed first. */
    @Benchmark
    public void execPatched() {
        cached.request(0).wrId(posted).sge(0, posted & 1023, 64);
        cached.exec();
        giveBack();
    }

    /** Sixteen requests behind one doorbell, each of them. */
    @Benchmark
    @OperationsPerInvocation(BATCH)
    public void execBatch() {
        batch.exec();
        posted += BATCH;
        Mapped.putLongRelease(ring, Layout.RING_HEAD_OFFSET, posted);
    }

    /** The request is described and serialised each time. */
    @Benchmark
    public void execFresh() {
        qp.postSend(send()).exec().free();
        giveBack();
    }

    /** Eight bytes into memory of another queue pair of the same engine, and the completion of it. */
    @Benchmark
    public boolean writeAndPoll() {
        write.exec();
        return cq.poll(completion);
    }

    /** One store with a full fence into the same memory: the least that a published request needs. */
    @Benchmark
    public void fence() {
        Mapped.LONG.setVolatile(ring, Layout.RING_ARM_OFFSET, 1L);
    }

    /** One load from the same memory, with Acquire: the least that a poll needs. */
    @Benchmark
    public long load() {
        return Mapped.getLongAcquire(ring, Layout.RING_ARM_OFFSET);
    }

    /** One store with Release: enough to publish if no engine had to be woken. */
    @Benchmark
    public void store() {
        Mapped.putLongRelease(ring, Layout.RING_ARM_OFFSET, posted++);
    }

    /** A request's words and a store with a full fence, without anything around them: the floor of {@link #execCached}. */
    @Benchmark
    public void storesAndFence() {
        long at = Layout.RING_HEADER_BYTES;
        for (int word = 0; word < 8 + 2 * sges; word++) {
            Mapped.putLong(ring, at + 8L * word, posted);
        }
        Mapped.LONG.setVolatile(ring, Layout.RING_ARM_OFFSET, posted++);
    }

    /** Polls an empty queue. */
    @Benchmark
    public int pollEmpty() {
        return poll.exec().result();
    }
}
