package exploretest

import (
	"flag"

	"github.com/pulsar-redelivery/redelivery/internal/race"
)

// Deeper is the flag -deeper. Each further step makes the exploration take three times as long.
var Deeper = flag.Int("deeper", -1, "steps that an exploration plays beyond a world's depth")

// Depth returns how many steps to play in a world of the given depth: with the race detector one less.
func Depth(depth int) int {
	depth += *Deeper
	if race.Enabled {
		depth--
	}
	return depth
}
