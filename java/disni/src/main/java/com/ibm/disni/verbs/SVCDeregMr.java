package com.ibm.disni.verbs;

/** Gives a region back: its keys stop working. */
public abstract class SVCDeregMr implements StatefulVerbCall<SVCDeregMr> {
    /** For the implementation. */
    public SVCDeregMr() {}
}
