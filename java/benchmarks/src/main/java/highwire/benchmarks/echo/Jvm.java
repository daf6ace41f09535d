package highwire.benchmarks.echo;

import java.io.IOException;
import java.lang.ProcessBuilder.Redirect;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/** Other JVMs, all started alike. */
final class Jvm {
    private Jvm() {}

    /** A JVM with this one's class path; its output comes to this JVM, its errors go where this JVM's go. */
    static Process start(Map<String, String> properties, Class<?> main, String... args) throws IOException {
        List<String> line = new ArrayList<>(List.of(Path.of(System.getProperty("java.home"), "bin", "java").toString(),
                "-Xms256m", "-Xmx512m", "-cp", System.getProperty("java.class.path"),
                // Netty's and Aeron's native code and tricks; Highwire needs none of them.
                "--enable-native-access=ALL-UNNAMED", "--add-opens=java.base/jdk.internal.misc=ALL-UNNAMED"));
        if (Runtime.version().feature() >= 24) {
            line.add("--sun-misc-unsafe-memory-access=allow");
        }
        if (!properties.getOrDefault(Ends.GARBAGE, "0").equals("0")) {
            // Little room for new objects: it is collected many times a second.
            line.add("-Xmn8m");
        }
        properties.forEach((name, value) -> line.add("-D" + name + "=" + value));
        line.add(main.getName());
        line.addAll(Arrays.asList(args));
        ProcessBuilder builder = new ProcessBuilder(line).redirectError(Redirect.INHERIT);
        // UCX's handlers take signals that the JVM uses itself, and it warns of interfaces that it was not
        // asked to use.
        builder.environment().put("UCX_ERROR_SIGNALS", "");
        builder.environment().put("UCX_LOG_LEVEL", "error");
        return builder.start();
    }
}
