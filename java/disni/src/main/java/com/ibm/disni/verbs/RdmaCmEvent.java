package com.ibm.disni.verbs;

/** An event of a connection. */
public class RdmaCmEvent {
    protected int event;
    protected int status;
    protected RdmaCmId listenIdPriv;
    protected RdmaCmId connIdPriv;
    private final String reason;

    RdmaCmEvent(EventType type, RdmaCmId listening, RdmaCmId connection, String reason) {
        this.event = type.ordinal();
        this.status = reason == null ? 0 : -1;
        this.listenIdPriv = listening;
        this.connIdPriv = connection;
        this.reason = reason;
    }

    /** @return the ordinal of an {@link EventType}. */
    public int getEvent() {
        return event;
    }

    /** @return 0 unless it is a failure. */
    public int getStatus() {
        return status;
    }

    /** @return of a request, where it came in. */
    public RdmaCmId getListenIdPriv() {
        return listenIdPriv;
    }

    /** @return the connection. */
    public RdmaCmId getConnIdPriv() {
        return connIdPriv;
    }

    /** Nothing: events need no acknowledgement. */
    public void ackEvent() {}

    /** @return of a failure, why; DiSNI has no such thing. */
    public String getReason() {
        return reason;
    }

    @Override
    public String toString() {
        return EventType.values()[event] + (reason == null ? "" : ": " + reason);
    }

    /** In the order of {@code rdma_cm_event_type}; some of them never happen here. */
    public enum EventType {
        RDMA_CM_EVENT_ADDR_RESOLVED,
        RDMA_CM_EVENT_ADDR_ERROR,
        RDMA_CM_EVENT_ROUTE_RESOLVED,
        RDMA_CM_EVENT_ROUTE_ERROR,
        RDMA_CM_EVENT_CONNECT_REQUEST,
        RDMA_CM_EVENT_CONNECT_RESPONSE,
        RDMA_CM_EVENT_CONNECT_ERROR,
        RDMA_CM_EVENT_UNREACHABLE,
        RDMA_CM_EVENT_REJECTED,
        RDMA_CM_EVENT_ESTABLISHED,
        RDMA_CM_EVENT_DISCONNECTED,
        RDMA_CM_EVENT_DEVICE_REMOVAL,
        RDMA_CM_EVENT_MULTICAST_JOIN,
        RDMA_CM_EVENT_MULTICAST_ERROR,
        RDMA_CM_EVENT_ADDR_CHANGE,
        RDMA_CM_EVENT_TIMEWAIT_EXIT
    }
}
