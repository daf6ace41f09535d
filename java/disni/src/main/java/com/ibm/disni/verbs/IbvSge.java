package com.ibm.disni.verbs;

/** A piece of registered memory, as {@code ibv_sge}. */
public class IbvSge {
    /** The address of the first byte. */
    protected long addr;
    /** How many bytes. */
    protected int length;
    /** The key of the memory for this end. */
    protected int lkey;

    /** An empty one. */
    public IbvSge() {}

    /** {@return the address of the first byte} */
    public long getAddr() {
        return addr;
    }

    /**
     * Sets the address of the first byte.
     *
     * @param addr the address of the first byte
     */
    public void setAddr(long addr) {
        this.addr = addr;
    }

    /** {@return how many bytes} */
    public int getLength() {
        return length;
    }

    /**
     * Sets how many bytes.
     *
     * @param length how many bytes
     */
    public void setLength(int length) {
        this.length = length;
    }

    /** {@return the key of the memory for this end} */
    public int getLkey() {
        return lkey;
    }

    /**
     * Sets the key of the memory for this end.
     *
     * @param lkey the key of the memory for this end
     */
    public void setLkey(int lkey) {
        this.lkey = lkey;
    }
}
