package attempts

import "time"

// began is the time at which the process began, by the clock as it was set then.
var began = time.Now()

// now returns the time in milliseconds, by the clock as it was set when the process began. Setting the machine's clock
// does not change it. If it did, setting the clock could silence this session, or make the others seem lost.
func now() int64 { return milliseconds(time.Now()) }

func milliseconds(t time.Time) int64 { return began.UnixMilli() + t.Sub(began).Milliseconds() }

// moment converts a result of now to a time.Time. Setting the machine's clock leaves the remaining time right.
func moment(at int64) time.Time {
	most := maxDelay.Milliseconds()
	return began.Add(time.Duration(max(-most, min(at-began.UnixMilli(), most))) * time.Millisecond)
}
