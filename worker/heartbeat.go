package worker

import (
	"sync"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"

	"github.com/pulsar-redelivery/redelivery"
)

// heartbeat renews the ack timeout of a message each time a third of the ack timeout is over. A nil heartbeat does
// nothing.
type heartbeat struct {
	consumer *redelivery.Consumer
	msg      pulsar.Message
	every    time.Duration

	mu    sync.Mutex // held during a beat, so that no beat comes after stop has returned
	until time.Time  // zero for no end
	timer *time.Timer
	over  bool
}

// heartbeat begins to renew the ack timeout of msg, which was just taken. The heartbeat ends at the time until, or with
// stop if until is zero. heartbeat returns nil if there is no ack timeout.
func (w *Worker) heartbeat(msg pulsar.Message, until time.Time) *heartbeat {
	d, err := w.consumer.Delivery(msg)
	if err != nil || d.AckDeadline.IsZero() { // settling it will return the error
		return nil
	}
	h := &heartbeat{consumer: w.consumer, msg: msg, every: max(time.Millisecond, time.Until(d.AckDeadline)/3),
		until: until}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.timer = time.AfterFunc(h.every, h.beat)
	return h
}

// renew restarts the ack timeout of a message that may have been with a handler, and renews it until t.beat is stopped.
func (w *Worker) renew(t *task) error {
	t.beat.stop()
	err := w.consumer.InProgress(t.msg)
	t.beat = nil
	if err == nil {
		t.beat = w.heartbeat(t.msg, time.Time{})
	}
	return err
}

// renewAll begins to renew the ack timeouts of the slot's messages.
func (s *slot) renewAll() {
	for i := range s.tasks {
		_ = s.renew(&s.tasks[i]) // settling will return this error, too
	}
}

// setAckTimeout renews the ack timeout of t, whose handler is called at the time since. With WithTimeout, the heartbeat
// goes on until the handler's timeout. Without WithTimeout, setAckTimeout renews the ack timeout once, and ends the
// heartbeat of a message that waited.
func (s *slot) setAckTimeout(t *task, since time.Duration) {
	switch {
	case s.timeout > 0:
		until := s.began.Add(since).Add(s.timeout)
		if t.beat != nil {
			t.beat.endAt(until)
		} else {
			t.beat = s.heartbeat(t.msg, until)
		}
	case t.beat != nil: // the message waited; the handler gets its whole ack timeout
		t.beat.stop()
		_ = s.consumer.InProgress(t.msg) // settling will return this error, too
	}
}

func (h *heartbeat) beat() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over || !h.until.IsZero() && !time.Now().Before(h.until) || h.consumer.InProgress(h.msg) != nil {
		return
	}
	h.timer.Reset(h.every)
}

func (h *heartbeat) endAt(until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = until
}

func (h *heartbeat) stop() {
	if h != nil {
		h.end()
	}
}

func (h *heartbeat) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.over = true
	h.timer.Stop()
}
