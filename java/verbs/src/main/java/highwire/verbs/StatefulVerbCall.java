package highwire.verbs;

/**
 * A verb together with its serialised arguments (jVerbs §5.3): made once, executed often, changed in place.
 *
 * <p>The size of a call never changes: arguments may change, their number may not. One thread at a time.
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

    /** {@return whether it can still be executed: it was not freed, and none of its objects was closed} */
    boolean valid();

    /** {@return the result of the last execution: how many requests were taken, or completions found} */
    int result();

    /**
     * Frees the call and its serialised form.
     *
     * @return this call
     */
    T free();
}
