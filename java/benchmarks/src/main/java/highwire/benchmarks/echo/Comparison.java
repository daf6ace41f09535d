package highwire.benchmarks.echo;

import highwire.benchmarks.Progress;
import highwire.verbs.Engines;
import java.io.BufferedReader;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Base64;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.zip.DataFormatException;
import org.HdrHistogram.Histogram;

/**
 * Round trips between two JVMs, all ways in turns, as tables in Markdown. Each way has two new JVMs in each round, so that none runs code that was compiled for another one.
 *
 * <p>{@code -Dhighwire.program} is the program that serves. {@code -Dhighwire.rust} names the example {@code round_trip}, which does in Rust what {@link Way#WRITE} does with
 * eight bytes. {@code -Dhighwire.rounds}, {@code -Dhighwire.millis} for each size, {@code -Dhighwire.sizes} and {@code -Dhighwire.ways} say what is measured.
 */
public final class Comparison {
    private static final int[] SIZES = Arrays.stream(System.getProperty("highwire.sizes", "4,64,1024,16384").split(",")).mapToInt(Integer::parseInt).toArray();
    private static final int ROUNDS = Integer.getInteger("highwire.rounds", 3);
    private static final String MILLIS = System.getProperty(Ends.MILLIS, "300");
    private static final int WORD = 8;
    private static final int GARBAGE = 200;
    private static final long PATIENCE_SECONDS = 120;

    private final Map<Way, Map<Integer, Histogram>> times = new EnumMap<>(Way.class);
    private final Map<Way, String> obstacles = new EnumMap<>(Way.class);
    private final List<long[]> java = new ArrayList<>();
    private final List<long[]> collected = new ArrayList<>();
    private final List<long[]> rust = new ArrayList<>();
    private long collections;
    private final Engine near;
    private final Engine far;

    private Comparison(Engine near, Engine far) {
        this.near = near;
        this.far = far;
    }

    /**
     * Measures.
     *
     * @param args none
     * @throws Exception something does not work here
     */
    public static void main(String[] args) throws Exception {
        Path program = Path.of(System.getProperty("highwire.program", "highwire"));
        String wanted = System.getProperty("highwire.ways");
        Way[] ways = wanted == null ? Way.values() : Arrays.stream(wanted.split(",")).map(Way::valueOf).toArray(Way[]::new);
        String before = load();
        try (Engine near = new Engine(program); Engine far = new Engine(program)) {
            Comparison comparison = new Comparison(near, far);
            Progress progress = new Progress(ROUNDS * ways.length);
            for (int round = 0; round < ROUNDS; round++) {
                for (Way way : ways) {
                    progress.step(way.title + " over " + way.path.text + ", " + way.waits.name().toLowerCase(Locale.ROOT));
                    comparison.measure(way);
                }
                comparison.measureRust(System.getProperty("highwire.rust"));
            }
            System.out.printf("%d processors, Java %s, load %s before and %s after, %d rounds of %s ms%n%n", Runtime.getRuntime().availableProcessors(),
                    Runtime.version(), before, load(), ROUNDS, MILLIS);
            comparison.show(ways);
        }
    }

    private static String load() throws IOException {
        return Files.readString(Path.of("/proc/loadavg")).split(" ")[0];
    }

    private void measure(Way way) throws Exception {
        for (Map.Entry<Integer, Histogram> one : ask(way, SIZES).entrySet()) {
            times.computeIfAbsent(way, none -> new LinkedHashMap<>()).computeIfAbsent(one.getKey(), none -> new Histogram(3)).add(one.getValue());
        }
    }

    private Map<Integer, Histogram> ask(Way way, int... sizes) throws Exception {
        return askAmongGarbage(way, 0, sizes);
    }

    private Map<Integer, Histogram> askAmongGarbage(Way way, int garbage, int... sizes) throws Exception {
        String door = way.isOurs() ? near.door() : "";
        String other = way.isOurs() && way.path == Way.Path.UDP ? far.door() : door;
        List<String> words = new ArrayList<>(List.of("ask", way.name()));
        Arrays.stream(sizes).mapToObj(Integer::toString).forEach(words::add);
        Process client = Jvm.start(Map.of(Engines.DOOR_PROPERTY, door, Ends.SERVER_DOOR, other, Ends.MILLIS, MILLIS, Ends.GARBAGE, "" + garbage), Ends.class, words.toArray(String[]::new));
        // A JVM that hangs is killed after a while, and its server ends with it.
        CompletableFuture.delayedExecutor(PATIENCE_SECONDS, TimeUnit.SECONDS).execute(client::destroyForcibly);
        Map<Integer, Histogram> found = new LinkedHashMap<>();
        BufferedReader said = client.inputReader();
        for (String line = Ends.hear(said); line != null; line = Ends.hear(said)) {
            if (line.startsWith("obstacle ")) {
                obstacles.put(way, line.substring("obstacle ".length()));
            } else if (line.startsWith("collections ")) {
                collections += Long.parseLong(line.substring("collections ".length()));
            } else {
                String[] parts = line.split(" ");
                found.put(Integer.parseInt(parts[0]), histogram(parts[1]));
            }
        }
        if (client.waitFor() != 0) {
            throw new IOException(way + " has failed");
        }
        return found;
    }

    private static Histogram histogram(String text) throws DataFormatException {
        return Histogram.decodeFromCompressedByteBuffer(ByteBuffer.wrap(Base64.getDecoder().decode(text)), 0);
    }

    /** The same eight bytes in Java and in Rust, one directly after the other. */
    private void measureRust(String program) throws Exception {
        if (program == null) {
            return;
        }
        java.add(percentiles(ask(Way.WRITE, WORD).get(WORD)));
        collected.add(percentiles(askAmongGarbage(Way.WRITE, GARBAGE, WORD).get(WORD)));
        Process other = new ProcessBuilder(program).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        // … min 1  p50 2  p99 3  p99.9 4 ns …
        String[] words = new String(other.getInputStream().readAllBytes()).split(" +");
        int at = Arrays.asList(words).indexOf("p50");
        if (other.waitFor() != 0 || at < 0) {
            throw new IOException(program + " has failed");
        }
        rust.add(new long[] {Long.parseLong(words[at + 1]), Long.parseLong(words[at + 3]), Long.parseLong(words[at + 5])});
    }

    private static long[] percentiles(Histogram found) {
        return new long[] {found.getValueAtPercentile(50), found.getValueAtPercentile(99), found.getValueAtPercentile(99.9)};
    }

    private void show(Way... ways) {
        System.out.print("| p50 / p99 / p99.9 in µs | over | waits |");
        Arrays.stream(SIZES).forEach(bytes -> System.out.print(" " + bytes + " B |"));
        System.out.print(" of TCP |\n|---|---|---|" + "---:|".repeat(SIZES.length) + "---:|\n");
        for (Way way : ways) {
            System.out.printf("| %s | %s | %s |", way.title, way.path.text, way.waits.name().toLowerCase(Locale.ROOT));
            for (int bytes : SIZES) {
                System.out.print(" " + cell(way, bytes) + " |");
            }
            System.out.println(" " + share(way) + " |");
        }
        obstacles.forEach((way, reason) -> System.out.printf("%n%s over %s: not on this machine: %s%n", way.title, way.path.text, reason));
        if (!rust.isEmpty()) {
            System.out.print("\n| 8 bytes there and back by WRITE, ns | Java | Rust | Java / Rust | Java, a collector at work | that / Rust |\n|---|---:|---:|---:|---:|---:|\n");
            String[] names = {"p50", "p99", "p99.9"};
            for (int i = 0; i < names.length; i++) {
                long mine = median(java, i);
                long theirs = median(rust, i);
                long busy = median(collected, i);
                System.out.printf(Locale.ROOT, "| %s | %d | %d | %.2f | %d | %.2f |%n", names[i], mine, theirs, (double) mine / theirs, busy, (double) busy / theirs);
            }
            System.out.printf("%nA collector at work: both JVMs take %d MB a second; in the one that asks memory was collected %d times in %d ms.%n",
                    GARBAGE, collections, ROUNDS * Long.parseLong(MILLIS));
        }
    }

    private String cell(Way way, int bytes) {
        Histogram found = times.getOrDefault(way, Map.of()).get(bytes);
        return found == null ? "–" : micros(found, 50) + " / " + micros(found, 99) + " / " + micros(found, 99.9);
    }

    private static String micros(Histogram found, double percentile) {
        double value = found.getValueAtPercentile(percentile) / 1e3;
        return String.format(Locale.ROOT, value < 10 ? "%.2f" : value < 100 ? "%.1f" : "%.0f", value);
    }

    /** The median of the smallest messages beside that of TCP which waits in the same manner. */
    private String share(Way way) {
        Histogram found = times.getOrDefault(way, Map.of()).get(SIZES[0]);
        Histogram tcp = times.getOrDefault(way.waits == Waits.POLLING ? Way.NIO_TCP : Way.NIO_TCP_BLOCKING, Map.of()).get(SIZES[0]);
        return found == null || tcp == null ? "–" : String.format(Locale.ROOT, "%.2f ×", found.getValueAtPercentile(50) / (double) tcp.getValueAtPercentile(50));
    }

    private static long median(List<long[]> rounds, int column) {
        long[] values = rounds.stream().mapToLong(round -> round[column]).sorted().toArray();
        return values[values.length / 2];
    }
}
