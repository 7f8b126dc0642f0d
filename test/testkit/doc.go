// Package testkit is shared by the tests of whole Consumers. It has a Broker, in process or at PULSAR_URL and
// PULSAR_ADMIN_URL; a Fake and a StandIn, which are inner consumers without a broker; and functions that receive with a
// time limit.
//
// The tests themselves are in the folders beside this one; docs/CONTRIBUTING.md lists which folder tests which promise.
package testkit
