package highwire.hdfs;

import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;

/** A {@code highwire serve} of a test's own, in a folder of its own, which the connections of this JVM use. */
final class Served implements AutoCloseable {
    final Process process;
    final Path door;
    private final Path folder;

    private Served(Process process, Path door, Path folder) {
        this.process = process;
        this.door = door;
        this.folder = folder;
    }

    static Served start() throws IOException {
        Path program = Path.of(System.getProperty("highwire.program", "highwire"));
        assumeTrue(Files.isExecutable(program), "skipped: " + program + " is not there: cargo build -p highwire");
        Path folder = Files.createTempDirectory(Path.of("/dev/shm"), "highwire-java-");
        ProcessBuilder builder = new ProcessBuilder(program.toString(), "serve");
        builder.environment().put("HIGHWIRE_SHM_DIR", folder.toString());
        builder.environment().remove("HIGHWIRE_ADDR");
        Process process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        BufferedReader said = process.inputReader();
        String line = said.readLine();
        assertTrue(line != null && line.contains(" serves at "), "it said " + line);
        Path door = Path.of(line.substring(line.lastIndexOf(' ') + 1));
        System.setProperty("highwire.door", door.toString());
        return new Served(process, door, folder);
    }

    @Override
    public void close() throws IOException {
        process.destroy();
        try {
            process.waitFor();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
        try (Stream<Path> left = Files.walk(folder)) {
            left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }
}
