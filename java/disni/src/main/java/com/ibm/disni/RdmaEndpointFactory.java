package com.ibm.disni;

import com.ibm.disni.verbs.RdmaCmId;
import java.io.IOException;

/**
 * Makes a program's own endpoints.
 *
 * @param <C> their class
 */
public interface RdmaEndpointFactory<C extends RdmaEndpoint> {
    /**
     * Makes one.
     *
     * @param id its connection
     * @param serverSide whether a server accepts it
     * @return the endpoint
     * @throws IOException why not
     */
    C createEndpoint(RdmaCmId id, boolean serverSide) throws IOException;
}
