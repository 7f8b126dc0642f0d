package redelivery

import (
	"sync"
	"time"
)

const (
	// answerTime is longer than the broker usually takes for an answer.
	answerTime = time.Second
	// maxAhead is how many messages are read ahead at most.
	maxAhead = 10_000
)

// acknowledge calls f, which acknowledges messages. With AckWithResponse it reads ahead until the broker has answered.
func (c *Consumer) acknowledge(f func() error) error {
	if c.answered {
		defer c.readAhead()()
	}
	return f()
}

// readAhead reads messages from the inner consumer while the caller waits for an answer of the broker that takes long,
// until the returned function is called. pulsar-client-go reads nothing from a connection while the queue of one of its
// consumers is full, not even the answer; and the application may take no message before it has that answer. The
// broker sends more messages than the queue holds after a batch has come again without its acknowledged messages:
// pulsar-client-go then permits it as many messages as were left out.
func (c *Consumer) readAhead() (stop func()) {
	answered := make(chan struct{})
	late := time.AfterFunc(answerTime, func() {
		if !c.goroutines.enter() {
			return
		}
		defer c.goroutines.leave()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			if c.turn.tryTake() { // else another goroutine receives
				c.reader.ReadAhead(maxAhead)
				c.turn.give()
			}
			select {
			case <-tick.C:
			case <-answered:
				return
			case <-c.ended.Done():
				return
			}
		}
	})
	return sync.OnceFunc(func() {
		late.Stop()
		close(answered)
	})
}
