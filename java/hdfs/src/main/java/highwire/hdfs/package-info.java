/**
 * Calls of Hadoop over jvRPC: the parts that its clients and its servers share.
 *
 * <p>The class that Hadoop's configuration names is {@code org.apache.hadoop.ipc.HighwireRpcEngine}; it lies
 * in Hadoop's package because its superclass is visible only there.
 */
package highwire.hdfs;
