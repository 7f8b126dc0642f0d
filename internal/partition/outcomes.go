package partition

import "math/bits"

// outcomes has a bit for each of the last messages that the application had: 1 if the application failed on it.
type outcomes struct{ failures uint32 }

const (
	outcomesKept = 20
	mostlyFails  = 18 // so many failures among outcomesKept, or more, are nearly all
)

func (o *outcomes) add(failed bool) {
	o.failures <<= 1
	if failed {
		o.failures |= 1
	}
	o.failures &= 1<<outcomesKept - 1
}

// mostlyFail reports whether the application failed on nearly all of the last messages. Another consumer may then do
// better.
func (o *outcomes) mostlyFail() bool { return bits.OnesCount32(o.failures) >= mostlyFails }
