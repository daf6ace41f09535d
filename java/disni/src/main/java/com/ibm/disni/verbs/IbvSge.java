package com.ibm.disni.verbs;

/** A piece of registered memory, as {@code ibv_sge}. */
public class IbvSge {
    protected long addr;
    protected int length;
    protected int lkey;

    /** An empty one. */
    public IbvSge() {}

    public long getAddr() {
        return addr;
    }

    public void setAddr(long addr) {
        this.addr = addr;
    }

    public int getLength() {
        return length;
    }

    public void setLength(int length) {
        this.length = length;
    }

    public int getLkey() {
        return lkey;
    }

    public void setLkey(int lkey) {
        this.lkey = lkey;
    }
}
