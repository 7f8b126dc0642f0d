// Package subscribe has the tests of Subscribe, SubscribeWith and Wrap, of options and configuration, and of the
// observers, interceptors, policies and loggers that they take.
package subscribe
