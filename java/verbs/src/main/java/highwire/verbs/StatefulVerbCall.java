package highwire.verbs;

/**
 * A verb together with its serialised arguments (jVerbs §5.3): made once, executed often, changed in place.
 *
 * <p>What a call holds grows never: arguments may change, their number may not. One thread at a time.
 *
 * @param <T> the call itself
 */
public interface StatefulVerbCall<T extends StatefulVerbCall<T>> {
    /**
     * Executes the call with its arguments as they are now.
     *
     * @return this call
     */
    T exec();

    /** @return whether it can still be executed: it was not freed, and nothing that it names was closed. */
    boolean valid();

    /** @return what the last execution came to: how many requests were taken, or completions found. */
    int result();

    /**
     * Gives up the call and what it has serialised.
     *
     * @return this call
     */
    T free();
}
