package highwire.verbs;

/** Polling as a stateful call: {@code call.exec().result()} says how many completions there are, {@link #completion} shows each. */
public final class PollCq implements StatefulVerbCall<PollCq> {
    private final CompletionQueue queue;
    private Completion[] completions;
    private int found;

    PollCq(CompletionQueue queue, int count) {
        this.queue = queue;
        this.completions = new Completion[count];
        for (int i = 0; i < count; i++) {
            completions[i] = new Completion();
        }
    }

    @Override
    public PollCq exec() {
        // Mostly there is no completion, and then this is all.
        found = queue.hasCompletion() ? queue.poll(completions) : 0;
        return this;
    }

    @Override
    public boolean valid() {
        return completions.length > 0 && !queue.isClosed();
    }

    @Override
    public int result() {
        return found;
    }

    /**
     * A completion that was found.
     *
     * @param index from 0
     * @return it, until the next {@link #exec}
     */
    public Completion completion(int index) {
        if (index >= found) {
            throw new IndexOutOfBoundsException("the last poll found " + found + " completions");
        }
        return completions[index];
    }

    @Override
    public PollCq free() {
        completions = new Completion[0];
        found = 0;
        return this;
    }
}
