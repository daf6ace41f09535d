package highwire.disni;

import java.io.BufferedReader;
import java.io.IOException;
import java.nio.file.Path;
import java.util.concurrent.TimeUnit;

/** {@link Serving} in a JVM of its own. */
final class Child implements AutoCloseable {
    final Process process;
    final BufferedReader said;

    Child(Engine engine) throws IOException {
        ProcessBuilder builder = new ProcessBuilder(
                Path.of(System.getProperty("java.home"), "bin/java").toString(),
                "-Dhighwire.door=" + engine.door,
                "-cp", System.getProperty("java.class.path"),
                Serving.class.getName());
        process = builder.redirectError(ProcessBuilder.Redirect.INHERIT).start();
        said = process.inputReader();
    }

    int port() throws IOException {
        return Integer.parseInt(said.readLine());
    }

    @Override
    public void close() {
        process.destroyForcibly();
        process.onExit().completeOnTimeout(null, 60, TimeUnit.SECONDS).join();
    }
}
