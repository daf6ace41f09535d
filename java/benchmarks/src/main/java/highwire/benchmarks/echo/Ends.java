package highwire.benchmarks.echo;

import highwire.verbs.Engines;
import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Base64;
import java.util.Map;
import org.HdrHistogram.Histogram;

/**
 * The two JVMs of a measurement. The answering one carries out the orders on its input; the asking one starts
 * it, measures one size after the other, and prints its histograms.
 */
public final class Ends {
    /** The door of the answering JVM, if it has another engine. */
    static final String SERVER_DOOR = "highwire.serverDoor";
    /** How long each size is measured, and before that played without counting, in milliseconds. */
    static final String MILLIS = "highwire.millis";
    /** Megabytes a second that both ends allocate meanwhile, as work for the collector. */
    static final String GARBAGE = "highwire.garbage";
    /** The beginning of lines for the other JVM, as libraries print lines of their own. */
    private static final String MARK = "echo: ";
    private static final int BATCH = 100;
    /** Messages after which the code of both ends is compiled, and how long they may take: with the first size, and once more with each other one. */
    private static final long WARM_COUNT = 40_000;
    private static final long WARM_MILLIS_FIRST = 5_000;
    private static final long WARM_MILLIS = 1_000;

    private Ends() {}

    /**
     * Runs one end.
     *
     * @param args {@code answer} or {@code ask}, the way, and for the one that asks the sizes
     * @throws Exception it does not work here
     */
    public static void main(String[] args) throws Exception {
        Way way = Way.valueOf(args[1]);
        if (garbage() > 0) {
            Garbage.make(garbage());
        }
        if (args[0].equals("answer")) {
            answer(way.echo());
        } else {
            ask(way, args);
        }
        System.exit(0);
    }

    private static int garbage() {
        return Integer.getInteger(GARBAGE, 0);
    }

    static void say(String line) {
        System.out.println(MARK + line);
        System.out.flush();
    }

    /** The next line from the other JVM; null at the end. */
    static String hear(BufferedReader from) throws IOException {
        for (String line = from.readLine(); line != null; line = from.readLine()) {
            if (line.startsWith(MARK)) {
                return line.substring(MARK.length());
            }
        }
        return null;
    }

    private static void answer(Echo echo) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String bytes = in.readLine(); bytes != null; bytes = in.readLine()) {
            try (Echo.Server server = echo.serve(Integer.parseInt(bytes))) {
                say(server.introduction());
                server.meet(in.readLine());
                say("ready");
                in.readLine();
            }
            say("closed");
        }
    }

    private static void ask(Way way, String[] args) throws Exception {
        Echo echo = way.echo();
        if (echo.obstacle() != null) {
            say("obstacle " + echo.obstacle());
            return;
        }
        Process other = Jvm.start(Map.of(Engines.DOOR_PROPERTY, System.getProperty(SERVER_DOOR, ""), GARBAGE, "" + garbage()), Ends.class, "answer", way.name());
        BufferedReader in = other.inputReader();
        BufferedWriter out = other.outputWriter();
        long millis = Long.getLong(MILLIS);
        long warm = WARM_MILLIS_FIRST;
        for (int i = 2; i < args.length; i++) {
            int bytes = Integer.parseInt(args[i]);
            tell(out, args[i]);
            try (Echo.Client client = echo.connect(hear(in), bytes)) {
                tell(out, client.introduction());
                hear(in);
                warmUp(client, warm);
                warm = WARM_MILLIS;
                Histogram times = new Histogram(3);
                long collections = Garbage.collections();
                // If the collector is wanted at work, it has run.
                do {
                    run(client, millis, times);
                } while (garbage() > 0 && Garbage.collections() == collections);
                if (garbage() > 0) {
                    say("collections " + (Garbage.collections() - collections));
                }
                say(bytes + " " + text(times));
            }
            tell(out, "end");
            hear(in);
        }
        out.close();
        other.waitFor();
    }

    private static void warmUp(Echo.Client client, long millis) throws Exception {
        long end = System.nanoTime() + millis * 1_000_000;
        Histogram times = new Histogram(3);
        while (times.getTotalCount() < WARM_COUNT && System.nanoTime() < end) {
            client.run(BATCH, times);
        }
    }

    private static void run(Echo.Client client, long millis, Histogram times) throws Exception {
        long end = System.nanoTime() + millis * 1_000_000;
        do {
            client.run(BATCH, times);
        } while (System.nanoTime() < end);
    }

    private static void tell(BufferedWriter out, String line) throws IOException {
        out.write(line + "\n");
        out.flush();
    }

    /** Its counts in a word. */
    private static String text(Histogram times) {
        ByteBuffer bytes = ByteBuffer.allocate(times.getNeededByteBufferCapacity());
        int length = times.encodeIntoCompressedByteBuffer(bytes);
        return Base64.getEncoder().encodeToString(Arrays.copyOf(bytes.array(), length));
    }
}
