// Package receive has the tests of Receive, Chan, Pause and Seek: order, fairness, contexts, zero-queue consumers, and
// resets of the cursor by an operator.
package receive
