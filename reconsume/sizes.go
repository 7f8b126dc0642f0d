package reconsume

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// small is a message size, in bytes, that every topic is assumed to allow.
const small = 4 << 10

// sizes are the sizes of messages that a topic is known to allow, or to refuse. A broker answers neither a message that
// exceeds the topic's maxMessageSize, nor a message whose delay it refuses. So a message that is larger than any before
// is published alone, by a producer that has no other message under way. If that message has no answer, the broker has
// refused it.
//
// KNOWN WINDOW: bytes are counted before compression. A message that is smaller than an earlier one, but compresses
// worse, is not published alone. If the broker refuses such a message, the messages after it have no answer. The same
// holds for a batch whose messages together are too large.
type sizes struct {
	alone chan struct{} // full while a message is published alone

	mu       sync.Mutex
	accepted int           // the largest accepted size
	delay    time.Duration // delay of the last refused message, which was refused for its delay or its size
	refused  int           // size of that message
	until    time.Time     // when the refusal stops counting
}

// begin reports whether a size was accepted before. If not, it waits until the message can be published alone, and the
// caller must call end.
func (s *sizes) begin(ctx context.Context, delay time.Duration, bytes int) (tried bool, err error) {
	tried, err = s.known(delay, bytes)
	if tried || err != nil {
		return tried, err
	}
	select {
	case s.alone <- struct{}{}:
	case <-ctx.Done():
		return false, fmt.Errorf("reconsume: not published, as a large message before it has no answer: %w",
			context.Cause(ctx))
	}
	tried, err = s.known(delay, bytes)
	if tried || err != nil {
		<-s.alone
	}
	return tried, err
}

func newSizes() sizes { return sizes{alone: make(chan struct{}, 1)} }

// known reports whether a size was accepted before. It returns an error if one was refused within the last minute that
// is not larger.
func (s *sizes) known(delay time.Duration, bytes int) (tried bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case bytes <= max(small, s.accepted):
		return true, nil
	case delay >= s.delay && bytes >= s.refused && time.Now().Before(s.until):
		return false, fmt.Errorf("%w: %v with %d bytes, as it refused %v with %d", ErrDelayRefused, delay, bytes,
			s.delay, s.refused)
	}
	return false, nil
}

// end notes the outcome of a message that is published alone, even if the caller never calls answer.
func (s *sizes) end(delay time.Duration, bytes int, answered func() error) (answer func() error) {
	outcome := make(chan error, 1)
	go func() {
		err := answered()
		s.mu.Lock()
		defer s.mu.Unlock()
		switch {
		case err == nil:
			s.accepted = max(s.accepted, bytes)
		case isRefused(err):
			s.delay, s.refused, s.until = delay, bytes, time.Now().Add(memory)
			err = fmt.Errorf("%w with %d bytes", err, bytes)
		}
		<-s.alone
		outcome <- err
	}()
	return func() error { return <-outcome }
}

// doubt forgets the accepted sizes, so that the next large message is published alone: the topic may allow less by now.
func (s *sizes) doubt() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accepted = 0
}
