// Package close has the tests of Close, Unsubscribe and GiveBack: they return, lose no message and leave no goroutine.
package close
