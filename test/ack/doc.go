// Package ack has the tests of acknowledgements: they are final, batches end acknowledged, cumulative and transactional
// ones, ids and message ids of others.
package ack
