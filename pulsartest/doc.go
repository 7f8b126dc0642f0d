// Package pulsartest is an in-process broker for tests.
package pulsartest
