package com.ibm.disni.verbs;

/** An event of a connection. */
public class RdmaCmEvent {
    /** What has happened, as a number of {@link EventType}. */
    protected int event;
    /** How it ended; 0 is success. */
    protected int status;
    /** The identifier that listens. */
    protected RdmaCmId listenIdPriv;
    /** The identifier that the event is about. */
    protected RdmaCmId connIdPriv;
    private final String reason;

    RdmaCmEvent(EventType type, RdmaCmId listening, RdmaCmId connection, String reason) {
        this.event = type.ordinal();
        this.status = reason == null ? 0 : -1;
        this.listenIdPriv = listening;
        this.connIdPriv = connection;
        this.reason = reason;
    }

    /** {@return the ordinal of an {@link EventType}} */
    public int getEvent() {
        return event;
    }

    /** {@return 0 unless it is a failure} */
    public int getStatus() {
        return status;
    }

    /** {@return of a request, where it came in} */
    public RdmaCmId getListenIdPriv() {
        return listenIdPriv;
    }

    /** {@return the connection} */
    public RdmaCmId getConnIdPriv() {
        return connIdPriv;
    }

    /** Nothing: events need no acknowledgement. */
    public void ackEvent() {}

    /** {@return of a failure, why; DiSNI has no such thing} */
    public String getReason() {
        return reason;
    }

    @Override
    public String toString() {
        return EventType.values()[event] + (reason == null ? "" : ": " + reason);
    }

    /** In the order of {@code rdma_cm_event_type}; some of them never happen here. */
    public enum EventType {
        /** The peer's address is known. */
        RDMA_CM_EVENT_ADDR_RESOLVED,
        /** The peer's address is not known. */
        RDMA_CM_EVENT_ADDR_ERROR,
        /** The route to the peer is known. */
        RDMA_CM_EVENT_ROUTE_RESOLVED,
        /** There is no route to the peer. */
        RDMA_CM_EVENT_ROUTE_ERROR,
        /** A client wants to connect. */
        RDMA_CM_EVENT_CONNECT_REQUEST,
        /** A server has answered; never reported. */
        RDMA_CM_EVENT_CONNECT_RESPONSE,
        /** Connecting failed. */
        RDMA_CM_EVENT_CONNECT_ERROR,
        /** The peer does not answer. */
        RDMA_CM_EVENT_UNREACHABLE,
        /** The server refuses. */
        RDMA_CM_EVENT_REJECTED,
        /** The connection is there. */
        RDMA_CM_EVENT_ESTABLISHED,
        /** The connection has ended. */
        RDMA_CM_EVENT_DISCONNECTED,
        /** The device has gone; never reported. */
        RDMA_CM_EVENT_DEVICE_REMOVAL,
        /** A group was joined; never reported. */
        RDMA_CM_EVENT_MULTICAST_JOIN,
        /** A group was not joined; never reported. */
        RDMA_CM_EVENT_MULTICAST_ERROR,
        /** An address has changed; never reported. */
        RDMA_CM_EVENT_ADDR_CHANGE,
        /** The queue pair may be used again; never reported. */
        RDMA_CM_EVENT_TIMEWAIT_EXIT
    }
}
