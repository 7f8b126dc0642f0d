package history_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/pulsar-redelivery/redelivery/internal/history"
)

var rules = history.Rules{Window: time.Duration(window) * time.Microsecond, Patience: 30 * time.Second}

// check writes events as several files and checks these.
func check(t require.TestingT, rules history.Rules, events []history.Event, files int) (history.Summary,
	[]history.Finding) {
	texts := make([]bytes.Buffer, files)
	for i, e := range events {
		if i > 0 {
			require.GreaterOrEqual(t, e.At, events[i-1].At)
		}
		texts[i%files].WriteString(e.String() + "\n")
	}
	var sources []history.Source
	for i := range texts {
		sources = append(sources, history.Source{Name: string(rune('a' + i)), Reader: &texts[i]})
	}
	summary, findings, err := history.Check(rules, sources...)
	require.NoError(t, err)
	return summary, findings
}

func TestCleanHistoryHasNoFinding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		events, _ := cleanHistory(t)
		summary, findings := check(t, rules, events, rapid.IntRange(1, 3).Draw(t, "files"))
		require.Empty(t, findings)
		assert.Zero(t, summary.Unfinished)
		assert.Equal(t, summary.Messages, summary.Settled)
	})
}

// planting adds one fault to events. It returns the events and the message that has the fault.
type planting func(t *rapid.T, events []history.Event, calmFrom int64) ([]history.Event, string)

var plantings = map[string]struct {
	fault history.Fault
	plant planting
}{
	"lost, never acknowledged":        {history.Lost, plantLost},
	"lost, never delivered":           {history.Lost, plantUndelivered},
	"early":                           {history.Early, plantEarly},
	"early at another consumer":       {history.Early, plantEarlyElsewhere},
	"early retry":                     {history.Early, plantEarlyRetry},
	"retry published twice":           {history.Duplicated, plantTwin},
	"duplicated":                      {history.Duplicated, plantDouble(false)},
	"duplicated though confirmed":     {history.Duplicated, plantDouble(true)},
	"out of order":                    {history.Disorder, plantDisorder},
	"count does not grow":             {history.Miscounted, plantCount(-1)},
	"count grows twice":               {history.Miscounted, plantCount(1)},
	"letter twice":                    {history.Letters, plantLetter(history.DeadLettered)},
	"letter of acknowledged message":  {history.Letters, plantLetter(history.Acked)},
	"stuck, and came":                 {history.Stuck, plantStuck},
	"stuck to the end of the history": {history.Stuck, plantStuckForGood},
}

// TestPlantedFaultIsFound plants each kind of fault into a hundred histories. No other fault may be found in them.
func TestPlantedFaultIsFound(t *testing.T) {
	for name, p := range plantings {
		t.Run(name, func(t *testing.T) {
			planted, found := 0, 0
			rapid.Check(t, func(t *rapid.T) {
				events, calmFrom := cleanHistory(t)
				events, message := p.plant(t, events, calmFrom)
				_, findings := check(t, rules, sorted(events), rapid.IntRange(1, 3).Draw(t, "files"))
				planted++
				require.Len(t, findings, 1)
				f := findings[0]
				require.Equal(t, p.fault, f.Fault, f.Text)
				require.Equal(t, message, f.Message)
				require.NotEmpty(t, f.Lines)
				require.LessOrEqual(t, len(f.Lines), 4)
				for _, l := range f.Lines { // only some lines may be about other messages
					assert.True(t, l.Message == message || l.Kind == history.Drained || p.fault == history.Disorder ||
						l == f.Lines[len(f.Lines)-1], l.Event)
				}
				found++
			})
			t.Logf("%d of %d found", found, planted)
		})
	}
}

// pick draws the index of one of the events that fit.
func pick(t *rapid.T, events []history.Event, fits func(i int) bool) int {
	var all []int
	for i := range events {
		if fits(i) {
			all = append(all, i)
		}
	}
	if len(all) == 0 {
		t.Skip("no place for the fault")
	}
	return rapid.SampledFrom(all).Draw(t, "place")
}

// first returns the index of the message's first event from i on that is of one of the kinds, or -1.
func first(events []history.Event, i int, message string, kinds ...history.Kind) int {
	for ; i < len(events); i++ {
		if events[i].Message == message && (len(kinds) == 0 || slices.Contains(kinds, events[i].Kind)) {
			return i
		}
	}
	return -1
}

func plantLost(t *rapid.T, events []history.Event, _ int64) ([]history.Event, string) {
	i := pick(t, events, func(i int) bool {
		settled := first(events, 0, events[i].Message, history.Acking, history.Acked, history.DeadLettered)
		return events[i].Kind == history.Delivered && (settled < 0 || settled > i)
	})
	m := events[i].Message
	return slices.Concat(events[:i+1],
		slices.DeleteFunc(slices.Clone(events[i+1:]), func(e history.Event) bool { return e.Message == m })), m
}

func plantUndelivered(t *rapid.T, events []history.Event, _ int64) ([]history.Event, string) {
	i := pick(t, events, func(i int) bool { return events[i].Kind == history.Published })
	m := events[i].Message
	return slices.Concat(events[:i+1],
		slices.DeleteFunc(slices.Clone(events[i+1:]), func(e history.Event) bool { return e.Message == m })), m
}

// again returns the index of the message's next event after failure i, if that event is a delivery to the same
// consumer. Otherwise it returns -1.
func again(events []history.Event, i int) int {
	e := events[i]
	if e.Kind != history.Nacked && e.Kind != history.Snoozed {
		return -1
	}
	j := first(events, i+1, e.Message)
	if j < 0 || events[j].Kind != history.Delivered || events[j].Consumer != e.Consumer {
		return -1
	}
	return j
}

func plantEarly(t *rapid.T, events []history.Event, _ int64) ([]history.Event, string) {
	i := pick(t, events, func(i int) bool { return again(events, i) >= 0 && events[i].Kind != history.Reconsumed })
	events[i].Delay = events[again(events, i)].At - events[i].At + rapid.Int64Range(1, 1000*second).Draw(t, "by")
	return events, events[i].Message
}

// plantEarlyRetry makes a retry come early, whatever faults are near and whichever consumer gets it.
func plantEarlyRetry(t *rapid.T, events []history.Event, _ int64) ([]history.Event, string) {
	next := func(i int) int { return first(events, i+1, events[i].Message, history.Delivered) }
	i := pick(t, events, func(i int) bool { return events[i].Kind == history.Reconsumed && next(i) >= 0 })
	events[i].Delay = events[next(i)].At - events[i].At + rapid.Int64Range(1, 1000*second).Draw(t, "by")/1000*1000 +
		1000
	return events, events[i].Message
}

// plantTwin makes a retry come a second time, as another copy.
func plantTwin(t *rapid.T, events []history.Event, calmFrom int64) ([]history.Event, string) {
	i := pick(t, events, func(i int) bool {
		return events[i].At > calmFrom && events[i].Kind == history.Nacked && again(events, i) >= 0
	})
	e, j := events[i], again(events, i)
	retry := func(copied string, at int64) []history.Event {
		return []history.Event{{At: at, Kind: history.Delivered, Message: e.Message, Consumer: e.Consumer, Count: -1,
			Retry: 1, Copy: copied}}
	}
	events[i].Kind = history.Reconsumed
	rest := slices.DeleteFunc(slices.Clone(events[j:]), func(o history.Event) bool { return o.Message == e.Message })
	last := append(retry("twin", events[j].At+1),
		history.Event{At: events[j].At + 2, Kind: history.Acked, Message: e.Message, Consumer: e.Consumer})
	return slices.Concat(events[:j], retry("one", events[j].At), last, rest), e.Message
}

func plantEarlyElsewhere(t *rapid.T, events []history.Event, calmFrom int64) ([]history.Event, string) {
	i := pick(t, events, func(i int) bool { return events[i].At > calmFrom && again(events, i) >= 0 })
	j := again(events, i)
	events[i].Delay = events[j].At - events[i].At + rapid.Int64Range(1, 1000*second).Draw(t, "by")
	m := events[i].Message
	events[j].Consumer = "other"
	ack := history.Event{At: events[j].At + 1, Kind: history.Acked, Message: m, Consumer: "other", Confirmed: true}
	rest := slices.DeleteFunc(slices.Clone(events[j+1:]), func(e history.Event) bool { return e.Message == m })
	return slices.Concat(events[:j+1], []history.Event{ack}, rest), m
}

func plantDouble(confirmed bool) planting {
	return func(t *rapid.T, events []history.Event, calmFrom int64) ([]history.Event, string) {
		i := pick(t, events, func(i int) bool { return events[i].At > calmFrom && events[i].Kind == history.Acked })
		e := events[i]
		events[i].Confirmed = confirmed
		at := e.At + rapid.Int64Range(1, window).Draw(t, "after")
		for j := range events { // the broker is not drained while it has the message
			if events[j].Kind == history.Drained {
				events[j].At += 2 * window
			}
		}
		return append(events, history.Event{At: at, Kind: history.Delivered, Message: e.Message, Consumer: e.Consumer,
				Count: -1},
				history.Event{At: at + 1, Kind: history.Acked, Message: e.Message, Consumer: e.Consumer,
					Confirmed: true}),
			e.Message
	}
}

// plantDisorder swaps the published events of two messages of a key.
func plantDisorder(t *rapid.T, events []history.Event, _ int64) ([]history.Event, string) {
	next := func(i int) int {
		for j := i + 1; j < len(events) && events[j].Kind == history.Published; j++ {
			if events[j].Key == events[i].Key {
				return j
			}
		}
		return -1
	}
	i := pick(t, events, func(i int) bool { return events[i].Kind == history.Published && next(i) >= 0 })
	j := next(i)
	events[i].Message, events[j].Message = events[j].Message, events[i].Message
	return events, events[i].Message
}

// plantCount changes the count of a last delivery after a nack.
func plantCount(by int) planting {
	return func(t *rapid.T, events []history.Event, calmFrom int64) ([]history.Event, string) {
		i := pick(t, events, func(i int) bool {
			j := -1
			if events[i].At > calmFrom && events[i].Kind == history.Nacked {
				j = again(events, i)
			}
			return j >= 0 && first(events, j+1, events[i].Message, history.Delivered) < 0
		})
		events[again(events, i)].Count += by
		return events, events[i].Message
	}
}

func plantLetter(of history.Kind) planting {
	return func(t *rapid.T, events []history.Event, calmFrom int64) ([]history.Event, string) {
		i := pick(t, events, func(i int) bool { return events[i].At > calmFrom && events[i].Kind == of })
		e := events[i]
		return append(events, history.Event{At: e.At + rapid.Int64Range(1, window).Draw(t, "after"),
			Kind: history.DeadLettered, Message: e.Message}), e.Message
	}
}

// plantStuck delays a message of the part without faults, and the end of the history, by more than Patience.
func plantStuck(t *rapid.T, events []history.Event, calmFrom int64) ([]history.Event, string) {
	i := pick(t, events, func(i int) bool {
		return events[i].At > calmFrom && again(events, i) >= 0 &&
			again(events, i) == i+1
	})
	by := rules.Patience.Microseconds() + rapid.Int64Range(1, 1000*second).Draw(t, "by")
	m := events[i].Message
	for j := i + 1; j < len(events); j++ {
		if events[j].Message == m || events[j].Kind == history.Drained {
			events[j].At += by + events[i].Delay
		}
	}
	return events, m
}

func plantStuckForGood(t *rapid.T, events []history.Event, calmFrom int64) ([]history.Event, string) {
	i := pick(t, events, func(i int) bool { return events[i].At > calmFrom && again(events, i) >= 0 })
	m, end := events[i].Message, events[len(events)-1].At
	rest := slices.DeleteFunc(slices.Clone(events[i+1:]),
		func(e history.Event) bool { return e.Message == m || e.Kind == history.Drained })
	last := history.Event{At: end + rules.Patience.Microseconds() + second, Kind: history.Published, Message: "last"}
	ack := history.Event{At: last.At, Kind: history.Acked, Message: "last", Consumer: "c0", Confirmed: true}
	return append(slices.Concat(events[:i+1], rest), last, ack), m
}
