package highwire.benchmarks.echo;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;

/** A {@code highwire serve} in a folder of its own, so that other engines reach it over UDP alone. */
public final class Engine implements AutoCloseable {
    private final Path folder;
    private final Process process;
    private final String door;

    /**
     * Starts one.
     *
     * @param program {@code highwire}
     * @throws IOException it cannot serve here
     */
    public Engine(Path program) throws IOException {
        folder = Files.createTempDirectory(Path.of("/dev/shm"), "highwire-echo-");
        ProcessBuilder builder = new ProcessBuilder(program.toString(), "serve").redirectError(ProcessBuilder.Redirect.INHERIT);
        builder.environment().put("HIGHWIRE_SHM_DIR", folder.toString());
        builder.environment().remove("HIGHWIRE_ADDR");
        process = builder.start();
        BufferedReader said = process.inputReader();
        String line = said.readLine();
        if (line == null) {
            close();
            throw new IOException(program + " serve has ended");
        }
        door = line.substring(line.lastIndexOf(' ') + 1);
    }

    /** @return where programs connect. */
    public String door() {
        return door;
    }

    @Override
    public void close() throws IOException {
        process.destroy();
        process.onExit().join();
        try (Stream<Path> left = Files.walk(folder)) {
            left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        }
    }
}
