package highwire.netty;

import highwire.verbs.Bell;
import highwire.verbs.IdleStrategy;
import highwire.verbs.VerbsException;
import io.netty.channel.EventLoop;
import io.netty.channel.IoEvent;
import io.netty.channel.IoHandle;
import io.netty.channel.IoHandler;
import io.netty.channel.IoHandlerContext;
import io.netty.channel.IoHandlerFactory;
import io.netty.channel.IoRegistration;
import io.netty.channel.nio.NioIoHandle;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.nio.NioIoOps;
import io.netty.util.concurrent.ThreadAwareExecutor;
import java.io.IOException;
import java.lang.invoke.VarHandle;
import java.nio.channels.SelectableChannel;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Supplier;

/**
 * What an event loop with {@link HighwireSocketChannel}s does: it looks at the memory of those that have queue pairs, and leaves sockets to Netty's {@link NioIoHandler}.
 *
 * <p>A loop that finds nothing says so in the memory of each channel, looks once more, and sleeps in the selector. Peers of the same engine wake it by its {@link Bell}, whose sockets
 * are in that selector too. So one thread sleeps in one place for all its channels.
 *
 * <pre>{@code
 * EventLoopGroup group = new MultiThreadIoEventLoopGroup(HighwireIoHandler.newFactory());
 * new Bootstrap().group(group).channel(HighwireSocketChannel.class)...
 * }</pre>
 */
public final class HighwireIoHandler implements IoHandler {
    /** While channels keep a loop busy, it looks at the selector once in this many turns. */
    private static final int SELECT_TURNS = 16;
    private static final Map<ThreadAwareExecutor, HighwireIoHandler> OF_LOOP = new ConcurrentHashMap<>();

    private final Path door;
    private final ThreadAwareExecutor executor;
    private final IoHandler sockets;
    private final List<HighwireSocketChannel> channels = new ArrayList<>();
    private final IdleStrategy idle;
    private final Map<Device, LoopBell> bells = new ConcurrentHashMap<>();
    private boolean hasEnded;
    private int busyTurns;
    private volatile boolean isAsleep;
    private volatile long turns;

    private HighwireIoHandler(Path door, ThreadAwareExecutor executor, IdleStrategy idle) {
        this.door = door;
        this.idle = idle;
        this.executor = executor;
        this.sockets = NioIoHandler.newFactory().newHandler(executor);
        OF_LOOP.put(executor, this);
    }

    /**
     * For event loops that use the engine that {@code highwire.door} names, or the only one.
     *
     * @return the factory
     */
    public static IoHandlerFactory newFactory() {
        return newFactory(null, HighwireIoHandler::idle);
    }

    /**
     * For event loops that use the engine behind a door.
     *
     * @param door the path of the engine's socket
     * @return the factory
     */
    public static IoHandlerFactory newFactory(Path door) {
        return newFactory(door, HighwireIoHandler::idle);
    }

    /**
     * For event loops that wait in their own way.
     *
     * @param door the path of the engine's socket; null for the one that {@code highwire.door} names, or the only one
     * @param idle makes a strategy for each event loop, which says how long it looks before it sleeps
     * @return the factory
     */
    public static IoHandlerFactory newFactory(Path door, Supplier<IdleStrategy> idle) {
        return executor -> new HighwireIoHandler(door, executor, idle.get());
    }

    private static IdleStrategy idle() {
        return IdleStrategy.adaptive(Duration.ofNanos(Settings.spinNanos()));
    }

    /** The handler of an event loop; null if that is another kind of loop. */
    static HighwireIoHandler of(EventLoop loop) {
        return loop instanceof ThreadAwareExecutor executor ? OF_LOOP.get(executor) : null;
    }

    Path door() {
        return door;
    }

    boolean isLoop(Thread thread) {
        return executor.isExecutorThread(thread);
    }

    /** Whether the loop is in the selector, or about to enter it. */
    boolean isAsleep() {
        return isAsleep;
    }

    /** How often peers have woken the loop. */
    long rings() {
        return bells.values().stream().mapToLong(bell -> bell.rings).sum();
    }

    /**
     * The bell of this loop at an engine. Asks the engine if there is none yet. Closes bells at engines that have ended.
     *
     * @throws IOException the engine refuses, or the loop has ended
     */
    synchronized LoopBell bellAt(Device device) throws IOException {
        LoopBell known = bells.get(device);
        if (known != null) {
            return known;
        }
        if (hasEnded) {
            throw new IOException("the event loop has ended");
        }
        bells.keySet().stream().filter(other -> other.failure() != null).toList().forEach(this::closeBellAt);
        LoopBell made = new LoopBell(device.context().bell());
        bells.put(device, made);
        return made;
    }

    private void closeBellAt(Device device) {
        LoopBell bell = bells.remove(device);
        // That asks the engine.
        Device.control(() -> Device.close(bell));
    }

    /** From now on no bell is made: nobody would close it. */
    private synchronized void closeBells() {
        hasEnded = true;
        bells.keySet().forEach(this::closeBellAt);
    }

    /** How often the loop has looked at its channels. */
    long turns() {
        return turns;
    }

    /** From now on the loop looks at the channel in each turn. */
    void add(HighwireSocketChannel channel) {
        channels.add(channel);
        try {
            LoopBell bell = bellAt(channel.link().device());
            if (!bell.isListening) {
                bell.isListening = true;
                register(bell.listening(), NioIoOps.ACCEPT);
            }
            channel.bell(bell.of.number());
        } catch (IOException e) {
            channel.link().fail("no peer can wake the event loop: " + e.getMessage());
        }
    }

    private void register(NioIoHandle source, NioIoOps ops) {
        try {
            sockets.register(source).submit(ops);
        } catch (Exception e) {
            throw new IllegalStateException("the event loop's bell cannot be registered", e);
        }
    }

    void remove(HighwireSocketChannel channel) {
        channels.remove(channel);
    }

    @Override
    public void initialize() {
        sockets.initialize();
    }

    @Override
    public int run(IoHandlerContext context) {
        int handled = turn();
        if (handled > 0) {
            boolean isToSelect = ++busyTurns % SELECT_TURNS == 0;
            return isToSelect ? handled + sockets.run(new Hurried(context)) : handled;
        }
        if (channels.isEmpty() || !context.canBlock()) {
            return sockets.run(context);
        }
        if (look(context)) {
            return turn();
        }
        if (!context.canBlock()) {
            return sockets.run(context);
        }
        return sleep(context);
    }

    /** Looks for a while; whether there is something to do at a channel. */
    private boolean look(IoHandlerContext context) {
        idle.begin();
        while (!hasWork()) {
            if (!context.canBlock() || context.delayNanos(System.nanoTime()) <= 0 || !idle.goOn()) {
                return false;
            }
        }
        idle.found();
        return true;
    }

    private int sleep(IoHandlerContext context) {
        for (HighwireSocketChannel channel : channels) {
            channel.lieDown();
        }
        // Either this loop sees what a peer has written, or the peer, which looks at the alarm after writing, sees that the loop sleeps.
        VarHandle.fullFence();
        boolean isToSleep = !hasWork();
        isAsleep = isToSleep;
        int handled = sockets.run(isToSleep ? context : new Hurried(context));
        isAsleep = false;
        for (HighwireSocketChannel channel : channels) {
            channel.getUp();
        }
        return handled + turn();
    }

    private boolean hasWork() {
        for (int i = 0; i < channels.size(); i++) {
            if (channels.get(i).hasWork()) {
                return true;
            }
        }
        return false;
    }

    /** Looks at each channel; a channel may leave meanwhile. */
    private int turn() {
        // One thread writes it.
        turns = turns + 1;
        int handled = 0;
        for (int i = channels.size() - 1; i >= 0; i--) {
            if (i < channels.size() && channels.get(i).turn()) {
                handled++;
            }
        }
        return handled;
    }

    @Override
    public void prepareToDestroy() {
        for (HighwireSocketChannel channel : List.copyOf(channels)) {
            channel.unsafe().close(channel.voidPromise());
        }
        sockets.prepareToDestroy();
    }

    @Override
    public void destroy() {
        OF_LOOP.remove(executor);
        sockets.destroy();
        // A call that is on its way may make a bell, and holds the lock meanwhile.
        Device.control(this::closeBells);
    }

    @Override
    public IoRegistration register(IoHandle handle) throws Exception {
        return sockets.register(handle);
    }

    @Override
    public void wakeup() {
        sockets.wakeup();
    }

    @Override
    public boolean isCompatible(Class<? extends IoHandle> type) {
        return sockets.isCompatible(type);
    }

    /** A turn that must not sleep. */
    private record Hurried(IoHandlerContext of) implements IoHandlerContext {
        @Override
        public boolean canBlock() {
            return false;
        }

        @Override
        public long delayNanos(long now) {
            return of.delayNanos(now);
        }

        @Override
        public long deadlineNanos() {
            return of.deadlineNanos();
        }
    }

    /** Where peers of the same engine wake the loop. */
    final class LoopBell implements AutoCloseable {
        private final Bell of;
        private boolean isListening;
        private volatile long rings;

        private LoopBell(Bell of) {
            this.of = of;
        }

        @Override
        public void close() throws VerbsException {
            of.close();
        }

        private NioIoHandle listening() {
            return new Source(of.listener());
        }

        private void onAccept() throws IOException {
            for (SelectableChannel ringer = of.accept(); ringer != null; ringer = of.accept()) {
                register(new Source(ringer), NioIoOps.READ);
                // Connecting is the first ring, and bytes may have followed.
                rung();
                of.take(ringer);
            }
        }

        private void rung() {
            // One thread writes it.
            rings = rings + 1;
        }

        /** The listening socket, or a peer's connection. */
        private final class Source implements NioIoHandle {
            private final SelectableChannel channel;

            private Source(SelectableChannel channel) {
                this.channel = channel;
            }

            @Override
            public SelectableChannel selectableChannel() {
                return channel;
            }

            @Override
            public void handle(IoRegistration registration, IoEvent event) {
                try {
                    if (channel == of.listener()) {
                        onAccept();
                    } else if (of.take(channel)) {
                        rung();
                    }
                } catch (IOException e) {
                    // A ring that cannot be taken has woken the loop all the same.
                }
            }

            @Override
            public void close() {
                try {
                    channel.close();
                } catch (IOException e) {
                    // The kernel closes it even if it reports an error.
                }
            }
        }
    }
}
