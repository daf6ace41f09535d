/**
 * Messages of ZooKeeper over queue pairs: what its client and its server have in common.
 *
 * <p>The two classes that ZooKeeper's properties name are {@code org.apache.zookeeper.ClientCnxnSocketHighwire} and
 * {@code org.apache.zookeeper.server.HighwireServerCnxnFactory}; they lie in ZooKeeper's packages because what they extend is visible only there.
 */
package highwire.zookeeper;
