package deadletter

import (
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/causes"
)

// Hurry sets the time without a letter after which a call takes the letters for complete.
func (t *Topic) Hurry(d time.Duration) { t.quiet = d }

// Mask removes the differences between the reasons of one group.
var Mask = causes.Mask
