/**
 * Starts an engine where none serves. {@code highwire.verbs} does so when a program opens a context; programs need not call anything here.
 */
package highwire.engine;
