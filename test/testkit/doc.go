// Package testkit has what the tests of whole Consumers share: a Broker, in process or the one of PULSAR_URL and
// PULSAR_ADMIN_URL; a Fake and a StandIn, which are inner consumers without a broker; and functions that receive with a
// time limit.
//
// The tests themselves are in the folders beside it, by promise.
package testkit
