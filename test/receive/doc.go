// Package receive has the tests of Receive, Chan, Pause and Seek: order, turns, contexts, zero-queue consumers and the
// cursor that an operator moves.
package receive
