package com.ibm.disni.verbs;

import java.io.IOException;

/**
 * A verb with its serialised arguments: made once, executed often. {@code execute().free()} does it once.
 *
 * @param <T> the call itself
 */
public interface StatefulVerbCall<T extends StatefulVerbCall<?>> {
    /**
     * Executes the call with its arguments as they are now.
     *
     * @return this call
     * @throws IOException why not
     */
    T execute() throws IOException;

    /** {@return whether it can still be executed} */
    boolean isValid();

    /** {@return this call, which is not executed again} */
    T free();
}
