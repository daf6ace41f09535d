/** Endpoints and their groups: DiSNI's shapes over queue pairs of Highwire. What is here and what is not is said in {@code docs/java-services.md}. */
package com.ibm.disni;
