// Package retry has the tests of the retry topic and of dead letters, those of the Java client included.
package retry
