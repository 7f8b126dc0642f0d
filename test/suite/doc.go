// Package suite has the tests of whole Consumers: on a fake inner consumer, on the broker in process, and with
// PULSAR_URL and PULSAR_ADMIN_URL on that one.
package suite
