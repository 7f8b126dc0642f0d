// Package ack has the tests of acknowledgements: they are final, a batch ends acknowledged, cumulative and
// transactional acknowledgements, foreign IDs.
package ack
