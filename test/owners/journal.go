package main

import (
	"errors"
	"fmt"
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
	calls     map[string]int     // of each payload
	succeeded map[string]bool    // payloads
	last      map[string]int     // the highest number of a key that succeeded
	done      map[string]success // the last of each message
	losses    map[*redelivery.Consumer][]time.Time
	healed    bool
	repeated  []repetition
	back      int
}

// success is one of a handler.
type success struct {
	by         *redelivery.Consumer
	begun, end time.Time
	lost       bool // the message was another consumer's, for all that was known, before the handler was called
}

// repetition is a success of a message that had succeeded.
type repetition struct{ first, again success }

// figures are what a journal comes to. A repetition has one of three causes.
type figures struct {
	succeeded int // payloads
	repeated  int // successes of messages that had succeeded
	begun     int // of these: a handler was called with a message that was known to be lost
	onTheWay  int // of these: the connection or partition was lost while the handler was at work, or within a second after it
	older     int // of these: the acknowledgement was sent long before; the broker has forgotten it
	back      int // first successes after one of a later message of the key
}

func newJournal() *journal {
	return &journal{calls: map[string]int{}, succeeded: map[string]bool{}, last: map[string]int{}, done: map[string]success{},
		losses: map[*redelivery.Consumer][]time.Time{}}
}

var errDown = errors.New("no answer")

// handle is the handler of all Workers.
func (j *journal) handle(c *redelivery.Consumer, msg pulsar.Message) error {
	s := success{by: c, begun: time.Now()}
	if d, err := c.Delivery(msg); err == nil {
		s.lost = d.Lost
	}
	payload, id := string(msg.Payload()), fmt.Sprint(msg.Topic(), msg.ID())
	key, number, _ := strings.Cut(payload, "/")
	var n, k int
	_, _ = fmt.Sscan(number, &n)
	_, _ = fmt.Sscan(strings.TrimPrefix(key, "key"), &k)
	time.Sleep(time.Duration(1+rand.IntN(2)) * time.Millisecond)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.calls[payload]++
	s.end = time.Now()
	first, again := j.done[id]
	switch down := s.end.Unix()/3%keys == int64(k); {
	case again:
		j.repeated = append(j.repeated, repetition{first, s})
	case j.succeeded[payload]:
	case !j.healed && (down || (n*keys+k)%20 == 7 && j.calls[payload] < 3):
		return errDown
	case n < j.last[key]:
		j.back++
	default:
		j.last[key] = n
	}
	j.succeeded[payload], j.done[id] = true, s
	return nil
}

// loses notes that a consumer lost messages.
func (j *journal) loses(e redelivery.Lost) {
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
	f := figures{succeeded: len(j.succeeded), repeated: len(j.repeated), back: j.back}
	for _, r := range j.repeated {
		switch {
		case r.first.lost || r.again.lost:
			f.begun++
		case j.losesSoon(r.first):
			f.onTheWay++
		default:
			f.older++
		}
	}
	return f
}

// losesSoon reports whether messages were lost before the acknowledgement of one was surely at the broker. The caller holds mu.
func (j *journal) losesSoon(s success) bool {
	for _, at := range j.losses[s.by] {
		if at.After(s.begun) && at.Before(s.end.Add(time.Second)) {
			return true
		}
	}
	return false
}
