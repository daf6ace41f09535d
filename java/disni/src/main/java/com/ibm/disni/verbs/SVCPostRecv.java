package com.ibm.disni.verbs;

import java.io.IOException;

/** Posts receives. */
public abstract class SVCPostRecv implements StatefulVerbCall<SVCPostRecv> {
    /** For the implementation. */
    public SVCPostRecv() {}

    /**
     * A receive.
     *
     * @param index from 0
     * @return the receive
     * @throws IOException there is no such receive
     */
    public abstract RecvWRMod getWrMod(int index) throws IOException;

    /** A serialised receive. */
    public interface RecvWRMod {
        /** {@return the number that its completion gives back} */
        long getWr_id();
    }
}
