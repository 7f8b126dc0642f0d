package worker

import (
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// renewTimeouts renews ack timeouts each time a third of the ack timeout is over, until Run returns.
func (r *run) renewTimeouts() {
	timeout := r.consumer.Options().AckTimeout
	if timeout == 0 {
		return
	}
	ticker := time.NewTicker(max(time.Millisecond, timeout/3))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-r.lasting.Done():
			return
		}
		for _, msg := range r.renewable() {
			_ = r.consumer.InProgress(msg) // settling will return this error, too
		}
	}
}

// renewable returns the messages whose ack timeouts are renewed. With WithTimeout it leaves out a message once its
// handler has run for that time. Without WithTimeout it leaves out all messages in handlers: the ack timeout is their
// limit.
func (r *run) renewable() (msgs []pulsar.Message) {
	for _, s := range r.allSlots() {
		msgs = s.addRenewable(msgs)
	}
	if r.lanes != nil {
		msgs = append(msgs, r.lanes.messages()...)
	}
	if r.outage != nil {
		msgs = append(msgs, r.outage.messages()...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return append(msgs, r.left...)
}

func (s *slot) addRenewable(msgs []pulsar.Message) []pulsar.Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	limited := s.stage == handling && (s.timeout == 0 || s.now()-s.since >= s.timeout)
	for i := range s.tasks { // the slot may be changing other fields than msg and newer
		t := &s.tasks[i]
		if i >= s.called || !limited {
			msgs = append(msgs, t.msg)
		}
		if t.newer != nil {
			msgs = append(msgs, t.newer)
		}
	}
	return msgs
}
