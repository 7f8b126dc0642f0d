package deadletter

import (
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/causes"
)

// Hurry shortens the silence after which the letters seem to be at their end.
func (t *Topic) Hurry(d time.Duration) { t.quiet = d }

// Mask removes the differences between the reasons of one group.
var Mask = causes.Mask
