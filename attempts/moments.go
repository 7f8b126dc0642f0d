package attempts

import "time"

// began is a moment of the clock as it was when the process began.
var began = time.Now()

// now is the time by that clock, in milliseconds. It goes on evenly when the machine's is set, which would silence this
// session, or make the others seem lost.
func now() int64 { return milliseconds(time.Now()) }

func milliseconds(t time.Time) int64 { return began.UnixMilli() + t.Sub(began).Milliseconds() }

// moment is a time of now: how long it is until then does not change either when the clock is set.
func moment(at int64) time.Time {
	most := maxDelay.Milliseconds()
	return began.Add(time.Duration(max(-most, min(at-began.UnixMilli(), most))) * time.Millisecond)
}
