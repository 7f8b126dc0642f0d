// Package testkit is shared by the tests of whole Consumers. It has a Broker, in process or the one of PULSAR_URL and
// PULSAR_ADMIN_URL; a Fake and a StandIn, which are inner consumers without a broker; and functions that receive with a
// time limit.
//
// The tests themselves are in the folders beside it, by promise.
package testkit
