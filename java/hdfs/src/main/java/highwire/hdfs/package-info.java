/**
 * Calls of Hadoop over jvRPC: what its clients and its servers have in common.
 *
 * <p>The class that Hadoop's configuration names is {@code org.apache.hadoop.ipc.HighwireRpcEngine}; it lies in Hadoop's package because what it extends is visible
 * only there.
 */
package highwire.hdfs;
