// Package ack has the tests of single, cumulative and transactional acknowledgements, of batches, and of foreign ids:
// an acknowledgement is final, and in the end the whole batch is acknowledged.
package ack
