// Package ack has the tests of acknowledgements: they are final, and a batch ends acknowledged; also of cumulative and
// transactional acknowledgements, and of foreign ids.
package ack
