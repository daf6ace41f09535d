package com.ibm.disni.verbs;

import highwire.verbs.Completion;
import highwire.verbs.CompletionQueue;
import java.io.IOException;

/** A completion queue. One thread polls it at a time. */
public class IbvCQ {
    /** The device that it belongs to. */
    protected IbvContext context;
    /** Where its events are reported; null if it has none. */
    protected IbvCompChannel channel;
    /** Completions that it holds. */
    protected int cqe;
    /** Whether it was not closed. */
    protected volatile boolean isOpen = true;
    final CompletionQueue queue;

    IbvCQ(IbvContext context, IbvCompChannel channel, int entries) throws IOException {
        this.context = context;
        this.channel = channel;
        this.queue = channel == null ? context.device.completionQueue(entries) : context.device.completionQueue(entries, channel.channel);
        this.cqe = queue.capacity();
    }

    /** {@return the device that it belongs to} */
    public IbvContext getContext() {
        return context;
    }

    /** {@return where its events are reported; null if it has none} */
    public IbvCompChannel getChannel() {
        return channel;
    }

    /** {@return how many completions it holds} */
    public int getCqe() {
        return cqe;
    }

    /** {@return whether it was not closed} */
    public boolean isOpen() {
        return isOpen;
    }

    /**
     * A call that polls.
     *
     * @param list where completions go, from the first on
     * @param count how many at most
     * @return the call
     * @throws IOException never
     */
    public SVCPollCq poll(IbvWC[] list, int count) throws IOException {
        return new PollCq(queue, list, Math.min(count, list.length));
    }

    /**
     * A call that asks for one event at the next completion. Completions that wait already bring none: poll once more afterwards.
     *
     * @param solicitedOnly only for messages whose sender asked for it, and for failures
     * @return the call
     * @throws IOException never
     */
    public SVCReqNotify reqNotification(boolean solicitedOnly) throws IOException {
        return new ReqNotify(queue, solicitedOnly);
    }

    /**
     * Nothing: events need no acknowledgement.
     *
     * @param count how many
     * @return 0
     * @throws IOException never
     */
    public int ackEvents(int count) throws IOException {
        return 0;
    }

    /**
     * Closes the queue.
     *
     * @return 0
     * @throws IOException a queue pair still completes into it
     */
    public int destroyCQ() throws IOException {
        queue.close();
        isOpen = false;
        return 0;
    }

    private static final class PollCq extends SVCPollCq {
        private final CompletionQueue queue;
        private final IbvWC[] list;
        private final int count;
        private final Completion completion = new Completion();
        private int polls;

        PollCq(CompletionQueue queue, IbvWC[] list, int count) {
            this.queue = queue;
            this.list = list;
            this.count = count;
        }

        @Override
        public SVCPollCq execute() {
            polls = 0;
            while (polls < count && queue.poll(completion)) {
                fill(list[polls++]);
            }
            return this;
        }

        private void fill(IbvWC into) {
            into.setWr_id(completion.wrId());
            into.setStatus(completion.status().ordinal());
            into.setOpcode(completion.opcode());
            into.setVendor_err(0);
            into.setByte_len(completion.byteLen());
            into.setImm_data(completion.imm());
            into.setQp_num(completion.qpn());
            into.setSrc_qp(completion.sourceQpn());
            into.setWc_flags((completion.hasGrh() ? 1 : 0) | (completion.hasImm() ? 2 : 0));
        }

        @Override
        public int getPolls() {
            return polls;
        }

        @Override
        public boolean isValid() {
            return !queue.isClosed();
        }

        @Override
        public SVCPollCq free() {
            return this;
        }
    }

    private static final class ReqNotify extends SVCReqNotify {
        private final CompletionQueue queue;
        private final boolean isSolicitedOnly;

        ReqNotify(CompletionQueue queue, boolean isSolicitedOnly) {
            this.queue = queue;
            this.isSolicitedOnly = isSolicitedOnly;
        }

        @Override
        public SVCReqNotify execute() throws IOException {
            try {
                queue.requestNotify(isSolicitedOnly);
            } catch (IllegalStateException e) {
                throw new IOException(e.getMessage(), e);
            }
            return this;
        }

        @Override
        public boolean isValid() {
            return !queue.isClosed();
        }

        @Override
        public SVCReqNotify free() {
            return this;
        }
    }
}
