package deadletter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

func TestGroupsCountsLettersByTheirCause(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	tp := b.topics(2)
	l := tp.letters(30)
	for i, m := range l {
		m.Properties["DEAD_LETTER_TIME"] = fmt.Sprint(1_700_000_000_000 + i)
		if i%3 == 0 {
			m.Properties["EXCEPTION_TYPE"] = "*json.SyntaxError"
		}
	}
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, l...)
	d := b.open(tp.dlq)
	groups, err := d.Groups(bg, deadletter.Filter{})
	require.NoError(t, err)
	require.Len(t, groups, 2)
	g := groups[1]
	assert.Equal(t, "*json.SyntaxError", g.Type)
	assert.Equal(t, "order <n>: connection refused", g.Reason)
	assert.Equal(t, tp.origin, g.Origin)
	assert.Equal(t, sub, g.Subscription)
	assert.Equal(t, 10, g.Count)
	assert.Equal(t, int64(1_700_000_000_000), g.First.UnixMilli())
	assert.Equal(t, int64(1_700_000_000_027), g.Last.UnixMilli())
	assert.NotEmpty(t, g.Example)
	assert.Equal(t, -1, b.backlog(tp.dlq, own), "Groups created a subscription")

	report, err := d.Replay(bg, deadletter.ReplayOptions{Filter: deadletter.Filter{Groups: []string{g.ID}}})
	require.NoError(t, err)
	require.Equal(t, 10, report.Done)
	few, err := d.Groups(bg, deadletter.Filter{After: time.UnixMilli(1_700_000_000_028)})
	require.NoError(t, err)
	require.Len(t, few, 1)
	require.Equal(t, 2, few[0].Count)
}

func TestReasonsThatAllDifferTakeLimitedMemory(t *testing.T) {
	t.Parallel()
	b := newInProcess(t)
	tp := b.topics(0)
	l := tp.letters(1100)
	for i, m := range l {
		m.Properties["EXCEPTION_MESSAGE"] = strings.Repeat("x", i)
	}
	b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, 1, l...)
	groups, err := b.open(tp.dlq).Groups(bg, deadletter.Filter{})
	require.NoError(t, err)
	require.Len(t, groups, 1001)
	require.Empty(t, groups[0].ID)
	sum := 0
	for _, g := range groups {
		sum += g.Count
	}
	require.Equal(t, 1100, sum)
}

func TestMaskRemovesNumbersAndIDs(t *testing.T) {
	for reason, want := range map[string]string{
		"order 17: timed out after 2.5s":                     "order <n>: timed out after <n>s",
		"no user 123e4567-e89b-12d3-a456-426614174000 in db": "no user <id> in db",
		"trace 4bf92f3577b34da6a3ce929d0e0e4736 failed":      "trace <id> failed",
		"at 0xdeadbeef and 0x1F":                             "at <id> and <id>",
		"dial tcp 10.0.0.1:5432: connect: refused":           "dial tcp <n>: connect: refused",
		"deadbeef cafe decade":                               "deadbeef cafe decade",
		"":                                                   "",
		"Ünïcode № 5":                                        "Ünïcode № <n>",
	} {
		assert.Equal(t, want, deadletter.Mask(reason))
	}
}

func TestFilterMatchesEveryFieldThatIsSet(t *testing.T) {
	at := time.UnixMilli(1000)
	l := &deadletter.Letter{Reason: "x", Died: at, Properties: map[string]string{"a": "1", "b": ""}}
	for name, c := range map[string]struct {
		f    deadletter.Filter
		want bool
	}{
		"zero":             {deadletter.Filter{}, true},
		"at":               {deadletter.Filter{After: at}, true},
		"after":            {deadletter.Filter{After: at.Add(1)}, false},
		"before":           {deadletter.Filter{Before: at.Add(1)}, true},
		"not before":       {deadletter.Filter{Before: at}, false},
		"property":         {deadletter.Filter{Properties: map[string]string{"a": "1"}}, true},
		"other value":      {deadletter.Filter{Properties: map[string]string{"a": "2"}}, false},
		"empty":            {deadletter.Filter{Properties: map[string]string{"b": ""}}, true},
		"missing":          {deadletter.Filter{Properties: map[string]string{"c": ""}}, false},
		"one of two":       {deadletter.Filter{Properties: map[string]string{"a": "1", "b": "1"}}, false},
		"group":            {deadletter.Filter{Groups: []string{"z", l.Group()}}, true},
		"other group":      {deadletter.Filter{Groups: []string{"z"}}, false},
		"group, too early": {deadletter.Filter{Groups: []string{l.Group()}, Before: at}, false},
	} {
		assert.Equal(t, c.want, c.f.Match(l), name)
	}
}
