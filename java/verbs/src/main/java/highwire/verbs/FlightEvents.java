package highwire.verbs;

import java.lang.ref.WeakReference;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import jdk.jfr.Category;
import jdk.jfr.Description;
import jdk.jfr.Event;
import jdk.jfr.FlightRecorder;
import jdk.jfr.Label;
import jdk.jfr.Name;
import jdk.jfr.Period;
import jdk.jfr.StackTrace;
import jdk.jfr.Threshold;

/**
 * What a flight recording shows of Highwire. Requests and completions are too many for an event each: {@link Traffic} has their sums, once a
 * second.
 */
final class FlightEvents {
    private static final List<WeakReference<Context>> CONTEXTS = new CopyOnWriteArrayList<>();

    static {
        FlightRecorder.addPeriodicEvent(Traffic.class, FlightEvents::emitTraffic);
    }

    private FlightEvents() {}

    /** From now on this context's traffic is shown, until it is closed or collected. */
    static void watch(Context context) {
        CONTEXTS.removeIf(other -> other.get() == null || other.get().isOver());
        CONTEXTS.add(new WeakReference<>(context));
    }

    private static void emitTraffic() {
        for (WeakReference<Context> reference : CONTEXTS) {
            Context context = reference.get();
            if (context != null && !context.isOver()) {
                ContextMetrics metrics = context.metrics();
                Traffic event = new Traffic();
                event.door = context.door().toString();
                event.queuePairs = metrics.queuePairs();
                event.executed = metrics.executed();
                event.posted = metrics.posted();
                event.completions = metrics.completions();
                event.failures = metrics.failures();
                event.commit();
            }
        }
    }

    @Name("highwire.ContextOpen")
    @Label("Context Open")
    @Category("Highwire")
    @Description("A context was opened or opened again; the time includes finding or starting an engine")
    static final class ContextOpen extends Event {
        @Label("Door")
        String door;
        @Label("Engine Process")
        long enginePid;
        @Label("Is Reopened")
        boolean isReopened;
    }

    @Name("highwire.ContextEnd")
    @Label("Context End")
    @Category("Highwire")
    @Description("A context has ended because its engine ended or was silent")
    static final class ContextEnd extends Event {
        @Label("Reason")
        String reason;
    }

    @Name("highwire.Connect")
    @Label("Queue Pair Connect")
    @Category("Highwire")
    static final class Connect extends Event {
        @Label("Queue Pair")
        int qpn;
        @Label("Peer Address")
        String peer;
        @Label("Peer Queue Pair")
        int peerQpn;
        @Label("Is Of The Same Engine")
        boolean isOfSameEngine;
    }

    @Name("highwire.Wait")
    @Label("Completion Wait")
    @Category("Highwire")
    @Description("A thread waited for a completion channel")
    @Threshold("10 ms")
    static final class Wait extends Event {
        @Label("Has Reported")
        boolean hasReported;
    }

    @Name("highwire.FailedCompletion")
    @Label("Failed Completion")
    @Category("Highwire")
    static final class FailedCompletion extends Event {
        @Label("Queue Pair")
        int qpn;
        @Label("Work Request")
        long wrId;
        @Label("Status")
        String status;
    }

    @Name("highwire.Traffic")
    @Label("Traffic")
    @Category("Highwire")
    @Description("What a context has done since it was opened")
    @Period("1 s")
    @StackTrace(false)
    static final class Traffic extends Event {
        @Label("Door")
        String door;
        @Label("Queue Pairs")
        long queuePairs;
        @Label("Requests Executed")
        long executed;
        @Label("Requests Posted")
        long posted;
        @Label("Completions")
        long completions;
        @Label("Failures")
        long failures;
    }
}
