package com.ibm.disni;

import com.ibm.disni.verbs.IbvWC;
import com.ibm.disni.verbs.RdmaCmId;
import java.io.IOException;

/** An endpoint that is called when something has completed. */
public abstract class RdmaActiveEndpoint extends RdmaEndpoint {
    /**
     * For subclasses and their factories.
     *
     * @param group where it belongs
     * @param idPriv its connection
     * @param serverSide whether a server accepts it
     * @throws IOException never
     */
    public RdmaActiveEndpoint(RdmaActiveEndpointGroup<? extends RdmaActiveEndpoint> group, RdmaCmId idPriv, boolean serverSide)
            throws IOException {
        super(group, idPriv, serverSide);
    }

    /**
     * Called by the group's thread at each completion, which belongs to the endpoint from then on.
     *
     * @param completion what has completed
     * @throws IOException is logged
     */
    public abstract void dispatchCqEvent(IbvWC completion) throws IOException;

    @Override
    public void close() throws IOException, InterruptedException {
        super.close();
    }
}
