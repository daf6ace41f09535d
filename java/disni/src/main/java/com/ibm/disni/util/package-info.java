/** Memory that can be registered. */
package com.ibm.disni.util;
