package highwire.verbs;

import java.util.Arrays;

/**
 * The operations of {@link CallBenchmark} on a busy machine: many trials that are shorter than a scheduler's
 * turn, of which the fastest and the tenth part are shown.
 */
public final class CallCost {
    private static final int TRIALS = 400;
    private static final int OPERATIONS = 20_000;

    private CallCost() {}

    private static void measure(String name, int sges, Runnable operation, int requests) {
        double[] nanos = new double[TRIALS];
        for (int trial = 0; trial < 2 * TRIALS; trial++) {
            nanos[trial % TRIALS] = trial(operation) / requests;
        }
        Arrays.sort(nanos);
        System.out.printf("%-14s %2d sges  min %7.2f  p10 %7.2f  p50 %7.2f ns%n", name, sges, nanos[0], nanos[TRIALS / 10],
                nanos[TRIALS / 2]);
    }

    private static double trial(Runnable operation) {
        long start = System.nanoTime();
        for (int i = 0; i < OPERATIONS; i++) {
            operation.run();
        }
        return (System.nanoTime() - start) / (double) OPERATIONS;
    }

    /**
     * Measures one operation per JVM, so that none is compiled for the others' sake.
     *
     * @param args the operation's name, and pieces of a request
     * @throws Exception something does not work here
     */
    public static void main(String[] args) throws Exception {
        CallBenchmark benchmark = new CallBenchmark();
        benchmark.sges = Integer.parseInt(args[1]);
        benchmark.setUp();
        try {
            Runnable operation = switch (args[0]) {
                case "execCached" -> benchmark::execCached;
                case "execPatched" -> benchmark::execPatched;
                case "execFresh" -> benchmark::execFresh;
                case "writeAndPoll" -> benchmark::writeAndPoll;
                case "fence" -> benchmark::fence;
                case "execBatch" -> benchmark::execBatch;
                case "load" -> benchmark::load;
                case "store" -> benchmark::store;
                case "storesAndFence" -> benchmark::storesAndFence;
                case "pollEmpty" -> benchmark::pollEmpty;
                default -> throw new IllegalArgumentException(args[0]);
            };
            measure(args[0], benchmark.sges, operation, args[0].equals("execBatch") ? CallBenchmark.BATCH : 1);
        } finally {
            benchmark.tearDown();
        }
        System.exit(0);
    }
}
