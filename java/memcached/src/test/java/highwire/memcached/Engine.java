package highwire.memcached;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import highwire.verbs.Context;
import highwire.verbs.VerbsException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** A `highwire serve` of a test's own, in a folder of its own. */
final class Engine implements AutoCloseable {
    static final Duration PATIENCE = Duration.ofSeconds(60);
    static final InetSocketAddress ANY = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);

    private final Process process;
    private final Path folder;
    private final Path door;

    Engine() throws IOException {
        Path program = Path.of(System.getProperty("highwire.program", "highwire"));
        assumeTrue(Files.isExecutable(program), "skipped: " + program + " is not there: cargo build -p highwire");
        folder = Files.createTempDirectory(Path.of("/dev/shm"), "highwire-java-");
        ProcessBuilder builder = new ProcessBuilder(program.toString(), "serve").redirectError(ProcessBuilder.Redirect.INHERIT);
        builder.environment().put("HIGHWIRE_SHM_DIR", folder.toString());
        builder.environment().remove("HIGHWIRE_ADDR");
        process = builder.start();
        String line = new BufferedReader(new InputStreamReader(process.getInputStream())).readLine();
        door = Path.of(line.substring(line.lastIndexOf(' ') + 1));
    }

    Context context() throws VerbsException {
        return Context.open(door, Duration.ofSeconds(30));
    }

    void halt() throws IOException, InterruptedException {
        signal("-STOP");
        while (!isStopped(process.pid())) {
            Thread.yield();
        }
    }

    /** Whether all threads of a process are stopped: one that has a core goes on for a moment. */
    private static boolean isStopped(long process) throws IOException {
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

    void goOn() throws IOException, InterruptedException {
        signal("-CONT");
    }

    private void signal(String name) throws IOException, InterruptedException {
        assertTrue(new ProcessBuilder("kill", name, Long.toString(process.pid())).inheritIO().start().waitFor() == 0);
    }

    @Override
    public void close() throws IOException {
        process.destroy();
        assertTrue(process.onExit().orTimeout(PATIENCE.toSeconds(), TimeUnit.SECONDS).handle((ended, late) -> late == null).join());
        try (Stream<Path> left = Files.walk(folder)) {
            left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }
}
