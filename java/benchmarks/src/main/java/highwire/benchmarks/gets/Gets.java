package highwire.benchmarks.gets;

import highwire.benchmarks.Progress;
import highwire.benchmarks.echo.Engine;
import highwire.benchmarks.gets.Servers.Server;
import highwire.verbs.Engines;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Random;
import org.HdrHistogram.Histogram;

/**
 * GETs of one client at a time, in turns: by READ from Highwire's memcached, and over TCP from that one and
 * from the one in C. A table in Markdown: points of the distribution, GETs per second, and the server's
 * processor time for each. {@code -Dhighwire.program} is the program that serves, {@code
 * -Dhighwire.memcached} the memcached in C, {@code -Dhighwire.gets} how many are counted for each client.
 */
public final class Gets {
    private static final int KEYS = 10_000;
    private static final int VALUE_BYTES = 32;
    private static final int TURN = 1_000;
    private static final int COUNT = Integer.getInteger("highwire.gets", 50_000);
    private static final double[] POINTS = {10, 50, 90, 99, 99.9};

    private Gets() {}

    /** A client, its server, and what was measured. */
    private static final class Way {
        final String client;
        final String title;
        final Server server;
        final Getter getter;
        final Histogram times = new Histogram(3);
        long cpuNanos;
        long nanos;

        Way(String client, String title, Server server, Getter getter) {
            this.client = client;
            this.title = title;
            this.server = server;
            this.getter = getter;
        }

        void reset() {
            times.reset();
            cpuNanos = 0;
            nanos = 0;
        }

        void turn(int[] keys) throws Exception {
            long before = server.cpuNanos();
            long start = System.nanoTime();
            for (int key : keys) {
                times.recordValue(timed(key));
            }
            nanos += System.nanoTime() - start;
            cpuNanos += server.cpuNanos() - before;
        }

        private long timed(int key) throws Exception {
            String name = key(key);
            long start = System.nanoTime();
            byte[] value = getter.get(name);
            long passed = System.nanoTime() - start;
            if (!Arrays.equals(value, value(key))) {
                throw new IOException(client + " got " + (value == null ? "nothing" : new String(value, StandardCharsets.ISO_8859_1)) + " for " + name);
            }
            return passed;
        }

        void show() {
            System.out.printf("| %s | %s |", client, title);
            for (double point : POINTS) {
                System.out.printf(Locale.ROOT, " %.2f |", times.getValueAtPercentile(point) / 1e3);
            }
            System.out.printf(Locale.ROOT, " %.0f | %.2f |%n", times.getTotalCount() / (nanos / 1e9), cpuNanos / 1e3 / times.getTotalCount());
        }
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }

    private static String key(int number) {
        return "key:" + number;
    }

    private static byte[] value(int number) {
        return bytes(String.format(Locale.ROOT, "%0" + VALUE_BYTES + "d", number));
    }

    private static void fill(Server server) throws IOException {
        try (TextGetter setter = new TextGetter(server.address(), VALUE_BYTES, false)) {
            for (int number = 0; number < KEYS; number++) {
                setter.set(key(number), value(number));
            }
        }
    }

    /**
     * Measures.
     *
     * @param args none
     * @throws Exception something does not work here, or a value is wrong
     */
    public static void main(String[] args) throws Exception {
        try (Engine engine = new Engine(Path.of(System.getProperty("highwire.program", "highwire")));
                Server ours = Servers.highwire(engine.door());
                Server theirs = Servers.memcached(System.getProperty("highwire.memcached", "memcached"))) {
            System.setProperty(Engines.DOOR_PROPERTY, engine.door());
            fill(ours);
            fill(theirs);
            List<Way> ways = List.of(
                    new Way("Highwire READ", "Highwire, Java", ours, new ReadGetter(ours.address())),
                    new Way("NIO by hand, blocking", "Highwire, Java", ours, new TextGetter(ours.address(), VALUE_BYTES, false)),
                    new Way("NIO by hand, polling", "memcached, C", theirs, new TextGetter(theirs.address(), VALUE_BYTES, true)),
                    new Way("NIO by hand, blocking", "memcached, C", theirs, new TextGetter(theirs.address(), VALUE_BYTES, false)),
                    new Way("xmemcached", "memcached, C", theirs, new XMemcachedGetter(theirs.address())),
                    new Way("spymemcached, binary", "memcached, C", theirs, new SpymemcachedGetter(theirs.address())));
            String load = Files.readString(Path.of("/proc/loadavg")).split(" ")[0];
            measure(ways);
            System.out.printf("GETs, one client at a time in turns, %d of each, load %s%n%n", COUNT, load);
            System.out.print("| GET of 32 bytes by | from | p10, µs | p50 | p90 | p99 | p99.9 | GETs/s | server's CPU, µs a GET |\n|---|---|" + "---:|".repeat(POINTS.length + 2) + "\n");
            ways.forEach(Way::show);
            for (Way way : ways) {
                way.getter.close();
            }
        }
        // Clients leave threads behind.
        System.exit(0);
    }

    private static void measure(List<Way> ways) throws Exception {
        Random random = new Random(1);
        // Ten lines, whatever the count.
        int line = Math.max(1, (COUNT + COUNT / 2) / TURN / 10) * TURN;
        Progress progress = new Progress((COUNT + COUNT / 2 + line - 1) / line);
        for (int done = -COUNT / 2; done < COUNT; done += TURN) {
            if ((done + COUNT / 2) % line == 0) {
                progress.step("GETs of all clients in turns");
            }
            if (done >= 0 && done < TURN) {
                ways.forEach(Way::reset);
            }
            int[] keys = random.ints(TURN, 0, KEYS).toArray();
            for (Way way : ways) {
                way.turn(keys);
            }
        }
    }
}
