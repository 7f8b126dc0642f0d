package partition

import "github.com/pulsar-redelivery/redelivery/internal/clock"

// timer is an alarm of a message, of a request, or of a partition's settled ids.
type timer = clock.Timer[timed]

type timed struct {
	message *message
	request *request
	settled *Partition
}
