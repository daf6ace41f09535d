package com.ibm.disni;

import com.ibm.disni.verbs.IbvCompChannel;
import com.ibm.disni.verbs.IbvContext;
import com.ibm.disni.verbs.IbvWC;
import com.ibm.disni.verbs.SVCPollCq;
import com.ibm.disni.verbs.SVCReqNotify;
import highwire.verbs.IdleStrategy;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;

/** The thread that polls the completion queues of a group's endpoints of one device, and calls the endpoints. */
final class Dispatcher {
    private static final System.Logger LOG = System.getLogger("com.ibm.disni");
    private static final int BATCH = 16;

    private final IbvContext context;
    private final IbvCompChannel channel;
    private final int timeout;
    private final IdleStrategy idle;
    private final List<Served> all = new CopyOnWriteArrayList<>();
    private final Thread thread;
    private volatile boolean isClosing;

    Dispatcher(IbvContext context, int timeout, IdleStrategy idle) throws IOException {
        this.context = context;
        this.channel = context.createCompChannel();
        this.timeout = timeout;
        this.idle = idle;
        this.thread = Thread.ofPlatform().daemon().name("disni-cq").start(this::run);
    }

    /** Makes a queue for an endpoint, which is called for each completion there until the queue is closed. */
    RdmaCqProvider serve(RdmaActiveEndpoint endpoint, int size) throws IOException {
        Served served = new Served(endpoint, size);
        all.add(served);
        served.arm();
        return served;
    }

    private void run() {
        try {
            while (!isClosing) {
                if (look()) {
                    idle.found();
                    continue;
                }
                if (idle.goOn()) {
                    continue;
                }
                for (Served served : all) {
                    served.arm();
                }
                // A completion from before a queue was armed brings no event.
                if (!look() && !isClosing) {
                    channel.getCqEvent(null, timeout);
                }
                idle.begin();
            }
        } catch (IOException | IllegalStateException e) {
            if (!isClosing) {
                LOG.log(System.Logger.Level.WARNING, "completions are not looked at any more", e);
            }
        }
    }

    private boolean look() throws IOException {
        boolean hasFound = false;
        for (Served served : all) {
            hasFound |= served.look();
        }
        return hasFound;
    }

    /** Called after the last endpoint has gone. */
    void close() throws IOException, InterruptedException {
        isClosing = true;
        channel.wakeup();
        if (Thread.currentThread() != thread) {
            thread.join();
        }
        channel.destroyCompChannel();
    }

    private final class Served extends RdmaCqProvider {
        private final RdmaActiveEndpoint endpoint;
        private final IbvWC[] batch = new IbvWC[BATCH];
        private final SVCPollCq poll;
        private final SVCReqNotify arm;
        private boolean isClosed;

        Served(RdmaActiveEndpoint endpoint, int size) throws IOException {
            super(Dispatcher.this.context, channel, size, false);
            this.endpoint = endpoint;
            for (int i = 0; i < BATCH; i++) {
                batch[i] = new IbvWC();
            }
            this.poll = cq.poll(batch, BATCH);
            this.arm = cq.reqNotification(false);
        }

        synchronized void arm() throws IOException {
            if (!isClosed) {
                arm.execute();
            }
        }

        /**
         * Only the dispatcher's thread calls this, so endpoints get completions in order; it runs without the
         * lock, as an endpoint may close itself, or wait.
         */
        boolean look() throws IOException {
            int found;
            synchronized (this) {
                found = isClosed ? 0 : poll.execute().getPolls();
            }
            for (int i = 0; i < found; i++) {
                try {
                    endpoint.dispatchCqEvent(batch[i].clone());
                } catch (IOException | RuntimeException e) {
                    LOG.log(System.Logger.Level.WARNING, "an endpoint was told of a completion and threw", e);
                }
            }
            return found > 0;
        }

        @Override
        public void close() throws IOException, InterruptedException {
            synchronized (this) {
                isClosed = true;
                super.close();
            }
            all.remove(this);
        }
    }
}
