// Package owners has the tests of messages that change hands: Failover and Key_Shared, several consumers, unloads, lost
// connections and topics, and the log of attempts, which outlives the process.
package owners
