/** The verbs and the connection manager as DiSNI names them, over {@code highwire.verbs}. */
package com.ibm.disni.verbs;
