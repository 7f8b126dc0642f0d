package worker

import (
	"slices"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// keyedMessage is a message with what keys use: a topic, a key and an id.
type keyedMessage struct {
	pulsar.Message
	pulsar.MessageID
	topic, key string
	entry      int64
}

func (m *keyedMessage) ID() pulsar.MessageID { return m }
func (m *keyedMessage) Topic() string        { return m.topic }
func (m *keyedMessage) Key() string          { return m.key }
func (m *keyedMessage) OrderingKey() string  { return "" }
func (m *keyedMessage) LedgerID() int64      { return 1 }
func (m *keyedMessage) EntryID() int64       { return m.entry }
func (m *keyedMessage) BatchIdx() int32      { return -1 }

func newKeys() *keys { return &keys{lanes: map[laneKey]*lane{}} }

func enter(k *keys, topic, key string, entry int64) (task, bool) {
	t := task{msg: &keyedMessage{topic: topic, key: key, entry: entry}}
	out := k.enter(&t)
	return t, out
}

func TestMessageDoesNotWaitForOtherKeysAndTopics(t *testing.T) {
	k := newKeys()
	for _, of := range [][2]string{{"a", "x"}, {"a", "y"}, {"b", "x"}, {"a", ""}, {"a", ""}} {
		_, out := enter(k, of[0], of[1], 1)
		require.True(t, out, of)
	}
	_, out := enter(k, "a-partition-3", "x", 1)
	require.False(t, out, "the message did not wait for one of the same key in another partition")
}

func TestRedeliveryOfAnEarlierMessageGoesFirst(t *testing.T) {
	k := newKeys()
	third, _ := enter(k, "a", "x", 3)
	enter(k, "a", "x", 4)
	enter(k, "a", "x", 2)
	k.putBack(third)
	var order []int64
	for range 3 {
		require.True(t, k.release(third.lane))
		order = append(order, k.take().msg.ID().EntryID())
	}
	require.Equal(t, []int64{2, 3, 4}, order)
	require.False(t, k.release(third.lane))
	require.Empty(t, k.lanes)
}

// Messages arrive, fail and are dropped at random. At most one message of a key is out, the earliest one, and no
// message is forgotten.
func TestRandomMessagesOfKeysKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k, entry := newKeys(), int64(0)
		out := map[string]task{}                                           // by key
		waiting := map[string][]int64{}                                    // likewise
		key := rapid.SampledFrom([]string{"x", "y", "z"})                  // of the next step
		steps := rapid.SampledFrom([]string{"come", "done", "fail", "go"}) // likewise
		finish := func(of *lane) {
			if k.release(of) {
				first := k.take()
				name := first.msg.Key()
				require.Equal(t, slices.Min(waiting[name]), first.msg.ID().EntryID())
				waiting[name] = slices.DeleteFunc(waiting[name], func(n int64) bool { return n == first.msg.ID().EntryID() })
				out[name] = first
			}
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			of := key.Draw(t, "key")
			was, isOut := out[of]
			switch step := steps.Draw(t, "step"); {
			case step == "come":
				entry++
				came, first := enter(k, "a", of, entry)
				require.Equal(t, !isOut, first)
				if first {
					out[of] = came
				} else {
					waiting[of] = append(waiting[of], entry)
				}
			case !isOut:
				require.Empty(t, waiting[of])
			case step == "done":
				delete(out, of)
				finish(was.lane)
			case step == "fail":
				k.putBack(was)
				waiting[of] = append(waiting[of], was.msg.ID().EntryID())
				delete(out, of)
				finish(was.lane)
			case step == "go" && len(waiting[of]) > 0: // the message goes to another consumer
				at := rapid.IntRange(0, len(was.lane.queue)-1).Draw(t, "gone")
				gone := slices.Clone(was.lane.queue[at : at+1])
				k.drop(was.lane, gone)
				waiting[of] = slices.DeleteFunc(waiting[of], func(n int64) bool { return n == gone[0].msg.ID().EntryID() })
			}
			total := 0
			for _, all := range waiting {
				total += len(all)
			}
			require.Equal(t, total, k.waiting)
			require.Len(t, k.lanes, len(out))
			require.Empty(t, k.ready)
		}
		require.Len(t, k.clear(), func() (n int) {
			for _, all := range waiting {
				n += len(all)
			}
			return n
		}())
	})
}
