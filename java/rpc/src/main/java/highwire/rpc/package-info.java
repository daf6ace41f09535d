/**
 * jvRPC: a call is one WRITE into the server's memory, gathered from arguments and header, and its answer one WRITE back.
 *
 * <p>Start at {@link highwire.rpc.RpcServer#open} and {@link highwire.rpc.RpcClient#connect}.
 */
package highwire.rpc;
