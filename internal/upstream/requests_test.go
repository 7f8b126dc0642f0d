package upstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// away is a reader whose broker answers after a minute.
type away struct {
	pulsar.Reader
	closed chan struct{}
}

func (r away) GetLastMessageID() (pulsar.MessageID, error) {
	select {
	case <-r.closed:
		select {} // upstream never answers
	case <-time.After(time.Minute):
		return pulsar.EarliestMessageID(), nil
	}
}

func (r away) Close() { close(r.closed) }

func TestReaderIsClosedWhenItHasTheAnswerToItsRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := away{closed: make(chan struct{})}
		r, began := &TopicReader{Reader: inner}, time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := r.LastMessageID(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		r.Close()
		require.Equal(t, time.Second, time.Since(began))
		<-inner.closed
		require.Equal(t, time.Minute, time.Since(began))

		inner = away{closed: make(chan struct{})}
		r = &TopicReader{Reader: inner}
		_, err = r.LastMessageID(t.Context())
		require.NoError(t, err)
		r.Close()
		select {
		case <-inner.closed:
		default:
			require.Fail(t, "Close has not closed a reader without a request")
		}
	})
}

func TestPanicOfARequestIsAnError(t *testing.T) {
	_, err := Within(t.Context(), func() (int, error) { panic("no client") }, nil)
	require.EqualError(t, err, "panic: no client")
}
