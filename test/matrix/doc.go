// Package matrix has the tests of every kind of consumer, topic and message with every way to redeliver, and of
// encrypted messages.
package matrix
