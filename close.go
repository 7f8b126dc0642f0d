package redelivery

import (
	"fmt"
	"strings"
	"time"
)

// Close closes the consumer. It settles nothing and loses nothing: the broker redelivers what is not acknowledged. When
// Close returns no goroutine of the Consumer is left, but for one that still waits for pulsar-client-go to make a producer of
// the retry or dead letter topic. Calling it again does nothing.
func (c *Consumer) Close() {
	c.close.Do(func() {
		c.refuseCalls()
		c.end()
		c.nacks.Close()
		if c.timeouts != nil {
			c.timeouts.Close()
		}
		c.check.Stop()
		if c.ownReconsumer {
			c.reconsumer.Close()
		}
		c.letCallsEnd()
		c.flush()
		c.inner.Close()
		c.work.Wait()
		c.mu.Lock()
		c.clear()
		c.mu.Unlock()
		close(c.closed)
	})
}

// refuseCalls lets no more calls of the inner consumer begin: what upstream is asked for after it has closed can hang.
func (c *Consumer) refuseCalls() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closing = true
	c.idle = make(chan struct{})
	if c.calls == 0 {
		close(c.idle)
	}
}

// letCallsEnd waits for calls that are under way, but not for a broker that does not answer: what waits for it is in line
// before the Close, which ends it. Half a second is many round trips, and little of the two that Close may take.
func (c *Consumer) letCallsEnd() {
	patience := time.NewTimer(500 * time.Millisecond)
	defer patience.Stop()
	select {
	case <-c.idle:
	case <-patience.C:
	}
}

// begin notes that the inner consumer is about to be called; endCall must follow. The caller holds mu.
func (c *Consumer) begin() error {
	if c.closing {
		return ErrClosed
	}
	c.calls++
	return nil
}

func (c *Consumer) endCall() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.callEnded()
}

// callEnded is endCall for a caller that holds mu.
func (c *Consumer) callEnded() {
	if c.calls--; c.calls == 0 && c.closing {
		close(c.idle)
	}
}

// call calls the inner consumer, unless it is being closed.
func (c *Consumer) call(f func() error) error {
	c.mu.Lock()
	err := c.begin()
	c.mu.Unlock()
	if err != nil {
		return err
	}
	defer c.endCall()
	return f()
}

// gaveUp notes that one of the consumers which the inner consumer is made of has closed itself. Upstream goes on without it,
// and when it was the last it does not tell.
func (c *Consumer) gaveUp(err error) {
	if c.pattern && strings.Contains(err.Error(), "TopicNotFound") {
		return
	}
	c.mu.Lock()
	c.gone++
	last := c.gone == c.children && c.ended.Err() == nil
	if last {
		c.work.Go(c.inner.Close)
	}
	c.mu.Unlock()
	if last {
		c.end()
		return
	}
	c.fail("staying connected to one of the topics", fmt.Errorf("%w", err)) // without upstream's stack
}

// flush waits until the inner consumer has sent what it was asked for, which takes a tick: upstream can deadlock when it is
// closed while it flushes its nacks.
func (c *Consumer) flush() {
	c.mu.Lock()
	wait := time.Until(c.lastAsk.Add(2*c.tick + 20*time.Millisecond))
	asked := !c.lastAsk.IsZero()
	c.mu.Unlock()
	if asked && wait > 0 {
		time.Sleep(min(wait, time.Second))
	}
}

// clear forgets all messages. The caller holds mu.
func (c *Consumer) clear() {
	c.table.Clear()
	c.nacks.Clear()
	if c.timeouts != nil {
		c.timeouts.Clear()
	}
	c.swallow.todo, c.dead.todo, c.moves.todo = nil, nil, nil
	for _, over := range c.settling {
		close(over)
	}
	clear(c.settling)
	close(c.epoch)
	c.epoch = make(chan struct{})
}
