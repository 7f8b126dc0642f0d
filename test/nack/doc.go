// Package nack has the tests of redelivery: nacks, ack timeouts and snoozes are never early, exact and counted, one
// message of a batch comes alone, and the memory of waiting messages is bounded.
package nack
