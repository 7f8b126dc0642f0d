package ledger

import (
	"errors"
	"flag"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"pgregory.net/rapid"
)

type modelID struct {
	pulsar.MessageID
	size int32
}

func (id *modelID) BatchSize() int32 { return id.size }

type modelMessage struct {
	pulsar.Message
	id    pulsar.MessageID
	topic string
	count uint32
}

func (m *modelMessage) ID() pulsar.MessageID          { return m.id }
func (m *modelMessage) Topic() string                 { return m.topic }
func (m *modelMessage) Payload() []byte               { return make([]byte, 10) }
func (m *modelMessage) RedeliveryCount() uint32       { return m.count }
func (m *modelMessage) Properties() map[string]string { return map[string]string{"a": "b"} }

type modelConsumer struct {
	pulsar.Consumer
	number int
}

// modelRun is a Ledger, and what whoever uses it has in hand. Two topics share their ledgers, as a shadow topic and its source do.
type modelRun struct {
	*Ledger
	children map[string]*modelConsumer
	ledger   int64
	next     map[string]int64 // entry, of each topic
	had      []Delivery
	settling []*Settling
	swallows []Name // whose AckedAgain has not been called
}

var modelTopics = []string{"a", "b"}

// Nothing that is done to a Ledger, in any order, leaves it in a state that does not hold, or panics.
func TestModel(t *testing.T) {
	// 1 s. A failure is not made smaller: rapid takes its own panics, passed on from the bubble, for the same one.
	for name, value := range map[string]string{"rapid.checks": "500", "rapid.steps": "200", "rapid.shrinktime": "0s"} {
		if f := flag.Lookup(name); f.Value.String() == f.DefValue {
			_ = f.Value.Set(value)
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		var failed any
		defer func() {
			if failed != nil {
				panic(failed)
			}
		}()
		synctest.Test(t, func(*testing.T) {
			defer func() { failed = recover() }()
			yes := rapid.Bool()
			o := Options{
				RedeliversAll: yes.Draw(rt, "rewinds"), IndexAcks: IndexAcks(rapid.IntRange(0, 3).Draw(rt, "index acks")), ReconnectEvents: yes.Draw(rt, "signals"),
				Observed: yes.Draw(rt, "observed"), MemoryLimit: rapid.SampledFrom([]int64{0, 30, 1 << 20}).Draw(rt, "memory limit"),
				Queue: rapid.IntRange(1, 4).Draw(rt, "queue"), AckGroup: AckGroup{Size: rapid.IntRange(0, 3).Draw(rt, "group")},
				SendDelay: 2 * time.Second, AskDelay: time.Second, MaxDeliveries: rapid.SampledFrom([]uint32{0, 3}).Draw(rt, "max"),
				Calls: Calls{Ask: func(pulsar.Consumer, string, pulsar.MessageID) {}, Wake: func() {}, GiveUp: func(Delivery) {}},
			}
			o.Keeps, o.Others = yes.Draw(rt, "keeps"), yes.Draw(rt, "others")
			o.KeyOrder = o.Others && yes.Draw(rt, "key order")
			m := &modelRun{Ledger: New(o), children: map[string]*modelConsumer{}, ledger: 1, next: map[string]int64{}}
			defer m.end()
			for _, topic := range modelTopics {
				m.children[topic] = &modelConsumer{}
			}
			rt.Repeat(map[string]func(*rapid.T){
				"":            m.check,
				"arrive":      m.arrive,
				"arrive all":  m.arriveAll,
				"settle":      m.settleOne,
				"end":         m.endSettling,
				"acked again": m.again,
				"nack":        m.nackOne,
				"hold": func(t *rapid.T) {
					if d, ok := take(t, &m.had, true); ok {
						m.StartTimeout(d, time.Second)
					}
				},
				"offer": func(t *rapid.T) {
					if d, ok := take(t, &m.had, true); ok && d.Message != nil {
						if _, ok := m.Offer(d); ok {
							m.Offered(d, rapid.Bool().Draw(t, "sent"))
						}
					}
				},
				"next": func(*rapid.T) {
					var d Delivery
					if m.Next(&d, false) {
						m.had = append(m.had, d)
					}
				},
				"wait": func(t *rapid.T) {
					time.Sleep(rapid.SampledFrom([]time.Duration{time.Second / 10, 3 * time.Second, time.Minute}).Draw(t, "for"))
				},
				"idle":       func(*rapid.T) { m.Idle() },
				"connection": m.connection,
				"rest":       m.rest,
			})
		})
	})
}

// end ends the Ledger's goroutines, also after a panic under its lock.
func (m *modelRun) end() {
	m.mu.TryLock()
	m.mu.Unlock()
	m.Close()
}

func (m *modelRun) check(t *rapid.T) {
	synctest.Wait()
	if err := m.broken(); err != nil {
		t.Fatal(err)
	}
}

// take draws one of several, which stays if it may be used again.
func take[E any](t *rapid.T, from *[]E, stays bool) (e E, ok bool) {
	if len(*from) == 0 {
		return e, false
	}
	i := rapid.IntRange(0, len(*from)-1).Draw(t, "which")
	if e = (*from)[i]; !stays {
		*from = append((*from)[:i:i], (*from)[i+1:]...)
	}
	return e, true
}

// draw draws a message: of the next entry of its topic, or of any. The sizes of entries are given.
func (m *modelRun) draw(t *rapid.T) (topic string, entry int64, index, size int32) {
	topic = rapid.SampledFrom(modelTopics).Draw(t, "topic")
	if entry = m.next[topic]; rapid.IntRange(0, 2).Draw(t, "older") == 0 {
		entry = rapid.Int64Range(0, 20).Draw(t, "entry")
	} else {
		m.next[topic]++
	}
	size = int32(entry*7%5)%4 + 1
	return topic, entry, rapid.Int32Range(0, size-1).Draw(t, "index"), size
}

func (m *modelRun) id(entry int64, index, size int32) pulsar.MessageID {
	return &modelID{pulsar.NewMessageID(m.ledger, entry, index, 0), size}
}

func (m *modelRun) deliver(t *rapid.T, topic string, id pulsar.MessageID) {
	var d Delivery
	retry := Retry{Wait: rapid.SampledFrom([]time.Duration{0, 0, 0, time.Second}).Draw(t, "retry"),
		Attempts: rapid.SampledFrom([]uint32{0, 0, 0, 2, 5}).Draw(t, "attempts")}
	msg := &modelMessage{id: id, topic: topic, count: rapid.Uint32Range(0, 3).Draw(t, "count")}
	switch m.Arrive(pulsar.ConsumerMessage{Consumer: m.children[topic], Message: msg}, retry, &d) {
	case Deliver:
		m.had = append(m.had, d)
	case AckDuplicate:
		m.swallows = append(m.swallows, Name{ID: d.ID, Topic: topic})
	default: // kept, or not
	}
}

func (m *modelRun) arrive(t *rapid.T) {
	topic, entry, index, size := m.draw(t)
	m.deliver(t, topic, m.id(entry, index, size))
}

func (m *modelRun) arriveAll(t *rapid.T) {
	topic, entry, _, size := m.draw(t)
	for index := range size {
		m.deliver(t, topic, m.id(entry, index, size))
	}
}

func (m *modelRun) settleOne(t *rapid.T) {
	d, ok := take(t, &m.had, rapid.Bool().Draw(t, "twice"))
	if !ok {
		return
	}
	n, s := Name{ID: d.ID}, &Settling{}
	if d.Message != nil && rapid.Bool().Draw(t, "by message") {
		n.Topic = d.Message.Topic()
	}
	s.Leaves = rapid.IntRange(0, 3).Draw(t, "leaves") == 0
	if standing := m.Settle(n, s); standing == Unsettled || standing == Busy && !s.Leaves {
		s.Undecided = rapid.IntRange(0, 5).Draw(t, "undecided") == 0
		m.settling = append(m.settling, s)
		if rapid.Bool().Draw(t, "at once") {
			m.endSettling(t)
		}
	}
}

func (m *modelRun) endSettling(t *rapid.T) {
	s, ok := take(t, &m.settling, false)
	if !ok {
		return
	}
	if rapid.IntRange(0, 3).Draw(t, "refused") == 0 {
		m.NotSettled(s)
	} else if id := m.Settled(s); id != nil {
		m.swallows = append(m.swallows, Name{ID: id, Topic: s.Topic})
	}
}

func (m *modelRun) again(t *rapid.T) {
	if n, ok := take(t, &m.swallows, false); ok {
		var err error
		if rapid.IntRange(0, 3).Draw(t, "refused") == 0 {
			err = errors.New("refused")
		}
		if n.ID = m.AckedAgain(n, err, rapid.Bool().Draw(t, "try again")); n.ID != nil {
			m.swallows = append(m.swallows, n)
		}
	}
}

func (m *modelRun) nackOne(t *rapid.T) {
	d, ok := take(t, &m.had, true)
	if !ok {
		return
	}
	if rapid.Bool().Draw(t, "by id") {
		d.Message = nil
	}
	delay := time.Duration(rapid.IntRange(0, 9).Draw(t, "seconds")) * time.Second
	m.Nack(d, delay, d.Message, Why(rapid.IntRange(0, 2).Draw(t, "why")))
}

func (m *modelRun) connection(t *rapid.T) {
	topic, entry, index, size := m.draw(t)
	switch rapid.IntRange(0, 4).Draw(t, "what") {
	case 0:
		m.Disconnected()
	case 1, 2:
		m.Received(topic, m.id(entry, index, size))
	default:
		m.Activate(topic, rapid.Bool().Draw(t, "active"))
	}
}

// rest does what is seldom done.
func (m *modelRun) rest(t *rapid.T) {
	topic, entry, index, size := m.draw(t)
	n := Name{ID: m.id(entry, index, size), Topic: topic}
	switch rapid.IntRange(0, 9).Draw(t, "what") {
	case 0, 1, 2, 3:
		m.Adopt(n, topic, m.children[topic], 0)
		if d, current, _ := m.Find(n); current {
			m.had = append(m.had, d)
		}
	case 4, 5, 6:
		m.SettleTo(n, n.ID)
	case 7, 8:
		m.Gone(m.children[topic])
		m.children[topic] = &modelConsumer{number: m.children[topic].number + 1}
		m.ledger++
	default:
		m.Clear()
	}
}
