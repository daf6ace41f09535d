package com.ibm.disni.verbs;

/** Polls a completion queue into the completions that the call was made with. */
public abstract class SVCPollCq implements StatefulVerbCall<SVCPollCq> {
    /** For the implementation. */
    public SVCPollCq() {}

    /** {@return how many completions the last execution found} */
    public abstract int getPolls();
}
