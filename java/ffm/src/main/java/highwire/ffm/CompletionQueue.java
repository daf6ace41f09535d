package highwire.ffm;

import highwire.verbs.VerbsException;
import java.lang.foreign.MemorySegment;

/** A queue of completions. One polling thread at a time. */
public final class CompletionQueue extends NativeObject {
    private final MemorySegment poll;
    private final MemorySegment requestNotify;

    CompletionQueue(Device device, CompletionChannel channel, MemorySegment pointer) {
        super(device.library, pointer, "completion queue", "ibv_destroy_cq", channel == null ? new NativeObject[] {device} : new NativeObject[] {device, channel});
        poll = device.pollCq;
        requestNotify = device.requestNotify;
    }

    /**
     * Makes a call that polls.
     *
     * @param most completions that one execution finds
     * @return a call that polls
     */
    public PollCq pollCall(int most) {
        checkOpen();
        return new PollCq(this, most);
    }

    int poll(int most, MemorySegment into) {
        checkOpen();
        return Libibverbs.poll(poll, pointer, most, into);
    }

    /**
     * Asks for an event on the channel at the next completion. Poll once more afterwards for earlier ones.
     *
     * @param solicitedOnly whether only completions that the peer has marked, and failures, count
     * @throws VerbsException the library refuses
     */
    public void requestNotify(boolean solicitedOnly) throws VerbsException {
        checkOpen();
        int errno = Libibverbs.notify(requestNotify, pointer, solicitedOnly ? 1 : 0);
        if (errno != 0) {
            throw new NativeVerbsException("ibv_req_notify_cq", errno);
        }
    }
}
