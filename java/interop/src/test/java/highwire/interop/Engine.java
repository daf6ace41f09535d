package highwire.interop;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;

/** A {@code highwire serve} of the tests' own, which {@code Context.open()} finds. */
final class Engine implements AutoCloseable {
    private static final String DOOR = "highwire.door";

    private final Process process;
    private final Path folder;

    private Engine(Process process, Path folder) {
        this.process = process;
        this.folder = folder;
    }

    static Engine start() throws IOException {
        Path program = Path.of(System.getProperty("highwire.program", "highwire"));
        assumeTrue(Files.isExecutable(program), "skipped: " + program + " is not there: cargo build -p highwire");
        Path folder = Files.createTempDirectory(Path.of("/dev/shm"), "highwire-java-");
        ProcessBuilder builder = new ProcessBuilder(program.toString(), "serve").redirectError(ProcessBuilder.Redirect.INHERIT);
        builder.environment().put("HIGHWIRE_SHM_DIR", folder.toString());
        builder.environment().remove("HIGHWIRE_ADDR");
        Process process = builder.start();
        String line = process.inputReader().readLine();
        assertTrue(line != null && line.contains(" serves at "), "it said " + line);
        System.setProperty(DOOR, line.substring(line.lastIndexOf(' ') + 1));
        return new Engine(process, folder);
    }

    @Override
    public void close() throws IOException {
        System.clearProperty(DOOR);
        process.destroy();
        process.onExit().completeOnTimeout(process, 60, TimeUnit.SECONDS).join().destroyForcibly();
        try (Stream<Path> left = Files.walk(folder)) {
            left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }
}
