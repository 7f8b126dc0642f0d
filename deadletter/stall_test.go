package deadletter_test

import (
	"context"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
)

// The broker stops sending to a reader in the middle of a batch, as it now and then does under load. Only a new reader
// gets the rest.
func TestStalledReaderDoesNotHideLetters(t *testing.T) {
	t.Parallel()
	b := newBroker(t)
	for _, batch := range []int{1, 4} {
		tp := b.topics(0)
		b.publish(pulsar.ProducerOptions{Topic: tp.dlq}, batch, tp.letters(20)...)
		for _, after := range []int{0, 1, 6, 8, 19} {
			d, err := deadletter.Open(&stallingClient{Client: b.client, after: after},
				deadletter.Options{Topic: tp.dlq, Admin: deadletter.Admin{URL: b.admin}})
			require.NoError(t, err)
			d.Hurry(300 * time.Millisecond)
			require.Len(t, peek(t, d), 20, "the reader stalled after %d letters in batches of %d", after, batch)
		}
	}
}

// stallingClient's first reader gets only some messages.
type stallingClient struct {
	pulsar.Client
	after   int
	readers int
}

func (c *stallingClient) CreateReader(o pulsar.ReaderOptions) (pulsar.Reader, error) {
	r, err := c.Client.CreateReader(o)
	c.readers++
	if err != nil || c.readers > 1 {
		return r, err
	}
	return &stallingReader{r, c.after}, nil
}

type stallingReader struct {
	pulsar.Reader
	left int
}

func (r *stallingReader) Next(ctx context.Context) (pulsar.Message, error) {
	if r.left == 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	r.left--
	return r.Reader.Next(ctx)
}
