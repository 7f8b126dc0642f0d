// Package owners has the tests of messages that change their consumer: Failover, Key_Shared, several consumers,
// unloads, lost connections and topics, and the log of attempts.
package owners
