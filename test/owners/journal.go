package main

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// journal notes what handlers did with messages, of which the payload says the key and the number in it. When a topic is unloaded the producer
// may publish a message again, as another one with the same payload: to handle that too is no repetition.
type journal struct {
	mu        sync.Mutex
	calls     map[string]int        // of each payload
	succeeded map[string]bool       // payloads
	last      map[string]latest     // of a key
	done      map[string]success    // the last of each message
	received  map[receipt]time.Time // for the first time
	losses    map[*redelivery.Consumer][]time.Time
	healed    bool
	repeated  []repetition
	back      []regress
	trace     *trace // nil without -trace
}

// latest is the highest number of a key that succeeded.
type latest struct {
	number  int
	message string
	success
}

// receipt says that a consumer has had a message.
type receipt struct {
	by      *redelivery.Consumer
	message string
}

// success is one of a handler.
type success struct {
	by         *redelivery.Consumer
	begun, end time.Time
	lost       bool // the message was another consumer's, for all that was known, before the handler was called
}

// repetition is a success of a message that had succeeded.
type repetition struct {
	message      string
	first, again success
}

// regress is a first success of a message after one of a later message of its key.
type regress struct {
	message string
	later   latest
	sent    bool // whoever handled the later message had not received this one before
}

// figures are what a journal comes to.
type figures struct {
	succeeded int // payloads
	repeated  int // successes of messages that had succeeded
	by        map[cause]int
	back      int // first successes after one of a later message of the key
	sent      int // of these: whoever handled the later message had not received this one
}

// cause is why a message was repeated.
type cause string

const (
	begun    cause = "begun"      // a handler was called with a message that was known to be lost
	atWork   cause = "at work"    // the connection or partition was lost while a handler was at work
	onTheWay cause = "on the way" // it was lost within a second after that
	older    cause = "older"      // the acknowledgement was sent before that; the broker has forgotten it
)

func newJournal() *journal {
	return &journal{calls: map[string]int{}, succeeded: map[string]bool{}, last: map[string]latest{}, done: map[string]success{},
		received: map[receipt]time.Time{}, losses: map[*redelivery.Consumer][]time.Time{}}
}

var errDown = errors.New("no answer")

// handle is the handler of all Workers.
func (j *journal) handle(c *redelivery.Consumer, msg pulsar.Message) (err error) {
	s := success{by: c, begun: time.Now()}
	if d, err := c.Delivery(msg); err == nil {
		s.lost = d.Lost
	}
	payload, message := string(msg.Payload()), name(msg.Topic(), msg.ID())
	j.trace.note(message, c.Name(), "is begun", payload)
	defer func() { j.trace.note(message, c.Name(), "ends", err) }()
	key, number, _ := strings.Cut(payload, "/")
	var n, k int
	_, _ = fmt.Sscan(number, &n)
	_, _ = fmt.Sscan(strings.TrimPrefix(key, "key"), &k)
	time.Sleep(time.Duration(1+rand.IntN(2)) * time.Millisecond)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls[payload]++
	s.end = time.Now()
	first, again := j.done[message]
	switch down := s.end.Unix()/3%keys == int64(k); {
	case again:
		j.repeated = append(j.repeated, repetition{message, first, s})
	case j.succeeded[payload]:
	case !j.healed && (down || (n+k)%20 == 7 && j.calls[payload] < 3):
		return errDown
	case n < j.last[key].number:
		later := j.last[key]
		j.back = append(j.back, regress{message, later, j.wasSent(later, message)})
	default:
		j.last[key] = latest{n, message, s}
	}
	j.succeeded[payload], j.done[message] = true, s
	return nil
}

// wasSent reports whether whoever handled a later message had not received another before. The caller holds mu.
func (j *journal) wasSent(later latest, message string) bool {
	at, ok := j.received[receipt{later.by, message}]
	return !ok || at.After(later.begun)
}

// receives notes which consumers have had which messages, those too that they dropped.
func (j *journal) receives(e redelivery.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := receipt{e.Consumer, name(e.Topic, e.ID)}
	if _, ok := j.received[r]; !ok {
		j.received[r] = time.Now()
	}
}

// loses notes that a consumer lost messages.
func (j *journal) loses(e redelivery.Lost) {
	j.trace.note("", e.Consumer.Name(), "LOST", e.Why, e.Topic)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.losses[e.Consumer] = append(j.losses[e.Consumer], time.Now())
}

// heal has no message fail any more.
func (j *journal) heal() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.healed = true
}

func (j *journal) figures() figures {
	j.mu.Lock()
	defer j.mu.Unlock()
	f := figures{succeeded: len(j.succeeded), repeated: len(j.repeated), by: map[cause]int{}, back: len(j.back)}
	for _, r := range j.repeated {
		f.by[j.cause(r)]++
	}
	for _, b := range j.back {
		if b.sent {
			f.sent++
		}
	}
	return f
}

// cause returns why a message was repeated. The caller holds mu.
func (j *journal) cause(r repetition) cause {
	switch {
	case r.first.lost || r.again.lost:
		return begun
	case j.lostIn(r.first, 0) || j.lostIn(r.again, 0): // the one that was called first may end last
		return atWork
	case j.lostIn(r.first, time.Second):
		return onTheWay
	default:
		return older
	}
}

// lostIn reports whether messages were lost between the call of a handler and some time after it. The caller holds mu.
func (j *journal) lostIn(s success, after time.Duration) bool {
	for _, at := range j.losses[s.by] {
		if at.After(s.begun) && at.Before(s.end.Add(after)) {
			return true
		}
	}
	return false
}

// story tells of each message that was handled again or out of order.
func (j *journal) story(to io.Writer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, b := range j.back {
		j.trace.tell(to, fmt.Sprintf("%s went back behind %s, sent so: %t", b.message, b.later.message, b.sent),
			b.message, b.later.message)
	}
	for _, r := range j.repeated {
		j.trace.tell(to, fmt.Sprintf("%s was repeated: %s", r.message, j.cause(r)), r.message)
	}
}
