package highwire.rpc;

import java.io.IOException;
import java.lang.management.BufferPoolMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.stream.Stream;

/** What this process and an engine hold: mappings, descriptors, bytes, threads, files. */
final class Counts {
    /** Growth that does not depend on how often something is done. */
    private static final long SLACK = 48;
    private static final long SLACK_BYTES = 32 << 20;

    private Counts() {}

    /** Now. */
    static Map<String, Long> of(Path door, long engine) throws IOException {
        Map<String, Long> counts = new LinkedHashMap<>();
        counts.put("mappings", lines(Path.of("/proc/self/maps")));
        counts.put("descriptors", entries(Path.of("/proc/self/fd")));
        counts.put("bytes beside the heap", pools());
        counts.put("threads", (long) Thread.activeCount());
        counts.put("files of the registry", entries(door.toAbsolutePath().getParent()));
        Path process = Path.of("/proc", Long.toString(engine));
        counts.put("the engine's mappings", lines(process.resolve("maps")));
        counts.put("the engine's descriptors", entries(process.resolve("fd")));
        counts.put("the engine's threads", entries(process.resolve("task")));
        counts.put("the engine's resident bytes", resident(process));
        return counts;
    }

    /** The lowest of some: what has left a list may be in the middle of its end. */
    static Map<String, Long> lowest(Path door, long engine) throws IOException {
        System.gc();
        Map<String, Long> lowest = of(door, engine);
        for (int i = 0; i < 1000; i++) {
            of(door, engine).forEach((name, count) -> lowest.merge(name, count, Math::min));
            Thread.yield();
        }
        return lowest;
    }

    private static long lines(Path file) throws IOException {
        try (Stream<String> lines = Files.lines(file)) {
            return lines.count();
        }
    }

    private static long entries(Path folder) throws IOException {
        try (Stream<Path> entries = Files.list(folder)) {
            return entries.count();
        } catch (NoSuchFileException e) {
            return 0;
        }
    }

    private static long resident(Path process) throws IOException {
        String pages = Files.readString(process.resolve("statm")).split(" ")[1];
        return Long.parseLong(pages) * 4096;
    }

    /** Direct and mapped memory together, as the JVM counts it. */
    private static long pools() {
        return ManagementFactory.getPlatformMXBeans(BufferPoolMXBean.class).stream().mapToLong(BufferPoolMXBean::getMemoryUsed).sum();
    }

    /** Whether nothing has grown; what there was and is, one line for each. */
    static boolean isFlat(Map<String, Long> before, Map<String, Long> after, StringBuilder report) {
        boolean isFlat = true;
        for (String name : before.keySet()) {
            boolean hasGrown = after.get(name) > before.get(name) + (name.contains("bytes") ? SLACK_BYTES : SLACK);
            isFlat &= !hasGrown;
            report.append("  ").append(name).append(": ").append(before.get(name)).append(" → ").append(after.get(name)).append(hasGrown ? "  GROWN\n" : "\n");
        }
        return isFlat;
    }
}
