// Package retry has the tests of the retry topic and of dead letters, also together with the Java client.
package retry
