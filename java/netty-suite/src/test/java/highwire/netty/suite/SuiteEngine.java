package highwire.netty.suite;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.stream.Stream;
import org.junit.platform.launcher.LauncherSession;
import org.junit.platform.launcher.LauncherSessionListener;

/** An engine for as long as Netty's own tests run, which know of none. */
public final class SuiteEngine implements LauncherSessionListener {
    private Process process;
    private Path folder;

    /** Made by JUnit, by name. */
    public SuiteEngine() {}

    @Override
    public void launcherSessionOpened(LauncherSession session) {
        try {
            folder = Files.createTempDirectory(Path.of("/dev/shm"), "highwire-suite-");
            ProcessBuilder builder = new ProcessBuilder(System.getProperty("highwire.program", "highwire"), "serve");
            builder.environment().put("HIGHWIRE_SHM_DIR", folder.toString());
            builder.environment().remove("HIGHWIRE_ADDR");
            process = builder.redirectError(ProcessBuilder.Redirect.DISCARD).start();
            String line = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8)).readLine();
            if (line == null || !line.contains(" serves at ")) {
                throw new IOException("the engine said " + line);
            }
            System.setProperty("highwire.door", line.substring(line.lastIndexOf(' ') + 1));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }

    @Override
    public void launcherSessionClosed(LauncherSession session) {
        try {
            // What tells that the tests took the way that they are about.
            Path calls = Path.of(System.getProperty("suite.calls"));
            Files.createDirectories(calls);
            Files.writeString(calls.resolve(Long.toString(ProcessHandle.current().pid())), Long.toString(Transports.linked()));
            if (process != null) {
                process.destroy();
                process.onExit().join();
            }
            try (Stream<Path> left = Files.walk(folder)) {
                left.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
            }
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
