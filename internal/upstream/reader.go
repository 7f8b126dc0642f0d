package upstream

import (
	"context"
	"errors"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Reader takes all available messages of a consumer together: to wake pulsar-client-go for each message would take
// longer than to handle the message. Only one goroutine at a time may use a Reader.
type Reader struct {
	messages <-chan pulsar.ConsumerMessage
	ahead    []pulsar.ConsumerMessage // messages that were taken together
	next     int                      // index of the message in ahead that Next returns
	limit    int                      // how many messages are taken together
	zero     *zeroQueue               // reads a consumer without a queue; nil if the consumer has one
}

// NewReader returns a Reader that takes up to ahead messages together. For a zero-queue consumer, ended ends its
// Receive, and failed gets the error of its Receive, or ErrUndecryptable.
func NewReader(ended context.Context, consumer pulsar.Consumer, ahead int, failed func(error)) *Reader {
	r := &Reader{messages: Chan(consumer), limit: max(1, ahead)}
	r.ahead = make([]pulsar.ConsumerMessage, 0, r.limit)
	if r.messages == nil {
		r.zero = newZeroQueue(ended, consumer, failed)
		r.messages = r.zero.messages
	}
	return r
}

// Chan returns a consumer's channel, or nil for a zero-queue consumer, whose Chan panics.
func Chan(consumer pulsar.Consumer) (messages <-chan pulsar.ConsumerMessage) {
	defer func() { _ = recover() }()
	return consumer.Chan()
}

// HasQueue reports whether the consumer has a queue.
func (r *Reader) HasQueue() bool { return r.zero == nil }

// Has reports whether Next would return a message.
func (r *Reader) Has() bool { return r.next < len(r.ahead) || len(r.messages) > 0 }

// Next returns the next message; ok is false if there is none.
func (r *Reader) Next() (cm pulsar.ConsumerMessage, ok bool) {
	if r.next >= len(r.ahead) && !r.fill() {
		return cm, false
	}
	cm, r.ahead[r.next] = r.ahead[r.next], cm
	r.next++
	return cm, true
}

// fill takes the messages from the channel, up to limit, and reports whether there were any.
func (r *Reader) fill() bool {
	if cap(r.ahead) > r.limit { // after ReadAhead
		r.ahead = make([]pulsar.ConsumerMessage, 0, r.limit)
	}
	r.ahead, r.next = r.ahead[:0], 0
	r.take(r.limit)
	return len(r.ahead) > 0
}

// ReadAhead takes messages from the channel and keeps them for Next, until it has kept limit messages or the channel is
// empty. It does nothing for a zero-queue consumer.
func (r *Reader) ReadAhead(limit int) {
	if r.HasQueue() {
		r.take(limit)
	}
}

// take adds messages from the channel to ahead, until Next has limit messages to return or the channel is empty.
func (r *Reader) take(limit int) {
	for len(r.ahead)-r.next < limit {
		select {
		case cm, open := <-r.messages:
			if !open {
				return
			}
			r.ahead = append(r.ahead, cm)
			r.zero.took()
		default:
			return
		}
	}
}

// Wait returns a channel that yields the next message. Call Wait when Next returned none, and pass the message to Put.
// While a zero-queue consumer reconnects, Wait does not call its Receive: if the consumer gave up, its Close would wait
// for that Receive.
func (r *Reader) Wait(reconnects bool) <-chan pulsar.ConsumerMessage {
	switch {
	case r.zero == nil:
	case reconnects:
		r.zero.recall()
	default:
		r.zero.begin()
	}
	return r.messages
}

// Put stores a message that came from the channel of Wait. Next returns it.
func (r *Reader) Put(cm pulsar.ConsumerMessage) {
	r.ahead, r.next = append(r.ahead[:0], cm), 0
	r.zero.took()
}

// Recall ends a Receive of a zero-queue consumer, so that other methods of the consumer may be called. If the Receive
// got a message, Next returns that.
func (r *Reader) Recall() {
	if r.zero != nil {
		r.zero.recall()
	}
}

// Forget drops the messages that Next would return.
func (r *Reader) Forget() {
	r.ahead, r.next = r.ahead[:0], 0
	if r.zero != nil {
		r.Recall()
		select {
		case <-r.messages:
		default:
		}
	}
}

// Close closes a consumer. During the call it takes the messages out of the consumer's queue: if the queue were full,
// pulsar-client-go's reader of the connection would wait for room, and not read the broker's answer to the Close.
func Close(consumer pulsar.Consumer) {
	messages, closed := Chan(consumer), make(chan struct{})
	taking := make(chan struct{})
	go func() {
		defer close(taking)
		for {
			select {
			case _, open := <-messages:
				if !open { // closed by a consumer that is not pulsar-client-go's
					messages = nil
				}
			case <-closed:
				return
			}
		}
	}()
	consumer.Close()
	close(closed)
	<-taking
}

// IsClosed reports whether a consumer has closed itself, which its channel does not show. IsClosed may take a message
// from the consumer, and returns that message instead.
func IsClosed(consumer pulsar.Consumer) (msg pulsar.Message, closed bool) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	msg, err := consumer.Receive(ctx)
	return msg, err != nil && !errors.Is(err, context.Canceled)
}
