package history_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/pulsar-redelivery/redelivery/internal/history"
)

// texts checks events that happen at 1 s, 2 s and so on, and returns the texts of the findings.
func texts(rules history.Rules, t *testing.T, events ...history.Event) (found []string) {
	t.Helper()
	for i := range events {
		events[i].At = int64(i+1) * second
		if events[i].Message == "" && events[i].Kind != history.Drained && events[i].Kind != history.Killed &&
			events[i].Kind != history.Disconnected {
			events[i].Message = "m"
		}
	}
	_, findings := check(t, rules, events, 1)
	for _, f := range findings {
		found = append(found, string(f.Fault)+": "+f.Text)
	}
	return found
}

func delivered(to string, count int) history.Event {
	return history.Event{Kind: history.Delivered, Consumer: to, Count: count}
}

func nacked(by string, delay time.Duration) history.Event {
	return history.Event{Kind: history.Nacked, Consumer: by, Delay: delay.Microseconds()}
}

func killed(consumer string) history.Event {
	return history.Event{Kind: history.Killed, Consumer: consumer}
}

func TestDurableDelayHoldsIfTheCountIncludesTheFailure(t *testing.T) {
	story := func(count int) []history.Event {
		return []history.Event{delivered("a", 0), nacked("a", time.Minute), killed("a"), delivered("b", count)}
	}
	assert.Empty(t, texts(history.Rules{}, t, story(1)...))
	assert.Empty(t, texts(history.Rules{Durable: true}, t, story(0)...),
		"a failure that the killed process may not have noted in time was not excused")
	assert.Equal(t, []string{"early: came 58s before it was due"}, texts(history.Rules{Durable: true}, t, story(1)...))
}

func TestDurableCountMustNotFall(t *testing.T) {
	events := []history.Event{delivered("a", 0), nacked("a", 0), delivered("a", 1), killed("a"), delivered("b", 0)}
	assert.Empty(t, texts(history.Rules{}, t, events...))
	assert.Equal(t, []string{"miscounted: came with redelivery count 0, want at least 1"},
		texts(history.Rules{Durable: true}, t, events...))
}

func TestDeliveryBeyondMaxDeliveriesIsFound(t *testing.T) {
	events := []history.Event{delivered("a", 0), nacked("a", 0), delivered("a", 1)}
	assert.Empty(t, texts(history.Rules{MaxDeliveries: 2}, t, events...))
	assert.Equal(t, []string{"miscounted: came with redelivery count 1, want at most 0, for 1 deliveries"},
		texts(history.Rules{MaxDeliveries: 1}, t, events...))
}

func TestLostConnectionDoesNotExcuseAnEarlyDelivery(t *testing.T) {
	lost := history.Event{Kind: history.Disconnected}
	assert.Equal(t, []string{"early: came 58s before it was due"},
		texts(history.Rules{}, t, delivered("a", 0), nacked("a", time.Minute), lost, delivered("a", 1)))
	assert.Empty(t, texts(history.Rules{}, t, delivered("a", 0), nacked("a", time.Minute), lost, delivered("b", 1)),
		"an early delivery to another consumer, which cannot know of the nack, was not excused")
}

func TestLostConnectionExcusesADoubleUnlessTheAckWasConfirmed(t *testing.T) {
	acked := func(confirmed bool) []history.Event {
		return []history.Event{delivered("a", 0), {Kind: history.Acked, Consumer: "a", Confirmed: confirmed},
			{Kind: history.Disconnected, Consumer: "a"}, delivered("b", 1), {Kind: history.Acked, Consumer: "b"}}
	}
	assert.Empty(t, texts(history.Rules{}, t, acked(false)...))
	assert.Equal(t, []string{"duplicated: was delivered after it was acknowledged, and the broker confirmed that"},
		texts(history.Rules{}, t, acked(true)...))
}

func TestMessageOfARefusedPublicationIsNotLost(t *testing.T) {
	assert.Empty(t, texts(history.Rules{}, t, history.Event{Kind: history.Published},
		history.Event{Kind: history.Refused}, history.Event{Kind: history.Drained}))
	assert.Equal(t, []string{"lost: was never acknowledged, and the broker has nothing left"}, texts(history.Rules{}, t,
		history.Event{Kind: history.Published}, delivered("a", 0),
		history.Event{Kind: history.Reconsumed, Consumer: "a"},
		history.Event{Kind: history.Refused, Consumer: "a"}, nacked("a", 0), history.Event{Kind: history.Drained}))
}

// The broker sends the message only after a second consumer has taken the place of the first.
func TestMessageIsStuckThoughALaterConsumerGetsIt(t *testing.T) {
	events := []history.Event{{At: 0, Kind: history.Published, Message: "m"},
		{At: 0, Kind: history.Delivered, Message: "m", Consumer: "a"},
		{At: 0, Kind: history.Nacked, Message: "m", Consumer: "a", Delay: second},
		{At: 100 * second, Kind: history.Closed, Consumer: "a"},
		{At: 100 * second, Kind: history.Started, Consumer: "b"},
		{At: 101 * second, Kind: history.Delivered, Message: "m", Consumer: "b", Count: 1}}
	for patience, want := range map[time.Duration]int{99 * time.Second: 0, 98 * time.Second: 1} {
		_, findings := check(t, history.Rules{Patience: patience}, events, 1)
		assert.Len(t, findings, want, patience)
	}
}

func TestAcknowledgedMessageIsNeitherLostNorStuckAfterADouble(t *testing.T) {
	assert.Empty(t, texts(history.Rules{Patience: 1}, t, delivered("a", 0),
		history.Event{Kind: history.Acked, Consumer: "a"}, killed("a"),
		delivered("b", 1), nacked("b", 0), history.Event{Kind: history.Drained}))
}

func TestAckOnItsWayExcusesADoubleAtAnotherConsumer(t *testing.T) {
	for to, want := range map[string]int{"a": 1, "b": 0} {
		_, findings := check(t, history.Rules{},
			[]history.Event{{At: 1, Kind: history.Delivered, Message: "m", Consumer: "a"},
				{At: 1, Kind: history.Acked, Message: "m", Consumer: "a"},
				{At: second, Kind: history.Delivered, Message: "m", Consumer: to, Count: -1}}, 1)
		assert.Len(t, findings, want, to)
	}
}

func TestCountMayRestartAfterDouble(t *testing.T) {
	assert.Empty(t, texts(history.Rules{Durable: true}, t, delivered("a", 0), nacked("a", 0), delivered("a", 1),
		history.Event{Kind: history.Acked, Consumer: "a"},
		history.Event{Kind: history.Disconnected, Consumer: "a"}, delivered("a", 0)))
}
