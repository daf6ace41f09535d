package com.ibm.disni.verbs;

/** Asks for an event at the next completion. */
public abstract class SVCReqNotify implements StatefulVerbCall<SVCReqNotify> {
    /** For the implementation. */
    public SVCReqNotify() {}
}
