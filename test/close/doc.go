// Package close has the tests of Close, Unsubscribe and GiveBack: they return, lose nothing and leave no goroutine.
package close
