package deadletter

import (
	"time"

	"github.com/pulsar-redelivery/redelivery/internal/causes"
)

// Hurry makes the end of the letters be believed sooner.
func (t *Topic) Hurry(d time.Duration) { t.quiet = d }

// Mask is how the reasons of groups are made alike.
var Mask = causes.Mask
