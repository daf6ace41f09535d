/**
 * The verbs over queues that the engine and this program both have mapped.
 *
 * <p>Start at {@link highwire.verbs.Context#open()}. Objects are closed in the reverse order of their making; an object that another one
 * still needs refuses to close. Control calls throw a {@link highwire.verbs.VerbsException} that says why; on the data path nothing is
 * allocated.
 */
package highwire.verbs;
