// Package nack has the tests of nacks, ack timeouts and snoozes: never early, exact, counted, one message of a batch
// alone, and bounded memory.
package nack
