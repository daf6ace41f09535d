package highwire.verbs;

import java.net.InetAddress;

/** Attributes of a queue pair: those that are set are changed, and a query sets all. The setters return this. */
public final class QpAttr {
    private static final int STATE = 1;
    private static final int ACCESS = 2;
    private static final int QKEY = 3;
    private static final int GID_LOW = 4;
    private static final int GID_HIGH = 5;
    private static final int MARKS = 6;
    private static final int REMOTE_QPN = 7;
    private static final int PATH_MTU = 8;
    private static final int RQ_PSN = 9;
    private static final int SQ_PSN = 10;
    private static final int MAX_DEST_RD_ATOMIC = 11;
    private static final int MAX_RD_ATOMIC = 12;
    private static final int MIN_RNR_TIMER = 13;
    private static final int TIMEOUT = 14;
    private static final int RETRY_COUNT = 15;
    private static final int RNR_RETRY = 16;
    private static final int RECOVERY = 17;
    static final int WORDS = 18;

    private static final long HOP_LIMIT = 64;

    /** The mask, whose bits are those of {@code ibv_qp_attr_mask}, and a word for each attribute. */
    final long[] words;

    /** No attribute. */
    public QpAttr() {
        this(new long[WORDS]);
    }

    QpAttr(long[] words) {
        this.words = words;
    }

    private QpAttr set(int bit, int word, long value) {
        words[0] |= 1L << bit;
        words[word] = value;
        return this;
    }

    /**
     * Sets the state to go to.
     *
     * @param state the state to go to
     * @return this
     */
    public QpAttr state(QpState state) {
        return set(0, STATE, state.ordinal());
    }

    /**
     * Sets what peers may do.
     *
     * @param access what peers may do, bits of {@link Access}
     * @return this
     */
    public QpAttr access(int access) {
        return set(3, ACCESS, access);
    }

    /**
     * Sets the Q_Key.
     *
     * @param qkey the Q_Key (UD)
     * @return this
     */
    public QpAttr qkey(int qkey) {
        return set(6, QKEY, Integer.toUnsignedLong(qkey));
    }

    /**
     * Names the peer's device.
     *
     * @param peer the peer's device
     * @return this
     */
    public QpAttr address(InetAddress peer) {
        Gid gid = Gid.of(peer);
        words[GID_HIGH] = gid.high();
        words[MARKS] = HOP_LIMIT;
        return set(7, GID_LOW, gid.low());
    }

    /**
     * Names the peer's queue pair.
     *
     * @param qpn the peer's queue pair
     * @return this
     */
    public QpAttr remoteQpn(int qpn) {
        return set(20, REMOTE_QPN, qpn);
    }

    /**
     * Sets the path MTU.
     *
     * @param bytes the path MTU
     * @return this
     */
    public QpAttr pathMtu(int bytes) {
        return set(8, PATH_MTU, bytes);
    }

    /**
     * Sets the first PSN that is expected.
     *
     * @param psn the first PSN expected from the peer
     * @return this
     */
    public QpAttr rqPsn(int psn) {
        return set(12, RQ_PSN, psn);
    }

    /**
     * Sets the first PSN to send.
     *
     * @param psn the first PSN to send
     * @return this
     */
    public QpAttr sqPsn(int psn) {
        return set(16, SQ_PSN, psn);
    }

    /**
     * Limits READs and atomics of the peer.
     *
     * @param count READs and atomics accepted at once
     * @return this
     */
    public QpAttr maxDestRdAtomic(int count) {
        return set(17, MAX_DEST_RD_ATOMIC, count);
    }

    /**
     * Limits READs and atomics of this end.
     *
     * @param count READs and atomics sent at once
     * @return this
     */
    public QpAttr maxRdAtomic(int count) {
        return set(13, MAX_RD_ATOMIC, count);
    }

    /**
     * Sets the wait after an RNR NAK.
     *
     * @param code the wait for which an RNR NAK asks (IBTA table 45)
     * @return this
     */
    public QpAttr minRnrTimer(int code) {
        return set(15, MIN_RNR_TIMER, code);
    }

    /**
     * Sets the local ACK timeout.
     *
     * @param code local ACK timeout: 4.096 µs × 2^n; 0 waits for ever
     * @return this
     */
    public QpAttr timeout(int code) {
        return set(9, TIMEOUT, code);
    }

    /**
     * Limits timeouts in a row.
     *
     * @param count timeouts in a row before giving up, at most 7
     * @return this
     */
    public QpAttr retryCount(int count) {
        return set(10, RETRY_COUNT, count);
    }

    /**
     * Limits RNR NAKs in a row.
     *
     * @param count RNR NAKs in a row before giving up; 7 never gives up
     * @return this
     */
    public QpAttr rnrRetry(int count) {
        return set(11, RNR_RETRY, count);
    }

    /**
     * Chooses the recovery of losses.
     *
     * @param irn whether to recover losses as IRN does, if the peer can
     * @return this
     */
    public QpAttr irn(boolean irn) {
        return set(32, RECOVERY, irn ? 1 : 0);
    }

    /** {@return the state} */
    public QpState state() {
        return QpState.values()[(int) words[STATE]];
    }

    /** {@return what peers may do} */
    public int access() {
        return (int) words[ACCESS];
    }

    /** {@return the peer's device} */
    public InetAddress address() {
        return new Gid(words[GID_LOW], words[GID_HIGH]).address();
    }

    /** {@return the peer's queue pair} */
    public int remoteQpn() {
        return (int) words[REMOTE_QPN];
    }

    /** {@return the path MTU in bytes} */
    public int pathMtu() {
        return (int) words[PATH_MTU];
    }

    /** {@return retries} */
    public int retryCount() {
        return (int) words[RETRY_COUNT];
    }

    boolean hasState() {
        return (words[0] & 1) != 0;
    }

    boolean hasPeer() {
        return (words[0] & 1L << 20) != 0;
    }

    Gid gid() {
        return new Gid(words[GID_LOW], words[GID_HIGH]);
    }
}
