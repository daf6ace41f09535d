package highwire.rpc;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import highwire.verbs.Context;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;

/** A {@code highwire serve} of a test's own, which can be halted and started anew at the same door. */
final class Engine implements AutoCloseable {
    static final Duration PATIENCE = Duration.ofSeconds(60);
    /** An address that no other test uses. */
    private static final String ADDRESS = "127.77.19.3";

    final Path folder;
    Process process;
    Path door;

    Engine() throws IOException {
        folder = Files.createTempDirectory(Path.of("/dev/shm"), "highwire-java-");
        start();
    }

    void start() throws IOException {
        Path program = Path.of(System.getProperty("highwire.program", "highwire"));
        assumeTrue(Files.isExecutable(program), "skipped: " + program + " is not there: cargo build -p highwire");
        ProcessBuilder builder = new ProcessBuilder(program.toString(), "serve", "--address", ADDRESS);
        builder.environment().put("HIGHWIRE_SHM_DIR", folder.toString());
        builder.environment().remove("HIGHWIRE_ADDR");
        process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        String line = process.inputReader(StandardCharsets.UTF_8).readLine();
        assertTrue(line != null && line.contains(" serves at "), "it said " + line);
        door = Path.of(line.substring(line.lastIndexOf(' ') + 1));
    }

    Context context(Duration timeout) throws IOException {
        return Context.open(door, timeout);
    }

    static void until(String what, BooleanSupplier isSo) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!isSo.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, what + " did not come to pass");
            Thread.yield();
        }
    }

    void halt() throws IOException, InterruptedException {
        signal("-STOP");
        while (!FaultSoak.isStopped(process.pid())) {
            Thread.yield();
        }
    }

    void goOn() throws IOException, InterruptedException {
        signal("-CONT");
    }

    private void signal(String name) throws IOException, InterruptedException {
        assertTrue(new ProcessBuilder("kill", name, Long.toString(process.pid())).inheritIO().start().waitFor() == 0);
    }

    /** As by the kernel: nothing is tidied up. */
    void kill() throws InterruptedException {
        process.destroyForcibly().waitFor();
    }

    /** Files that the engine has in its directory now. */
    long files() throws IOException {
        return count(door.getParent());
    }

    static long ownDescriptors() throws IOException {
        return count(Path.of("/proc/self/fd"));
    }

    private static long count(Path of) throws IOException {
        try (Stream<Path> entries = Files.list(of)) {
            return entries.count();
        }
    }

    @Override
    public void close() throws IOException {
        try {
            if (process.isAlive()) {
                goOn();
                process.destroy();
                assertTrue(process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS), "the engine ends when told to");
            }
        } catch (InterruptedException e) {
            process.destroyForcibly();
        }
        try (Stream<Path> left = Files.walk(folder)) {
            left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }
}
