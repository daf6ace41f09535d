package highwire.verbs;

import java.util.HashSet;
import java.util.Set;

/** The counters of a context's queues. Those of closed queues are kept as sums. */
final class Meter {
    private final Set<Counters> open = new HashSet<>();
    private long executed;
    private long posted;
    private long completions;
    private long failures;

    synchronized Counters open(boolean isOfRequests) {
        Counters made = new Counters(isOfRequests);
        open.add(made);
        return made;
    }

    synchronized void close(Counters counters) {
        if (open.remove(counters)) {
            add(counters);
        }
    }

    private void add(Counters counters) {
        if (counters.isOfRequests) {
            executed += counters.first();
            posted += counters.second();
        } else {
            completions += counters.first();
            failures += counters.second();
        }
    }

    synchronized ContextMetrics read() {
        Meter sum = new Meter();
        sum.executed = executed;
        sum.posted = posted;
        sum.completions = completions;
        sum.failures = failures;
        open.forEach(sum::add);
        long queuePairs = open.stream().filter(counters -> counters.isOfRequests).count();
        return new ContextMetrics(queuePairs, open.size() - queuePairs, sum.executed, sum.posted, sum.completions, sum.failures);
    }
}
