package exploretest

import (
	"flag"

	"github.com/pulsar-redelivery/redelivery/internal/race"
)

// Deeper is the flag -deeper. Each further step makes the exploration take three times as long.
var Deeper = flag.Int("deeper", -1, "steps that an exploration plays beyond a world's depth")

// Depth returns how many steps to play in a world: its depth plus the value of -deeper, and one less with the race
// detector.
func Depth(depth int) int {
	depth += *Deeper
	if race.Enabled {
		depth--
	}
	return depth
}
