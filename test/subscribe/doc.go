// Package subscribe has the tests of Subscribe, SubscribeWith and Wrap, of options and configuration, and of observers,
// interceptors, policies and loggers.
package subscribe
