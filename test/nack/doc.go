// Package nack has the tests of nacks, ack timeouts and snoozes: redeliveries are exact, counted and never early, a
// message of a batch comes back alone, and memory is bounded.
package nack
