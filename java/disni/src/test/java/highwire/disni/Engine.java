package highwire.disni;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** A `highwire serve` of a test's own; {@link #use} makes it the one that this program finds. */
final class Engine implements AutoCloseable {
    final Path door;
    final Path folder;
    final Process process;
    private final boolean ownsFolder;

    private Engine(Path folder, boolean ownsFolder) throws IOException {
        Path program = Path.of(System.getProperty("highwire.program", "highwire"));
        assumeTrue(Files.isExecutable(program), "skipped: " + program + " is not there: cargo build -p highwire");
        this.folder = folder;
        this.ownsFolder = ownsFolder;
        ProcessBuilder builder = new ProcessBuilder(program.toString(), "serve").redirectError(ProcessBuilder.Redirect.INHERIT);
        builder.environment().put("HIGHWIRE_SHM_DIR", folder.toString());
        builder.environment().remove("HIGHWIRE_ADDR");
        process = builder.start();
        String line = process.inputReader().readLine();
        assertTrue(line != null && line.contains(" serves at "), "it said " + line);
        door = Path.of(line.substring(line.lastIndexOf(' ') + 1));
    }

    static Engine start() throws IOException {
        return new Engine(Files.createTempDirectory(Path.of("/dev/shm"), "highwire-disni-"), true);
    }

    /** Another one, of another device, that finds this one. */
    Engine startBeside() throws IOException {
        return new Engine(folder, false);
    }

    Engine use() {
        System.setProperty("highwire.door", door.toString());
        return this;
    }

    /** Sends its process a signal, and returns once it has it. */
    void signal(String name) throws IOException, InterruptedException {
        Process kill = new ProcessBuilder("kill", "-" + name, Long.toString(process.pid())).inheritIO().start();
        assertEquals(0, kill.waitFor(), "kill -" + name);
    }

    @Override
    public void close() throws IOException {
        process.destroy();
        boolean hasEnded = process.onExit().completeOnTimeout(null, 60, TimeUnit.SECONDS).join() != null;
        if (!hasEnded) {
            process.destroyForcibly();
        }
        if (ownsFolder) {
            try (Stream<Path> left = Files.walk(folder)) {
                left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        }
        assertTrue(hasEnded, "the engine ends when told to");
    }
}
