package highwire.memcached;

import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;

/** The memcached in C, whose answers are the right ones. */
final class Oracle implements AutoCloseable {
    private static final long PATIENCE_NANOS = 60_000_000_000L;
    /** The release whose answers were compared. */
    private static final String RELEASE = "memcached 1.6.18";

    final InetSocketAddress address;
    private final Process process;
    private final Path folder;

    Oracle() throws Exception {
        Path program = find();
        assumeTrue(program != null, "skipped: apt-get install memcached");
        Process version = new ProcessBuilder(program.toString(), "-V").redirectErrorStream(true).start();
        String said = new String(version.getInputStream().readAllBytes(), java.nio.charset.StandardCharsets.UTF_8).strip();
        assumeTrue(said.equals(RELEASE), "skipped: the answers of " + said + " may differ from those of " + RELEASE);
        folder = Files.createTempDirectory("highwire-oracle-");
        Path ports = folder.resolve("ports");
        List<String> command = new ArrayList<>(List.of(program.toString(), "-l", "127.0.0.1", "-p", "-1", "-U", "0", "-m", "512", "-t", "1",
                "-o", "no_lru_crawler,no_lru_maintainer"));
        if ("root".equals(System.getProperty("user.name"))) {
            command.addAll(List.of("-u", "root"));
        }
        ProcessBuilder builder = new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.DISCARD)
                .redirectOutput(ProcessBuilder.Redirect.DISCARD);
        builder.environment().put("MEMCACHED_PORT_FILENAME", ports.toString());
        process = builder.start();
        long deadline = System.nanoTime() + PATIENCE_NANOS;
        // It renames the file into its place when it is complete.
        while (!Files.exists(ports)) {
            if (!process.isAlive() || System.nanoTime() > deadline) {
                close();
                throw new IOException("memcached does not start");
            }
            Thread.sleep(5);
        }
        String port = Files.readString(ports).replaceAll("(?s).*TCP INET: (\\d+).*", "$1");
        address = new InetSocketAddress(InetAddress.getLoopbackAddress(), Integer.parseInt(port));
    }

    private static Path find() {
        for (String folder : System.getenv("PATH").split(":")) {
            Path program = Path.of(folder, "memcached");
            if (Files.isExecutable(program)) {
                return program;
            }
        }
        return null;
    }

    boolean isAlive() {
        return process.isAlive();
    }

    @Override
    public void close() throws IOException {
        process.destroyForcibly();
        process.onExit().orTimeout(PATIENCE_NANOS, TimeUnit.NANOSECONDS).join();
        Files.deleteIfExists(folder.resolve("ports"));
        Files.deleteIfExists(folder);
    }
}
