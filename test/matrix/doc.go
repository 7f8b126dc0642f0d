// Package matrix has every kind of consumer, topic and message beside every way to redeliver, and encrypted messages.
package matrix
