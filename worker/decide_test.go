package worker

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/internal/publishing"
)

var errNoLuck = errors.New("no luck")

// Each row has a kind of error and the outcome that it asks for.
func TestReadTurnsEachErrorIntoItsOutcome(t *testing.T) {
	marked := func(err error) error { return fmt.Errorf("order 7: %w", err) }
	for name, c := range map[string]struct {
		err  error
		want outcome
	}{
		"nil":                       {nil, outcome{verb: ack}},
		"an error":                  {errNoLuck, outcome{verb: nack, err: errNoLuck}},
		"a panic":                   {&PanicError{Value: errNoLuck}, outcome{verb: nack, err: &PanicError{Value: errNoLuck}}},
		"Permanent":                 {Permanent(errNoLuck), outcome{verb: dead, err: errNoLuck, because: publishing.Permanent}},
		"Permanent, wrapped":        {marked(Permanent(errNoLuck)), outcome{verb: dead, err: marked(Permanent(errNoLuck)), because: publishing.Permanent}},
		"Permanent of a RetryAfter": {Permanent(RetryAfter(1, errNoLuck)), outcome{verb: dead, err: RetryAfter(1, errNoLuck), because: publishing.Permanent}},
		"a crash":                   {Permanent(&CrashError{3}), outcome{verb: dead, err: &CrashError{3}, because: publishing.Crashed}},
		"RetryAfter":                {RetryAfter(time.Hour, errNoLuck), outcome{verb: again, delay: time.Hour, err: errNoLuck}},
		"RetryAfter, negative":      {RetryAfter(-1, errNoLuck), outcome{verb: again, err: errNoLuck}},
		"Snooze":                    {Snooze(time.Hour), outcome{verb: snooze, delay: time.Hour, err: Snooze(time.Hour)}},
		"Snooze in a Permanent":     {Permanent(Snooze(time.Hour)), outcome{verb: snooze, delay: time.Hour, err: Permanent(Snooze(time.Hour))}},
		"PauseFor":                  {PauseFor(time.Hour, errNoLuck), outcome{verb: snooze, delay: time.Hour, err: PauseFor(time.Hour, errNoLuck), pause: pauseIn(PauseFor(time.Hour, errNoLuck))}},
		"a BatchError is any error": {BatchError{0: Permanent(errNoLuck)}, outcome{verb: nack, err: BatchError{0: Permanent(errNoLuck)}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, read(c.err)) })
	}
}

// Each row has the outcome that the handler's error asks for, the facts of the attempt, and the outcome that results.
func TestDecideMakesEachOutcomeFinal(t *testing.T) {
	const week = 7 * 24 * time.Hour
	old := fmt.Errorf("older than %v: %w", week, errNoLuck)
	fails := outcome{verb: nack, err: errNoLuck}
	later := outcome{verb: again, delay: time.Minute, err: errNoLuck}
	held := func(o outcome) outcome { o.verb = hold; return o }
	left := func(o outcome) outcome { o.verb = leave; return o }
	letter := outcome{verb: dead, or: nack, err: errNoLuck, because: publishing.MaxDeliveries}
	all := attempt{local: true, stays: true, drained: true, old: week, last: true}
	for name, c := range map[string]struct {
		of   outcome
		a    attempt
		want outcome
	}{
		"success, whatever is known":           {outcome{verb: ack}, all, outcome{verb: ack}},
		"permanent, whatever is known":         {outcome{verb: dead, because: publishing.Permanent}, all, outcome{verb: dead, because: publishing.Permanent}},
		"held already":                         {held(fails), all, held(fails)},
		"a failure":                            {fails, attempt{}, fails},
		"a failure with a local retry":         {fails, attempt{local: true}, held(fails)},
		"RetryAfter has no local retry":        {later, attempt{local: true}, later},
		"in an outage":                         {fails, attempt{stays: true, last: true, old: week}, held(fails)},
		"RetryAfter in an outage":              {later, attempt{stays: true}, held(later)},
		"RetryAfter, the last delivery":        {later, attempt{last: true}, outcome{verb: dead, or: nack, delay: time.Minute, err: errNoLuck, because: publishing.MaxDeliveries}},
		"after the drain":                      {fails, attempt{drained: true, old: week, last: true}, left(fails)},
		"the last delivery":                    {fails, attempt{last: true}, letter},
		"too old":                              {fails, attempt{old: week}, outcome{verb: dead, or: nack, err: old, because: expired}},
		"too old, RetryAfter":                  {later, attempt{old: week}, outcome{verb: dead, or: again, delay: time.Minute, err: old, because: expired}},
		"too old, the last delivery":           {fails, attempt{old: week, last: true}, outcome{verb: dead, or: nack, err: old, because: expired}},
		"a snooze, too old, the last delivery": {outcome{verb: snooze}, attempt{stays: true, old: week, last: true}, outcome{verb: snooze}},
		"a snooze after the drain":             {outcome{verb: snooze}, attempt{drained: true}, outcome{verb: leave}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.of.decide(c.a)) })
	}
}
