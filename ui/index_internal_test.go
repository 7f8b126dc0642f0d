package ui

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The race detector watches.
func TestMoreTopicsThanIndexesAreOpenedAtOnce(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("{}"))
	}))
	defer api.Close()
	h, err := New(Options{Client: struct{ pulsar.Client }{}, Admin: Admin{URL: api.URL}})
	require.NoError(t, err)
	defer h.Close()
	open := func(i int) {
		topic := fmt.Sprintf("persistent://public/default/orders-%d-DLQ", i)
		x, err := h.index(t.Context(), topic)
		assert.NoError(t, err)
		assert.Equal(t, topic, x.topic)
	}
	open(0)
	var done atomic.Bool
	var users sync.WaitGroup
	users.Go(func() {
		defer done.Store(true)
		for i := range 10 * maxIndexes {
			open(i)
		}
	})
	users.Go(func() {
		for !done.Load() {
			open(0)
		}
	})
	users.Wait()
	require.Len(t, h.dead.all, maxIndexes)
}

func TestClosedPageLeavesNoErrorForOthers(t *testing.T) {
	h, err := New(Options{Client: struct{ pulsar.Client }{}, Admin: Admin{URL: "http://127.0.0.1:1"}})
	require.NoError(t, err)
	defer h.Close()
	gone, leave := context.WithCancel(t.Context())
	leave()
	x := &letterIndex{topic: "persistent://public/default/orders-DLQ"}
	require.Empty(t, h.look(gone, x).Err)
}
