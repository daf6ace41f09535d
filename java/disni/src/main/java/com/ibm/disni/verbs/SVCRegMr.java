package com.ibm.disni.verbs;

/** Registers memory. */
public abstract class SVCRegMr implements StatefulVerbCall<SVCRegMr> {
    /** For the implementation. */
    public SVCRegMr() {}

    /** {@return the region, once the call was executed} */
    public abstract IbvMr getMr();
}
