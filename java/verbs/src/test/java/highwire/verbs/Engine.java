package highwire.verbs;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Stream;

/** A `highwire serve` of a test's own, in a folder of its own. */
final class Engine implements AutoCloseable {
    /** Far longer than any step takes, even on a busy machine. */
    static final Duration PATIENCE = Duration.ofSeconds(60);

    final Process process;
    final Path door;
    final Path folder;
    private final boolean ownsFolder;

    private Engine(Process process, Path door, Path folder, boolean ownsFolder) {
        this.process = process;
        this.door = door;
        this.folder = folder;
        this.ownsFolder = ownsFolder;
    }

    static Engine start() {
        try {
            Path folder = Files.createTempDirectory(Path.of("/dev/shm"), "highwire-java-");
            return start(folder, true);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Another engine that finds this one. */
    Engine startBeside() {
        return start(folder, false);
    }

    private static Engine start(Path folder, boolean ownsFolder) {
        Path program = Path.of(System.getProperty("highwire.program", "highwire"));
        assumeTrue(Files.isExecutable(program), "skipped: " + program + " is not there: cargo build -p highwire");
        try {
            ProcessBuilder builder = new ProcessBuilder(program.toString(), "serve");
            builder.environment().put("HIGHWIRE_SHM_DIR", folder.toString());
            builder.environment().remove("HIGHWIRE_ADDR");
            builder.redirectError(ProcessBuilder.Redirect.INHERIT);
            Process process = builder.start();
            BufferedReader said = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
            String line = said.readLine();
            assertTrue(line != null && line.contains(" serves at "), "it said " + line);
            return new Engine(process, Path.of(line.substring(line.lastIndexOf(' ') + 1)), folder, ownsFolder);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    Context context() throws VerbsException {
        return Context.open(door, Duration.ofSeconds(30));
    }

    /** Files that the engine has in its directory now. */
    long files() throws IOException {
        try (Stream<Path> files = Files.list(door.getParent())) {
            return files.count();
        }
    }

    static void until(String what, BooleanSupplier isSo) {
        long deadline = System.nanoTime() + PATIENCE.toNanos();
        while (!isSo.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, what + " did not come to pass");
            Thread.yield();
        }
    }

    /** Stops the process where it is; all its threads have stopped when this returns. */
    void halt() throws IOException, InterruptedException {
        signal("-STOP");
        until("the halt", this::isHalted);
    }

    private boolean isHalted() {
        try (Stream<Path> threads = Files.list(Path.of("/proc", process.pid() + "", "task"))) {
            for (Path thread : (Iterable<Path>) threads::iterator) {
                String stat = Files.readString(thread.resolve("stat"));
                if (stat.charAt(stat.lastIndexOf(')') + 2) != 'T') {
                    return false;
                }
            }
            return true;
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Lets it go on. */
    void goOn() throws IOException, InterruptedException {
        signal("-CONT");
    }

    private void signal(String name) throws IOException, InterruptedException {
        new ProcessBuilder("kill", name, Long.toString(process.pid())).redirectErrorStream(true).redirectOutput(ProcessBuilder.Redirect.DISCARD).start().waitFor();
    }

    @Override
    public void close() throws IOException {
        try {
            // A halted process does not notice that it must end.
            goOn();
            process.destroy();
            assertTrue(process.waitFor(PATIENCE.toSeconds(), TimeUnit.SECONDS), "the engine ends when told to");
        } catch (InterruptedException e) {
            process.destroyForcibly();
        }
        boolean isGone = !Files.exists(door.getParent()) || process.exitValue() == 137;
        if (ownsFolder) {
            try (Stream<Path> left = Files.walk(folder)) {
                left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        }
        assertTrue(isGone, "an engine that was told to end leaves nothing behind");
    }
}
