package reconsume

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/backoff"
)

// A broker refuses a delay that is longer than the namespace allows. Upstream's producer does not report the refusal.
// It does not report the answers to later messages either, although the broker publishes these messages. So messages
// with a longer delay than any before have a producer of their own.
const (
	patience = 5 * time.Second        // time without an answer after which ask finds out whether the broker refused
	grace    = 100 * time.Millisecond // time for a producer to notice that its connection was lost
	// A producer's Close that takes longer than prompt may have ended without an answer: upstream stops waiting after
	// the client's OperationTimeout.
	prompt = 2 * time.Second
	memory = time.Minute // how long a refusal counts
)

// delays are the delays that the namespace is known to allow, or to refuse.
type delays struct {
	mu       sync.Mutex
	accepted time.Duration // the longest accepted delay, raised only when no untried message is under way
	answered time.Duration // the longest delay accepted while other untried messages were under way
	untried  int           // messages under way whose delays are longer than accepted
	refused  time.Duration // the shortest refused delay
	until    time.Time     // when the refusal stops counting
}

// refuses returns an error if a delay was refused within the last minute.
func (d *delays) refuses(delay time.Duration) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.refused > 0 && delay >= d.refused && delay > d.accepted && time.Now().Before(d.until) {
		return fmt.Errorf("%w: %v, as it refused %v", ErrDelayRefused, delay, d.refused)
	}
	return nil
}

// begin reports whether a delay was accepted before. If not, the caller must call end.
func (d *delays) begin(delay time.Duration) (tried bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if delay <= d.accepted {
		return true
	}
	d.untried++
	return false
}

// end notes the outcome of an untried delay.
func (d *delays) end(delay time.Duration, accepted, refused bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case accepted:
		d.answered = max(d.answered, delay)
	case refused:
		if now := time.Now(); d.refused == 0 || delay <= d.refused || now.After(d.until) {
			d.refused, d.until = delay, now.Add(memory)
		}
	}
	d.untried--
	if d.untried == 0 { // from now on no message of the usual producer can overtake an untried message
		d.accepted, d.answered = max(d.accepted, d.answered), 0
	}
}

// doubt makes every delay untried: the namespace may allow less by now.
func (d *delays) doubt() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.accepted = 0
}

// startDelayed begins to publish a retry.
func (r *Reconsumer) startDelayed(ctx context.Context, msg *pulsar.ProducerMessage) (answer func() error) {
	delay, bytes := msg.DeliverAfter, bytesOf(msg)
	if err := r.delays.refuses(delay); err != nil {
		return failed(err)
	}
	switch tried, err := r.sizes.begin(ctx, delay, bytes); {
	case err != nil:
		return failed(err)
	case !tried:
		return r.sizes.end(delay, bytes, r.alone.producerFor(msg).start(ctx, msg))
	}
	if r.delays.begin(delay) {
		answered := r.retries.producerFor(msg).start(ctx, msg)
		return func() error {
			err := answered()
			if err != nil {
				r.delays.doubt()
				r.sizes.doubt()
			}
			return err
		}
	}
	answered := r.untried.producerFor(msg).start(ctx, msg)
	return func() error {
		err := answered()
		r.delays.end(delay, err == nil, isRefused(err))
		return err
	}
}

// startHeld does what startDelayed does, for a retry that a Consumer of package redelivery reads. If the namespace
// refuses the delay, startHeld publishes the retry without one: the Consumer holds it back for the time that DELAY_TIME
// says.
func (r *Reconsumer) startHeld(ctx context.Context, msg *pulsar.ProducerMessage) (answer func() error) {
	answered := r.startDelayed(ctx, msg)
	return func() error {
		err := answered()
		if !isRefused(err) || msg.DeliverAfter == 0 {
			return err
		}
		msg.DeliverAfter = 0
		return r.startDelayed(ctx, msg)()
	}
}

// verdict says whether the broker refused the unanswered messages of a producer.
type verdict struct {
	asked       atomic.Bool   // the producer is being closed
	known       chan struct{} // closed when refused is final
	refused     bool          // the broker refused the message with the longest delay
	mu          sync.Mutex
	longest     time.Duration // the longest delay among the messages for which the client returned an error
	lastAttempt atomic.Int64  // time of the last attempt to reconnect, in nanoseconds since 1970
}

// watch returns a policy that notes when the producer reconnects.
func (v *verdict) watch(of func() backoff.Policy) func() backoff.Policy {
	if of == nil {
		of = backoff.NewDefaultBackoff
	}
	return func() backoff.Policy {
		v.lastAttempt.Store(time.Now().UnixNano())
		return watched{of(), v}
	}
}

type watched struct {
	backoff.Policy
	v *verdict
}

func (w watched) Next() time.Duration {
	d := w.Policy.Next()
	w.v.lastAttempt.Store(time.Now().Add(d).UnixNano())
	return d
}

// failed notes that the client returned an error for a message because its producer was closed.
func (v *verdict) failed(delay time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.longest = max(v.longest, delay)
}

// errorOf waits for the verdict, and returns the error for a message for which the client returned err.
func (v *verdict) errorOf(ctx context.Context, delay time.Duration, err error) error {
	if !v.asked.Load() {
		return err
	}
	select {
	case <-v.known:
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", errNoAnswer, context.Cause(ctx))
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case !v.refused:
		return errNoAnswer
	case delay < v.longest:
		return fmt.Errorf("%w, which refused the delay %v of another message", errNoAnswer, v.longest)
	}
	return fmt.Errorf("%w: %v", ErrDelayRefused, delay)
}

// ask closes a producer to find out whether the broker refused a message that has no answer. The broker answers the
// close after all messages that it accepted. Then the client returns an error for each of the others. It does so in two
// other cases, too: if the connection is lost (the next producer notices that), and if the broker does not answer the
// close in time, for example because it cannot store messages.
func (p *producer) ask(m *made) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made != m || p.closed.Err() != nil {
		return
	}
	if wait := patience - time.Since(time.Unix(0, m.verdict.lastAttempt.Load())); wait > 0 {
		// the client has reconnected, and has published the unanswered messages again
		time.AfterFunc(wait, func() { p.ask(m) })
		return
	}
	p.made = nil
	m.verdict.asked.Store(true)
	p.work.Go(func() {
		defer close(m.verdict.known)
		next, err := p.get(p.closed) // a new producer shows that the broker answers
		if err != nil {
			m.calls.Wait()
			m.Close()
			return
		}
		defer next.calls.Done()
		before := next.verdict.lastAttempt.Load()
		began := time.Now()
		m.Close()
		answered := time.Since(began) < prompt
		time.Sleep(grace)
		m.verdict.refused = answered && next.verdict.lastAttempt.Load() == before
	})
}
