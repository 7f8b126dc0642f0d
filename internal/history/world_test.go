package history_test

import (
	"cmp"
	"fmt"
	"slices"

	"pgregory.net/rapid"

	"github.com/pulsar-redelivery/redelivery/internal/history"
)

const (
	ms     = int64(1000)
	second = 1000 * ms
)

// window is Rules.Window in the tests. Their histories end with a calm that is several windows long.
const window = 2 * second

// world makes the history of clients that keep all promises: consumers fail, lose connections and are killed, and
// others take over.
type world struct {
	t      *rapid.T
	now    int64
	events []history.Event
	names  []string // of the consumers that run
	born   int      // consumers that started
	faults map[string][]int64
	next   int // number of the last message
}

func newWorld(t *rapid.T) *world {
	w := &world{t: t, now: 1_700_000_000 * second, faults: map[string][]int64{}}
	for range rapid.IntRange(1, 3).Draw(t, "consumers") {
		w.start()
	}
	return w
}

func (w *world) start() {
	w.born++
	w.names = append(w.names, fmt.Sprint("c", w.born))
	w.add(history.Event{Kind: history.Started, Consumer: w.names[len(w.names)-1]})
}

func (w *world) add(e history.Event) {
	w.now += int64(rapid.IntRange(1000, 20_000).Draw(w.t, "gap"))
	e.At = w.now
	w.events = append(w.events, e)
}

// life publishes messages of a key, and handles each to its end before the next one.
func (w *world) life(calm bool) {
	key := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(w.t, "key")
	var names []string
	for range rapid.IntRange(2, 4).Draw(w.t, "messages") {
		w.next++
		names = append(names, fmt.Sprint("m", w.next))
		w.add(history.Event{Kind: history.Published, Message: names[len(names)-1], Key: key})
	}
	for _, name := range names {
		w.handle(name, calm)
	}
}

func (w *world) handle(name string, calm bool) {
	on := w.names[rapid.IntRange(0, len(w.names)-1).Draw(w.t, "consumer")]
	failures, count := rapid.IntRange(0, 3).Draw(w.t, "failures"), 0
	if calm {
		failures = max(failures, 2)
	}
	retry, copied := 0, name
	deliver := func() {
		w.add(history.Event{Kind: history.Delivered, Message: name, Consumer: on, Count: count, Retry: retry,
			Copy: copied})
	}
	deliver()
	for range failures {
		delay := int64(rapid.IntRange(0, 500).Draw(w.t, "delay")) * ms
		kind := rapid.SampledFrom([]history.Kind{history.Nacked, history.Nacked, history.Snoozed,
			history.Reconsumed}).Draw(w.t, "how")
		if calm {
			kind = history.Nacked
		}
		w.add(history.Event{Kind: kind, Message: name, Consumer: on, Delay: delay, Copy: copied})
		if kind == history.Reconsumed {
			retry++
			copied = fmt.Sprint(name, "/", retry)
		}
		due := w.now + delay
		switch {
		case !calm && rapid.IntRange(0, 3).Draw(w.t, "trouble") == 0:
			on = w.trouble(on, history.Disconnected, history.Killed, history.Closed)
			if kind == history.Reconsumed || rapid.Bool().Draw(w.t, "knows") && slices.Contains(w.names, on) {
				// otherwise the new consumer gets the message at once
				w.now = max(w.now, due)
			}
			count = 0
		default:
			w.now = max(w.now, due)
			switch kind {
			case history.Nacked:
				count++
			case history.Reconsumed:
				count = 0
			}
		}
		deliver()
	}
	w.end(name, on, calm)
}

// trouble ends a consumer or its connection, and returns the consumer that takes over.
func (w *world) trouble(on string, kinds ...history.Kind) string {
	i := slices.Index(w.names, on)
	kind := rapid.SampledFrom(kinds).Draw(w.t, "end")
	w.add(history.Event{Kind: kind, Consumer: on})
	if kind != history.Disconnected {
		w.names = slices.Delete(w.names, i, i+1)
	}
	w.start()
	return w.names[len(w.names)-1]
}

// end settles a message in one of the possible ways, sometimes with a double that a lost connection excuses.
func (w *world) end(name, on string, calm bool) {
	way := rapid.IntRange(0, 4).Draw(w.t, "end")
	w.add(history.Event{Kind: history.Acking, Message: name, Consumer: on})
	switch {
	case way == 0:
		w.events = w.events[:len(w.events)-1]
		w.add(history.Event{Kind: history.Nacked, Message: name, Consumer: on, Delay: 0})
		w.add(history.Event{Kind: history.DeadLettered, Message: name, Consumer: on})
	case way == 1 && !calm:
		w.add(history.Event{Kind: history.Acked, Message: name, Consumer: on})
		other := w.trouble(on, history.Disconnected, history.Killed)
		w.add(history.Event{Kind: history.Delivered, Message: name, Consumer: other, Count: 1})
		w.add(history.Event{Kind: history.Acked, Message: name, Consumer: other, Confirmed: true})
	case way == 2 && !calm: // the process is killed before it notes that Ack has returned
		w.add(history.Event{Kind: history.Killed, Consumer: on})
		w.names = slices.DeleteFunc(w.names, func(n string) bool { return n == on })
		w.start()
	default:
		w.add(history.Event{Kind: history.Acked, Message: name, Consumer: on,
			Confirmed: rapid.Bool().Draw(w.t, "confirmed")})
	}
}

// cleanHistory returns a history without findings. It has some keys with faults, then a pause longer than the window,
// and then some keys without faults.
func cleanHistory(t *rapid.T) (events []history.Event, calmFrom int64) {
	w := newWorld(t)
	for range rapid.IntRange(1, 6).Draw(t, "troubled lives") {
		w.life(false)
	}
	w.now += 2 * window
	calmFrom = w.now
	for range rapid.IntRange(3, 5).Draw(t, "calm lives") {
		w.life(true)
	}
	w.add(history.Event{Kind: history.Drained})
	return w.events, calmFrom
}

// sorted sorts events by time. Events of the same time keep their order.
func sorted(events []history.Event) []history.Event {
	slices.SortStableFunc(events, func(a, b history.Event) int { return cmp.Compare(a.At, b.At) })
	return events
}
