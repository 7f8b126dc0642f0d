package ui_test

import (
	"context"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"

	"github.com/pulsar-redelivery/redelivery/deadletter"
	"github.com/pulsar-redelivery/redelivery/internal/waittest"
	"github.com/pulsar-redelivery/redelivery/ui"
)

// heldClient's next reader of the dead letter topic holds its first letter back until release is closed, if hold is
// set.
type heldClient struct {
	pulsar.Client
	hold    atomic.Bool
	release chan struct{}
}

func (c *heldClient) CreateReader(o pulsar.ReaderOptions) (pulsar.Reader, error) {
	r, err := c.Client.CreateReader(o)
	if err != nil || o.Topic != dead || !c.hold.CompareAndSwap(true, false) {
		return r, err
	}
	return &heldReader{r, c.release}, nil
}

type heldReader struct {
	pulsar.Reader
	release chan struct{}
}

func (r *heldReader) Next(ctx context.Context) (pulsar.Message, error) {
	<-r.release
	return r.Reader.Next(ctx)
}

// The letters are one batch, so that the broker's statistics do not show that one of them is replayed.
func TestLettersThatWereReadDuringAReplayAreReadAgain(t *testing.T) {
	s := newSite(t, nil)
	s.storeLetters(4, 1)
	letters, err := deadletter.Open(s.client, deadletter.Options{Topic: dead,
		Admin: deadletter.Admin{URL: s.broker.AdminURL()}})
	require.NoError(t, err)
	_, err = letters.Replay(waittest.Context(t), deadletter.ReplayOptions{Max: 1})
	require.NoError(t, err)
	var ids []string
	for l, err := range letters.Peek(waittest.Context(t), 0) {
		require.NoError(t, err)
		ids = append(ids, l.ID)
	}
	require.Len(t, ids, 3)

	client := &heldClient{Client: s.client, release: make(chan struct{})}
	s.open(func(o *ui.Options) { o.Client = client })
	release := sync.OnceFunc(func() { close(client.release) })
	t.Cleanup(release)
	client.hold.Store(true)
	page := "letter?" + url.Values{"topic": {dead}, "id": {ids[1]}}.Encode()
	s.await(groupsOf(dead), "Reading the letters")
	require.False(t, client.hold.Load())
	_, plan := s.post(page, "plan", url.Values{"topic": {dead}, "action": {"replay"}, "id": {ids[1]}})
	require.Contains(t, plan, "Replay 1 letter")
	s.confirm(page, plan)
	s.await("letters", "done")
	release()
	s.await(groupsOf(dead), "2 letters")
}
