package com.ibm.disni.verbs;

/** Numbers of the connection manager. */
public class RdmaCm {
    /** Reliable connections; the only kind there is. */
    public static final short RDMA_PS_TCP = 0x0106;

    private RdmaCm() {}
}
