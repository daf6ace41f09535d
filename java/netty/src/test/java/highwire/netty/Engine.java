package highwire.netty;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** A `highwire serve` of a test's own, in a folder of its own. */
final class Engine implements AutoCloseable {
    /** Far longer than any step takes, even on a busy machine. */
    static final long PATIENCE_SECONDS = Integer.getInteger("highwire.test.patience", 60);

    final Path door;
    private final Process process;
    private final Path folder;
    private final boolean ownsFolder;

    private Engine(Path folder, boolean ownsFolder) {
        this.folder = folder;
        this.ownsFolder = ownsFolder;
        Path program = Path.of(System.getProperty("highwire.program", "highwire"));
        assumeTrue(Files.isExecutable(program), "skipped: " + program + " is not there: cargo build -p highwire");
        try {
            ProcessBuilder builder = new ProcessBuilder(program.toString(), "serve");
            builder.environment().put("HIGHWIRE_SHM_DIR", folder.toString());
            builder.environment().remove("HIGHWIRE_ADDR");
            builder.redirectError(ProcessBuilder.Redirect.INHERIT);
            process = builder.start();
            String line = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8)).readLine();
            assertTrue(line != null && line.contains(" serves at "), "it said " + line);
            door = Path.of(line.substring(line.lastIndexOf(' ') + 1));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static Engine start() {
        try {
            return new Engine(Files.createTempDirectory(Path.of("/dev/shm"), "highwire-netty-"), true);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    /** Another engine, with an address of its own. */
    Engine startBeside() {
        return new Engine(folder, false);
    }

    /** Files that the engine has in its directory now: its own, and those of queues and memory. */
    Set<Path> files() {
        try (Stream<Path> files = Files.list(door.getParent())) {
            return files.collect(Collectors.toSet());
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    static void until(String what, BooleanSupplier isSo) {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (!isSo.getAsBoolean()) {
            assertTrue(System.nanoTime() < deadline, what + " did not come to pass");
            Thread.yield();
        }
    }

    /** Ends without a word to anybody. */
    void kill() {
        process.destroyForcibly().onExit().join();
    }

    @Override
    public void close() throws IOException {
        process.destroy();
        process.onExit().join();
        if (ownsFolder) {
            try (Stream<Path> left = Files.walk(folder)) {
                left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        }
    }
}
