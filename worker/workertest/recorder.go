package workertest

import (
	"cmp"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
	"github.com/pulsar-redelivery/redelivery/internal/virtual"
	"github.com/pulsar-redelivery/redelivery/reconsume"
	"github.com/pulsar-redelivery/redelivery/worker"
)

// recorder notes the results of handlers.
type recorder struct {
	began time.Time
	limit int // after so many attempts with a message the handler is not called again; 0 for no limit

	mu     sync.Mutex
	outage error // the error of calls in an Outage; nil for none
	calls  []*call
	ids    map[string]*message // messages by the ids with which they were published
	named  map[string]*message // messages published with an ORIGIN_MESSAGE_ID, by that id, which their retries keep
	order  []*message          // as they were published
}

// publish publishes a message, and notes it before a handler can get it.
func (r *recorder) publish(msg *pulsar.ProducerMessage, publish func() pulsar.MessageID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := &message{ProducerMessage: msg}
	if origin := msg.Properties[pulsar.SysPropertyOriginMessageID]; origin != "" {
		r.named[origin] = m
	}
	r.ids[publish().String()] = m
	r.order = append(r.order, m)
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.outage = err
}

// snapshot returns the calls for each message, and all calls in their order.
func (r *recorder) snapshot() (of [][]*call, all []*call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.order {
		of = append(of, slices.Clone(m.calls))
	}
	return of, slices.Clone(r.calls)
}

// message is a message that was published, with the calls of handlers for it.
type message struct {
	*pulsar.ProducerMessage
	calls []*call
	over  *time.Duration // when the message came for the first time after it had reached the limit

	discarded bool
}

type call struct {
	Attempt
	of      *message
	running bool
}

var errExited = errors.New("the handler called runtime.Goexit")

// find returns the message that has an id; for a retry or a dead letter, the message that it came from. The caller
// holds mu.
func (r *recorder) find(id pulsar.MessageID, properties map[string]string) *message {
	origin := properties[pulsar.SysPropertyOriginMessageID]
	return cmp.Or(r.ids[id.String()], r.named[origin], r.ids[origin])
}

// settled notes a message that is discarded. Its acknowledgement alone looks like a success.
func (r *recorder) settled(e redelivery.Settled) {
	if e.Outcome != redelivery.Discarded || e.Err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Message != nil {
		r.find(e.ID, e.Message.Properties()).discarded = true
	}
}

// called notes a call of the handler of the Worker with this number. It makes the call with do, and returns the result.
// If a message has reached the limit, called does not call do.
func (r *recorder) called(number int, msgs []pulsar.Message, do func() error) (err error) {
	began := time.Since(r.began)
	r.mu.Lock()
	outage := r.outage
	var calls []*call
	for _, msg := range msgs {
		m := r.find(msg.ID(), msg.Properties())
		if r.limit > 0 && len(m.calls) == r.limit {
			if m.over == nil {
				m.over = &began
			}
			r.mu.Unlock()
			return nil
		}
		c := &call{Attempt: Attempt{Message: m.ProducerMessage, At: began, Worker: number,
			Redeliveries: msg.RedeliveryCount()}, of: m, running: true}
		m.calls, r.calls, calls = append(m.calls, c), append(r.calls, c), append(calls, c)
	}
	r.mu.Unlock()
	err = errExited
	defer func() {
		v := recover() // a panic of a middleware or a BatchHandler; the Worker recovers a panic of a Handler
		if v != nil {
			err = &worker.PanicError{Value: v, Stack: debug.Stack()}
			defer panic(v) // so that the Worker counts it
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for i, c := range calls {
			c.Err, c.Took, c.running = errorOf(err, i, len(calls)), time.Since(r.began)-began, false
		}
	}()
	if err = outage; err == nil {
		err = errExited
		err = do()
	}
	return err
}

// errorOf returns a handler's error for message i of n. Methods of the error may panic, as those of a nil pointer do.
func errorOf(err error, i, n int) (its error) {
	defer func() {
		if recover() != nil {
			its = err
		}
	}()
	if of, ok := partOf(err, i, n); ok {
		return of
	}
	return err
}

// partOf returns the error for message i of n if err is a BatchError, wraps one, or joins only BatchErrors. A
// BatchError with an index that no message has is an error for all messages.
func partOf(err error, i, n int) (of error, ok bool) {
	switch e := err.(type) { //nolint:errorlint // errors.As also finds a BatchError that is joined with other errors
	case worker.BatchError:
		for index := range e {
			if index < 0 || index >= n {
				return nil, false
			}
		}
		return e[i], true
	case *worker.PanicError:
	case interface{ Unwrap() error }:
		return partOf(e.Unwrap(), i, n)
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			err, is := partOf(part, i, n)
			if !is {
				return nil, false
			}
			of, ok = errors.Join(of, err), true
		}
	}
	return of, ok
}

// end is the current state of a message.
type end struct {
	acked, dead bool
	reason      string // of the dead letter
}

// ends returns the ends of all messages.
func (r *recorder) ends(broker *virtual.Broker) map[*message]end {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[*message]end{}
	broker.Each(func(id pulsar.MessageID, msg *pulsar.ProducerMessage, acked bool) {
		m := r.find(id, msg.Properties)
		e := all[m]
		switch isFirst := m != nil && r.ids[id.String()] == m; {
		case isFirst: // even if it is a dead letter of another subscription, which the test published
			e.acked = acked
		case msg.Properties[reconsume.PropertyDeadLetterTime] != "":
			e.dead, e.reason = true, msg.Properties[reconsume.PropertyExceptionMessage]
		default: // a retry: it was published before the message that it retries was acknowledged
			e.acked = e.acked && acked
		}
		all[m] = e
	})
	return all
}

// unsettled returns the messages that are neither acknowledged nor dead letters.
func (r *recorder) unsettled(broker *virtual.Broker) (left []*message) {
	ends := r.ends(broker)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.order {
		if !ends[m].acked {
			left = append(left, m)
		}
	}
	return left
}

// attempts returns the attempts of calls, with the fates of their messages.
func (r *recorder) attempts(calls []*call, ends map[*message]end) (all Attempts) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range calls {
		a := c.Attempt
		next, came := c.of.after(c)
		switch end := ends[c.of]; {
		case c.running:
			a.Open = true
		case came:
			a.Back = next - a.At - a.Took
		case end.dead:
			a.Dead, a.Reason = true, end.reason
		case end.acked && c.of.discarded:
			a.Discarded = true
		case end.acked:
			a.Acked = true
		default:
			a.Open = true
		}
		all = append(all, a)
	}
	return all
}

// after returns when the message came again after the call c, and whether it did.
func (m *message) after(c *call) (at time.Duration, came bool) {
	switch i := slices.Index(m.calls, c) + 1; {
	case i < len(m.calls):
		return m.calls[i].At, true
	case m.over != nil:
		return *m.over, true
	}
	return 0, false
}

// describe returns a line with the message and the end of its last attempt.
func (r *recorder) describe(m *message) string {
	payload := fmt.Sprintf("%.100q", m.Payload)
	r.mu.Lock()
	n := len(m.calls)
	r.mu.Unlock()
	if n == 0 {
		return payload + ", with which no handler was called"
	}
	return fmt.Sprintf("%s; the last of %d attempts: %s", payload, n, r.attempts(m.calls[n-1:], nil)[0])
}
