// Package durations finds durations without a unit, such as 10 for 10*time.Second, and formats durations in short.
package durations

import (
	"fmt"
	"strings"
	"time"
)

// Wanted returns the values that an option allows in place of d, as text for an error, or "" if d is allowed. zero says
// whether 0 is allowed. A duration below a millisecond is not allowed: the broker counts milliseconds, so the unit of d
// was probably forgotten.
func Wanted(d time.Duration, zero bool) string {
	switch {
	case d > 0 && d < time.Millisecond:
		return fmt.Sprintf("1ms or more (%v: is the unit missing?)", d)
	case d > 0 || d == 0 && zero:
		return ""
	case zero:
		return "0 or more"
	}
	return "more than 0"
}

// Short returns d without minutes and seconds that are 0 at its end: 2h, 1m30s.
func Short(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
