package partition

import "math/bits"

// outcomes has a bit for each of the last messages that the application had: 1 if it failed.
type outcomes struct{ failures uint32 }

const (
	outcomesKept = 20
	mostlyFails  = 18
)

func (o *outcomes) add(failed bool) {
	o.failures <<= 1
	if failed {
		o.failures |= 1
	}
	o.failures &= 1<<outcomesKept - 1
}

// mostlyFail reports whether nearly everything fails here, so that another consumer may do better.
func (o *outcomes) mostlyFail() bool { return bits.OnesCount32(o.failures) >= mostlyFails }
