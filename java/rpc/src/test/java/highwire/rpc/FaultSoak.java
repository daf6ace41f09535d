package highwire.rpc;

import highwire.rpc.RpcClient.RpcCall;
import highwire.verbs.Context;
import highwire.verbs.EngineGoneException;
import highwire.verbs.EngineTimeoutException;
import highwire.verbs.VerbsException;
import java.io.IOException;
import java.io.PrintStream;
import java.lang.foreign.MemorySegment;
import java.lang.foreign.ValueLayout;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.Comparator;
import java.util.EnumMap;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Stream;

/**
 * A server of this JVM whose clients come and go, are interrupted and are killed, and whose engine pauses and is killed. After each fault another client must be served. The
 * counts of what is held are taken after each cycle of all faults. {@code FaultSoak MINUTES SEED} ends with status 1 if anything has grown, or somebody was not served.
 */
final class FaultSoak implements AutoCloseable {
    /** An address that no other test uses. */
    private static final String ADDRESS = "127.77.19.5";
    private static final Duration PATIENCE = Duration.ofMinutes(2);
    /** After this long an engine that pauses is silent. */
    private static final Duration SHORT = Duration.ofMillis(200);
    private static final int CHURN_THREADS = 4;
    private static final int CONNECTS = 8;
    /** Cycles before the first counts: classes are loaded, threads started, pools filled. */
    private static final int WARM_UP = 2;
    private static final int METHOD_NEXT = 1;
    /** Answers once the engine's pause, or the caller's patience, is over. */
    private static final int METHOD_SLOW = 2;

    enum Fault {
        /** Clients of several threads connect, call and disconnect. */
        CHURN,
        /** The engine is stopped: contexts with little patience end, and the others do not. */
        PAUSE,
        /** The engine is killed, and another one serves at the same door. */
        RESTART,
        /** A client's JVM is killed while it calls. */
        KILL,
        /** A client's thread is interrupted while it waits for an answer. */
        INTERRUPT
    }

    private final SplittableRandom random;
    private final PrintStream out;
    private final Path folder;
    private final Map<Fault, Long> faults = new EnumMap<>(Fault.class);
    private Process engine;
    private Path door;
    private final Context given;
    private final RpcServer server;
    private long served;

    private FaultSoak(long seed, PrintStream out) throws IOException {
        this.random = new SplittableRandom(seed);
        this.out = out;
        this.folder = Files.createTempDirectory(Path.of("/dev/shm"), "highwire-java-");
        startEngine();
        given = Context.open(door, PATIENCE);
        server = open(given, RpcMode.BLOCKING);
    }

    private static RpcServer open(Context context, RpcMode mode) throws IOException {
        return RpcServer.open(context, new InetSocketAddress(InetAddress.getLoopbackAddress(), 0), FaultSoak::serve, new RpcOptions(mode, 2, 256));
    }

    private static int serve(int method, MemorySegment arguments, int length, MemorySegment answer) throws InterruptedException {
        if (method == METHOD_SLOW) {
            Thread.sleep(SHORT);
        }
        answer.set(ValueLayout.JAVA_LONG, 0, arguments.get(ValueLayout.JAVA_LONG, 0) + 1);
        return Long.BYTES;
    }

    /**
     * The soak, or, with a door and a port, a client that calls until it is killed.
     *
     * @param args minutes and a seed
     * @throws Exception something has failed
     */
    public static void main(String[] args) throws Exception {
        if (args[0].equals("client")) {
            callForEver(Path.of(args[1]), Integer.parseInt(args[2]));
        }
        long minutes = Long.parseLong(args[0]);
        System.exit(run(Duration.ofMinutes(minutes), Long.MAX_VALUE, Long.parseLong(args[1]), System.out) ? 0 : 1);
    }

    /** Whether nothing has grown in this time, or in this many cycles. */
    static boolean run(Duration time, long cycles, long seed, PrintStream out) throws Exception {
        try (FaultSoak soak = new FaultSoak(seed, out)) {
            return soak.run(time, cycles);
        }
    }

    private boolean run(Duration time, long cycles) throws Exception {
        for (int i = 0; i < WARM_UP; i++) {
            cycle();
        }
        Map<String, Long> before = settled();
        Map<String, Long> after = before;
        long begun = System.nanoTime();
        for (long i = 1; i <= cycles && System.nanoTime() - begun < time.toNanos(); i++) {
            cycle();
            after = settled();
            out.println("cycle " + i + ", " + (System.nanoTime() - begun) / 1_000_000_000 + " s: " + after);
        }
        StringBuilder report = new StringBuilder();
        boolean isFlat = Counts.isFlat(before, after, report);
        out.print("after " + faults + ", each with a client that was served behind it, and " + served + " calls:\n" + report);
        return isFlat;
    }

    /** Each fault once, in any order. */
    private void cycle() throws Exception {
        Fault[] all = Fault.values();
        for (int i = all.length - 1; i > 0; i--) {
            int other = random.nextInt(i + 1);
            Fault moved = all[i];
            all[i] = all[other];
            all[other] = moved;
        }
        for (Fault fault : all) {
            switch (fault) {
                case CHURN -> churn();
                case PAUSE -> pause();
                case RESTART -> restart();
                case KILL -> kill();
                case INTERRUPT -> interrupt();
            }
            faults.merge(fault, 1L, Long::sum);
            serveOne();
        }
    }

    /** Somebody is served, over the engine that serves now. */
    private void serveOne() throws Exception {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (true) {
            try (Context context = Context.open(door, PATIENCE)) {
                call(context, server, METHOD_NEXT);
                return;
            } catch (RpcException e) {
                // The server notices that its engine has been replaced when it is asked; it asks anew a second later.
                if (System.nanoTime() - deadline > 0) {
                    throw new AssertionError("nobody is served", e);
                }
                Thread.yield();
            }
        }
    }

    private void call(Context context, RpcServer of, int method) throws Exception {
        try (RpcClient client = RpcClient.connect(context, of.address(), PATIENCE)) {
            call(client, method);
            synchronized (this) {
                served++;
            }
        }
    }

    private static void call(RpcClient client, int method) throws Exception {
        RpcCall call = client.begin(method);
        long number = System.nanoTime();
        call.arguments().set(ValueLayout.JAVA_LONG, 0, number);
        int length = call.send(Long.BYTES).await(PATIENCE);
        if (call.answer(length).get(ValueLayout.JAVA_LONG, 0) != number + 1) {
            throw new AssertionError("a wrong answer");
        }
    }

    private void churn() throws Exception {
        AtomicReference<Throwable> failure = new AtomicReference<>();
        try (Context there = Context.open(door, PATIENCE); RpcServer polling = open(there, RpcMode.POLLING)) {
            Thread[] threads = new Thread[CHURN_THREADS];
            Arrays.setAll(threads, part -> Thread.ofPlatform().start(() -> {
                try (Context here = Context.open(door, PATIENCE)) {
                    for (int i = 0; i < CONNECTS; i++) {
                        call(here, (part + i) % 2 == 0 ? server : polling, METHOD_NEXT);
                    }
                } catch (Throwable e) {
                    failure.compareAndSet(null, e);
                }
            }));
            for (Thread thread : threads) {
                thread.join();
            }
            awaitNobody(polling);
        }
        check(failure);
    }

    private static void check(AtomicReference<Throwable> failure) {
        if (failure.get() != null) {
            throw new AssertionError("a client failed", failure.get());
        }
    }

    private void pause() throws Exception {
        AtomicReference<Throwable> failure = new AtomicReference<>();
        try (Context patient = Context.open(door, PATIENCE); Context hasty = Context.open(door, SHORT)) {
            signal("-STOP");
            Thread waits = Thread.ofPlatform().start(() -> {
                try {
                    call(patient, server, METHOD_NEXT);
                } catch (Throwable e) {
                    failure.compareAndSet(null, e);
                }
            });
            try {
                hasty.protectionDomain();
                throw new AssertionError("an engine that is stopped has answered");
            } catch (EngineTimeoutException e) {
                // As it must be.
            } finally {
                signal("-CONT");
            }
            waits.join();
            if (hasty.valid() || !patient.valid()) {
                throw new AssertionError("the contexts whose patience is over, and no others, end");
            }
        }
        check(failure);
    }

    private void restart() throws Exception {
        try (Context context = Context.open(door, PATIENCE)) {
            RpcClient client = RpcClient.connect(context, server.address(), PATIENCE);
            call(client, METHOD_NEXT);
            engine.destroyForcibly().waitFor();
            startEngine();
            try {
                context.protectionDomain();
                throw new AssertionError("a killed engine has answered");
            } catch (EngineGoneException e) {
                // As it must be.
            }
            client.close();
        } catch (EngineGoneException e) {
            // Of closing what has gone.
        }
    }

    private void kill() throws Exception {
        Process client = new ProcessBuilder(Path.of(System.getProperty("java.home"), "bin", "java").toString(), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp",
                String.join(":", System.getProperty("jdk.module.path", ""), System.getProperty("java.class.path"), "target/classes", "target/test-classes"), FaultSoak.class.getName(), "client", door.toString(),
                Integer.toString(server.address().getPort())).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        try {
            String said = client.inputReader(StandardCharsets.UTF_8).readLine();
            if (!"calls".equals(said)) {
                throw new AssertionError("the client said " + said);
            }
        } finally {
            client.destroyForcibly().waitFor();
        }
    }

    private static void callForEver(Path door, int port) throws Exception {
        Context context = Context.open(door, PATIENCE);
        RpcClient client = RpcClient.connect(context, new InetSocketAddress(InetAddress.getLoopbackAddress(), port), PATIENCE);
        call(client, METHOD_NEXT);
        System.out.println("calls");
        while (true) {
            call(client, METHOD_NEXT);
        }
    }

    private void interrupt() throws Exception {
        AtomicReference<Throwable> failure = new AtomicReference<>();
        Thread waits = Thread.ofPlatform().start(() -> {
            // Also in the middle of connecting and of closing: whatever ends early leaves nothing.
            try (Context context = Context.open(door, PATIENCE)) {
                while (true) {
                    call(context, server, METHOD_SLOW);
                }
            } catch (InterruptedException | IOException e) {
                // As it must be.
            } catch (Throwable e) {
                failure.compareAndSet(null, e);
            }
        });
        Thread.sleep(random.nextInt(1, 100));
        while (waits.isAlive()) {
            waits.interrupt();
            waits.join(10);
        }
        check(failure);
    }

    private void startEngine() throws IOException {
        ProcessBuilder builder = new ProcessBuilder(System.getProperty("highwire.program", "highwire"), "serve", "--address", ADDRESS);
        builder.environment().put("HIGHWIRE_SHM_DIR", folder.toString());
        builder.environment().remove("HIGHWIRE_ADDR");
        engine = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String line = engine.inputReader(StandardCharsets.UTF_8).readLine();
        if (line == null || !line.contains(" serves at ")) {
            throw new IOException("the engine said " + line);
        }
        door = Path.of(line.substring(line.lastIndexOf(' ') + 1));
    }

    private void signal(String name) throws IOException, InterruptedException {
        if (new ProcessBuilder("kill", name, Long.toString(engine.pid())).inheritIO().start().waitFor() != 0) {
            throw new IOException("the engine takes no signals");
        }
        while (name.equals("-STOP") && !isStopped(engine.pid())) {
            Thread.yield();
        }
    }

    /** Whether all threads of a process are stopped: one that has a core goes on for a moment. */
    static boolean isStopped(long process) throws IOException {
        try (Stream<Path> threads = Files.list(Path.of("/proc", Long.toString(process), "task"))) {
            for (Path thread : threads.toList()) {
                String stat = Files.readString(thread.resolve("stat"));
                if (stat.charAt(stat.lastIndexOf(')') + 2) != 'T') {
                    return false;
                }
            }
            return true;
        }
    }

    private static void awaitNobody(RpcServer of) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (of.sessions() + of.greetings() > 0) {
            if (System.nanoTime() - deadline > 0) {
                throw new AssertionError("a server keeps sessions whose clients have gone");
            }
            Thread.yield();
        }
    }

    private Map<String, Long> settled() throws IOException {
        awaitNobody(server);
        return Counts.lowest(door, engine.pid());
    }

    @Override
    public void close() throws IOException {
        try {
            server.close();
            given.close();
        } catch (VerbsException e) {
            // Its engine has gone long ago.
        }
        engine.destroyForcibly();
        engine.onExit().join();
        try (Stream<Path> left = Files.walk(folder)) {
            left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }
}
